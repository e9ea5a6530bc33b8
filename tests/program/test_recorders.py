"""Events while leading: a recorder per component, and nothing queued is lost at the end."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from bedplate.api import meta
from bedplate.core.clock import ManualClock
from bedplate.kube import Client
from bedplate.program.recorders import Recorders, Recording
from bedplate.runtime.events import EventRecorder


class Written:
    """A client that keeps the events it is given."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def create(self, ref: Any, body: Any, namespace: str) -> None:
        await asyncio.sleep(0)
        self.events.append(body["reason"])


async def test_events_in_hand_are_written_before_the_work_has_ended() -> None:
    written = Written()
    recorder = EventRecorder(cast(Client, written), "test")
    task = asyncio.create_task(Recording("events", recorder).run())
    await asyncio.sleep(0)
    for number in range(5):
        recorder.event(meta.ObjectReference(kind="Node", name=f"n{number}"), "Normal", f"R{number}", "told")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert written.events == [f"R{number}" for number in range(5)]


def test_each_component_has_one_recorder_and_one_part() -> None:
    recorders = Recorders(cast(Client, Written()), ManualClock())
    assert recorders.get("a") is recorders.get("a")
    assert recorders.get("b") is not recorders.get("a")
    assert [part.name for part in recorders.parts()] == ["events of a", "events of b"]
