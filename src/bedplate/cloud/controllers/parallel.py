"""Bounded parallelism for passes over many objects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

__all__ = ["in_parallel"]

T = TypeVar("T")


async def in_parallel(work: Sequence[T], workers: int, do: Callable[[T], Awaitable[None]]) -> None:
    """`do` for each, at most `workers` at a time; an exception of one ends all."""
    if not work:
        return
    left = iter(work)

    async def one() -> None:
        for item in left:
            await do(item)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(workers, len(work))):
            tasks.create_task(one())
