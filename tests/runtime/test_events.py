"""Events: counted, combined, silenced, and never in the way."""

from __future__ import annotations

import asyncio
import io
import itertools
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest

from bedplate.api import meta
from bedplate.api.meta import ObjectReference, Status
from bedplate.api.resources import EVENTS, NODES
from bedplate.core import logging
from bedplate.core.clock import ManualClock
from bedplate.kube import Client, errors
from bedplate.runtime.events import QUEUE_SIZE, Correlator, EventRecorder, Happening, Recorders, Recording, reference

WALL = datetime(2026, 1, 1, tzinfo=UTC)


def about(name: str = "n1", version: str = "1") -> ObjectReference:
    return ObjectReference(kind="Node", name=name, uid="u-" + name, resource_version=version)


def test_the_same_event_is_counted_even_when_the_object_moved_on() -> None:
    correlator = Correlator()
    decisions = [
        correlator.correlate(Happening(about(version=str(n)), "Normal", "Initialized", "done"), n, WALL)
        for n in range(3)
    ]
    assert [one.count for one in decisions if one] == [1, 2, 3]
    assert len({one.name for one in decisions if one}) == 1


def test_more_than_ten_that_differ_only_in_words_become_one() -> None:
    correlator = Correlator()
    found = [
        correlator.correlate(Happening(about(), "Warning", "Failed", f"try {n}"), float(n), WALL) for n in range(14)
    ]
    texts = [one.happening.message for one in found if one]
    assert texts[9] == "try 9"
    assert texts[10:] == [f"(combined from similar events): try {n}" for n in range(10, 14)]
    assert [one.count for one in found[10:] if one] == [1, 2, 3, 4]


def test_a_flood_about_one_object_is_silenced_and_others_are_not() -> None:
    correlator = Correlator()
    written = [correlator.correlate(Happening(about(), "Warning", f"R{n}", "x"), 0.0, WALL) for n in range(100)]
    assert sum(one is not None for one in written) == 25
    assert correlator.correlate(Happening(about("n2"), "Warning", "R", "x"), 0.0, WALL) is not None
    assert correlator.correlate(Happening(about(), "Warning", "R", "x"), 301.0, WALL) is not None


class Server:
    """Keeps events; fails as told."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.failures: list[Exception] = []
        self.calls = itertools.count()

    async def create(self, ref: Any, body: dict[str, Any], namespace: str) -> None:
        next(self.calls)
        if self.failures:
            raise self.failures.pop(0)
        self.events[body["metadata"]["name"]] = body

    async def patch(self, ref: Any, name: str, body: dict[str, Any], namespace: str) -> None:
        next(self.calls)
        if name not in self.events:
            status = msgspec.convert(
                {"code": 404, "reason": "NotFound", "details": {"name": name, "kind": "events"}}, Status
            )
            raise errors.from_status(errors.Target("PATCH", "/", EVENTS, namespace, name), status)
        self.events[name] |= body


async def run_with(server: Server, clock: ManualClock) -> tuple[EventRecorder, asyncio.Task[None]]:
    recorder = EventRecorder(server, "test", time=clock)  # type: ignore[arg-type]
    return recorder, asyncio.create_task(recorder.run())


async def test_an_event_is_written_and_then_counted_up() -> None:
    server, clock = Server(), ManualClock()
    recorder, task = await run_with(server, clock)
    node = {"metadata": {"name": "n1", "uid": "u"}}
    for _ in range(3):
        recorder.event(reference(NODES, node), "Normal", "Initialized", "provider ID set")
        await clock.advance(1)
    (event,) = server.events.values()
    assert (event["count"], event["reason"], event["metadata"]["namespace"]) == (3, "Initialized", "default")
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u"}
    assert event["firstTimestamp"] < event["lastTimestamp"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_event_that_expired_on_the_server_is_written_anew() -> None:
    server, clock = Server(), ManualClock()
    recorder, task = await run_with(server, clock)
    recorder.event(about(), "Normal", "A", "b")
    await clock.advance(1)
    server.events.clear()
    recorder.event(about(), "Normal", "A", "b")
    await clock.advance(1)
    assert len(server.events) == 1
    recorder.event(about(), "Normal", "A", "b")
    await clock.advance(1)
    assert [event["count"] for event in server.events.values()] == [3], "it is counted on, not told a second time"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_two_events_of_one_moment_have_names_of_their_own() -> None:
    correlator = Correlator()
    found = [correlator.correlate(Happening(about(), "Normal", reason, "x"), 0.0, WALL) for reason in ("A", "B", "C")]
    assert len({one.name for one in found if one}) == 3


async def test_an_event_that_the_server_has_already_is_no_reason_to_warn() -> None:
    """The answer to the first attempt was lost; the second finds its own event."""
    out = io.StringIO()
    logging.configure(logging.LogOptions(), out)
    server, clock = Server(), ManualClock()
    recorder, task = await run_with(server, clock)
    status = Status(code=409, reason="AlreadyExists", message="exists")
    server.failures = [errors.ConnectionFailed("cut"), errors.from_status(errors.Target("POST", "/"), status)]
    recorder.event(about(), "Normal", "A", "b")
    await clock.advance(30)
    logging.configure(logging.LogOptions())
    assert not server.failures
    assert "refused" not in out.getvalue()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_outage_is_waited_out_but_a_refusal_is_not_repeated() -> None:
    server, clock = Server(), ManualClock()
    recorder, task = await run_with(server, clock)
    server.failures = [errors.ConnectionFailed("down")] * 3
    recorder.event(about(), "Normal", "A", "b")
    await clock.advance(30)
    assert len(server.events) == 1
    denied = errors.from_status(errors.Target("POST", "/"), Status(code=403, reason="Forbidden"))
    server.failures = [denied]
    before = next(server.calls)
    recorder.event(about("n2"), "Normal", "A", "b")
    await clock.advance(30)
    assert next(server.calls) - before == 2
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_bug_in_writing_one_event_does_not_end_the_program() -> None:
    server, clock = Server(), ManualClock()
    recorder, task = await run_with(server, clock)
    server.failures = [ZeroDivisionError()]
    recorder.event(about(), "Normal", "A", "b")
    recorder.event(about("n2"), "Normal", "A", "b")
    await clock.advance(1)
    assert [event["involvedObject"]["name"] for event in server.events.values()] == ["n2"]
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_telling_never_waits_and_what_is_too_much_is_counted() -> None:
    recorder = EventRecorder(Server(), "test", time=ManualClock())  # type: ignore[arg-type]
    for number in range(4500):
        recorder.event(about(f"n{number}"), "Normal", "A", "b")
    assert recorder.dropped == 500


async def test_ordinary_events_give_way_to_work_for_ten_seconds_and_warnings_do_not() -> None:
    server, clock = Server(), ManualClock()
    recorder, task = await run_with(server, clock)
    waiting = [True]
    recorder.give_way_to(lambda: waiting[0])

    def told() -> list[str]:
        return [event["involvedObject"]["name"] for event in server.events.values()]

    recorder.event(about("n1"), "Normal", "A", "b")
    await clock.advance(9)
    assert told() == []
    await clock.advance(2)
    assert told() == ["n1"]
    recorder.event(about("n2"), "Normal", "A", "b")
    await clock.advance(1)
    recorder.event(about("n3"), "Warning", "A", "b")
    await clock.advance(1)
    assert told() == ["n1", "n2", "n3"]
    recorder.event(about("n4"), "Normal", "A", "b")
    await clock.advance(1)
    assert told() == ["n1", "n2", "n3"]
    waiting[0] = False
    await clock.advance(1)
    assert told() == ["n1", "n2", "n3", "n4"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_half_a_queue_of_events_is_written_whatever_else_waits() -> None:
    server, clock = Server(), ManualClock()
    recorder, task = await run_with(server, clock)
    recorder.give_way_to(lambda: True)
    for number in range(QUEUE_SIZE // 2 + 10):
        recorder.event(about(f"n{number}"), "Normal", "A", "b")
    await clock.advance(1)
    assert 0 < len(server.events) <= 11
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_clean_stop_flushes_what_gives_way() -> None:
    server, clock = Server(), ManualClock()
    recorder, task = await run_with(server, clock)
    recorder.give_way_to(lambda: True)
    recorder.event(about(), "Normal", "A", "b")
    await clock.advance(1)
    assert not server.events
    draining = asyncio.create_task(recorder.drain())
    await clock.advance(1)
    await draining
    assert len(server.events) == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_clean_stop_flushes_what_is_in_hand() -> None:
    server, clock = Server(), ManualClock()
    recorder, task = await run_with(server, clock)
    for number in range(20):
        recorder.event(about(f"n{number}"), "Normal", "A", "b")
    await recorder.drain()
    assert len(server.events) == 20
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("length", [10, 5000])
def test_a_long_message_is_cut_to_what_the_server_takes(length: int) -> None:
    recorder = EventRecorder(Server(), "test", time=ManualClock())  # type: ignore[arg-type]
    recorder.event(about(), "Normal", "A", "x" * length)
    assert len(recorder._queue.get_nowait().happening.message) == min(length, 1024)


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
