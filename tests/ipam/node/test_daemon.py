"""The daemon's own life: a part that ends by itself ends it, and not well."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bedplate.core import errors
from bedplate.ipam.node.daemon import Daemon
from bedplate.ipam.node.options import read


class Part:
    """A server that notes its end, and a manager that does what it is told."""

    def __init__(self, outcome: Exception | None = None, *, lasts: bool = False) -> None:
        self.outcome, self.lasts = outcome, lasts
        self.order: list[str] = []

    async def run(self) -> None:
        try:
            if self.lasts:
                await asyncio.Event().wait()
            if self.outcome is not None:
                raise self.outcome
        finally:
            self.order.append("manager")

    async def stop(self, within_s: float) -> None:
        self.order.append("server")


def run(part: Part) -> Any:
    daemon = Daemon(read(["--node-name=n"]).options, {})
    return daemon._run_until_stopped(part, part)  # type: ignore[arg-type]


async def test_a_part_that_fails_ends_the_daemon_with_its_error() -> None:
    part = Part(errors.Unavailable("broken"))
    with pytest.raises(errors.Unavailable, match="broken"):
        await run(part)
    assert "server" in part.order


async def test_a_part_that_ends_ends_the_daemon_with_an_error() -> None:
    with pytest.raises(errors.Terminal, match="stopped unexpectedly"):
        await run(Part())


async def test_when_it_is_stopped_calls_end_before_everything_else() -> None:
    part = Part(lasts=True)
    task = asyncio.ensure_future(run(part))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert part.order == ["server", "manager"]
