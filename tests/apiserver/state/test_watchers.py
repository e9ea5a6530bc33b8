"""Fan-out of events: what each group of watchers sees, sharing, bookmarks, slow readers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.waiting import until

from bedplate.apiserver.state import bodies, registry, watchers
from bedplate.serving import http
from bedplate.store import interface

KIND = ("", "configmaps")


class Sink:
    """Takes frames like `http.Sink`."""

    def __init__(self) -> None:
        self.data = b""
        self.writes = 0
        self.backlog_bytes = 0
        self.is_open = True
        self.on_close: Any = None

    def write(self, frames: bytes) -> None:
        self.data += frames
        self.writes += 1

    def finish(self) -> None:
        self.is_open = False
        self.on_close()

    cut = finish

    @property
    def events(self) -> list[tuple[str, str]]:
        """(type, name) of all events, unchunked."""
        found, rest = [], self.data
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            event = msgspec.json.decode(rest[: int(size, 16)])
            found.append((event["type"], event["object"]["metadata"].get("name", "")))
            rest = rest[int(size, 16) + 2 :]
        return found


class View:
    """Shows objects as they are, and counts how often it is asked."""

    def __init__(self, *, has_heading: bool = False) -> None:
        self.key = "plain"
        self.has_heading = has_heading
        self.shown = 0
        self.headings = 0

    def show(self, body: bytes, *, heading: bool = False) -> bytes:
        self.shown += 1
        self.headings += heading
        return body

    def event(self, type: str, shown: bytes) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (type.encode(), shown)


class World:
    """A registry fed by hand."""

    def __init__(self) -> None:
        self.registry = registry.Registry(None)  # type: ignore[arg-type]
        self.hub = watchers.Watchers(self.registry)
        self.revision = 0

    def change(self, *changes: tuple[str, dict[str, str] | None]) -> None:
        """One commit: names with labels, None deletes."""
        self.revision += 1
        events = []
        for name, labels in changes:
            key = bodies.key_of(KIND, "ns", name)
            entry = None
            if labels is not None:
                obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "labels": labels}}
                entry = interface.Entry(key, bodies.encode_value(obj), self.revision, self.revision)
            events.append(interface.Event(key, self.revision, entry, None))
        self.registry._apply(events)

    def watch(
        self, view: View, namespace: str = "", label: str = "", *, bookmark: Any = None, timeout_s: float = 600
    ) -> Sink:
        predicate = (lambda stored: stored.labels.get("app") == label) if label else None
        matcher = watchers.Matcher(f"{namespace} {label}", namespace, predicate)
        sink = Sink()
        group = self.hub.group(KIND, matcher, view)
        self.hub.add(group, sink, bookmark).begin((), timeout_s)  # type: ignore[arg-type]
        return sink


@pytest.fixture
async def world() -> World:
    return World()


async def test_events_of_one_batch_go_out_in_one_write(world: World) -> None:
    sink = world.watch(View())
    world.change(("a", {}), ("b", {}), ("c", {}))
    assert sink.events == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]
    assert sink.writes == 1


async def test_an_event_is_encoded_once_for_all_watchers(world: World) -> None:
    view = View()
    sinks = [world.watch(view) for _ in range(50)]
    world.change(("a", {}))
    assert view.shown == 1
    assert {sink.data for sink in sinks} == {sinks[0].data}


async def test_other_namespaces_are_not_seen(world: World) -> None:
    sink = world.watch(View(), namespace="n")
    world.change(("a", {}))
    assert sink.events == []


async def test_entering_and_leaving_a_selection(world: World) -> None:
    sink = world.watch(View(), label="web")
    world.change(("a", {"app": "db"}))
    world.change(("a", {"app": "web"}))
    world.change(("a", {"app": "web", "x": "1"}))
    world.change(("a", {"app": "db"}))
    world.change(("a", None))
    assert sink.events == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_deletion_of_a_selected_object(world: World) -> None:
    sink = world.watch(View(), label="web")
    world.change(("a", {"app": "web"}))
    world.change(("a", None))
    assert sink.events == [("ADDED", "a"), ("DELETED", "a")]


async def test_a_heading_is_sent_once_to_each_watcher(world: World) -> None:
    view = View(has_heading=True)
    first = world.watch(view)
    world.change(("a", {}))
    second = world.watch(view)
    world.change(("b", {}))
    assert view.headings == 2
    assert (first.events, second.events) == ([("ADDED", "a"), ("ADDED", "b")], [("ADDED", "b")])


async def test_a_watcher_that_left_costs_nothing(world: World) -> None:
    sink = world.watch(View())
    sink.finish()
    world.change(("a", {}))
    assert sink.events == []
    assert world.hub.count == 0
    assert not any(world.hub._groups.values())


async def test_a_watcher_that_does_not_read_is_cut(world: World) -> None:
    slow, quick = world.watch(View()), world.watch(View())
    slow.backlog_bytes = watchers.MAX_BACKLOG_BYTES + 1
    world.change(("a", {}))
    assert not slow.is_open
    assert quick.is_open
    assert world.hub.count == 1


async def test_the_timeout_ends_a_watch(world: World) -> None:
    sink = world.watch(View(), timeout_s=0.01)
    await until(lambda: not sink.is_open)
    assert world.hub.count == 0


async def test_a_bookmark_comes_before_the_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchers, "BOOKMARK_BEFORE_END_S", 0.05)

    def bookmark(revision: int) -> bytes:
        return b'{"type":"BOOKMARK","object":{"metadata":{"name":"%d"}}}\n' % revision

    world.change(("a", {}))
    sink = world.watch(View(), bookmark=bookmark, timeout_s=0.1)
    await until(lambda: not sink.is_open)
    assert sink.events == [("BOOKMARK", "1")]


def test_a_chunk_says_its_length() -> None:
    assert http.chunk(b"x" * 17) == b"11\r\n" + b"x" * 17 + b"\r\n"
