"""Waiting for nodes: who has applied a revision, who cannot, and who is silent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from bedplate.api.headapi import NodeProgress, RevisionProgress
from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.setup.kubernetes import nodes


class _Head:
    """Says of a revision what a test has it say."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.asked = asyncio.Event()

    async def progress(self, number: int) -> RevisionProgress:
        self.asked.set()
        late = [NodeProgress(node=name, state=state) for name, state in self.states.items()]  # type: ignore[arg-type]
        is_settled = not any(node.state in ("pending", "held") for node in late)
        return RevisionProgress(revision=number, total=3, applied=3 - len(late), is_settled=is_settled, nodes=late)


class _Wait:
    """One wait for a revision, on a clock that stands still."""

    def __init__(self, states: Sequence[tuple[str, str]], **notes: Any) -> None:
        self.head, self.clock = _Head(), ManualClock()
        self.head.states = dict(states)
        services = SimpleNamespace(backend=SimpleNamespace(fleet=self.head))
        context: Any = SimpleNamespace(services=services, clock=self.clock, notes=notes)
        self.task = asyncio.create_task(nodes.applied(context, 7))

    async def passes(self, seconds: float) -> None:
        """Time passes, in steps that the wait can follow."""
        for _ in range(round(seconds)):
            self.head.asked.clear()
            await self.clock.advance(1.0)
            if self.task.done():
                return
            await self.head.asked.wait()


async def test_a_node_that_was_only_late_to_report_is_waited_for() -> None:
    wait = _Wait([("node002", "DOWN")])
    await wait.passes(20)
    wait.head.states["node002"] = "pending"
    await wait.passes(20)
    wait.head.states["node002"] = "DOWN"
    await wait.passes(20)
    assert not wait.task.done()
    wait.head.states.clear()
    await wait.passes(1)
    await wait.task


async def test_a_node_that_stays_down_is_named_long_before_the_time_is_over() -> None:
    wait = _Wait([("node002", "DOWN")])
    await wait.passes(40)
    with pytest.raises(errors.Unavailable, match="not applied on 1 of 3 nodes: node002: DOWN"):
        await wait.task


async def test_a_node_that_cannot_is_named_at_once_and_one_that_may_be_down_not_at_all() -> None:
    wait = _Wait([("node001", "failed"), ("node002", "DOWN")])
    await wait.passes(2)
    with pytest.raises(errors.Unavailable, match="node001: failed; node002: DOWN"):
        await wait.task
    wait = _Wait([("node002", "DOWN")], **{nodes.MAY_BE_DOWN: True})
    await wait.passes(2)
    await wait.task
