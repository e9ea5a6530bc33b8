"""The registry over the SQLite store."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bedplate.apiserver.state import bodies, registry
from bedplate.store import interface
from bedplate.store.sqlite import SqliteStore

KIND = ("", "configmaps")


def value(name: str, **data: str) -> bytes:
    metadata = {"name": name, "namespace": "ns", "labels": {"app": name}}
    return bodies.encode_value({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


def put(name: str, expect: int | None = None, **data: str) -> interface.Put:
    return interface.Put(bodies.key_of(KIND, "ns", name), value(name, **data), expect)


def remove(name: str) -> interface.Delete:
    return interface.Delete(bodies.key_of(KIND, "ns", name))


@asynccontextmanager
async def running(path: pathlib.Path, *subscribed: Any) -> AsyncIterator[registry.Registry]:
    async with SqliteStore(path, history_s=None) as store:
        state = registry.Registry(store)
        for callback in subscribed:
            state.subscribe(KIND, callback)
        await state.load()
        task = asyncio.create_task(state.run())
        await asyncio.sleep(0)
        await state.freshen_all()
        try:
            yield state
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def state(tmp_path: pathlib.Path) -> AsyncIterator[registry.Registry]:
    async with running(tmp_path / "db") as found:
        yield found


async def test_a_commit_is_visible_when_it_returns(state: registry.Registry) -> None:
    revision = await state.commit([put("a", 0, k="1")])
    stored = state.get(KIND, "ns", "a")
    assert stored is not None
    assert stored.revision == revision
    assert stored.decode()["metadata"]["resourceVersion"] == str(revision)
    assert (stored.namespace, stored.name, stored.labels) == ("ns", "a", {"app": "a"})


async def test_items_come_in_key_order(state: registry.Registry) -> None:
    for name in ("b", "a.b", "a", "a-b", "c"):
        await state.commit([put(name)])
    await state.commit([remove("b")])
    assert [stored.name for stored in state.items(KIND, "ns")] == ["a", "a-b", "a.b", "c"]
    assert state.items(KIND, "n") == []
    assert state.items(KIND, "ns2") == []


async def test_a_failed_expectation_leaves_memory_alone_and_up_to_date(state: registry.Registry) -> None:
    first = await state.commit([put("a", 0, k="1")])
    second = await state.commit([put("a", first, k="2")])
    with pytest.raises(interface.CompareFailed):
        await state.commit([put("a", first, k="3")])
    assert state.revision >= second
    stored = state.get(KIND, "ns", "a")
    assert stored is not None
    assert stored.decode()["data"] == {"k": "2"}


async def test_events_of_a_kind_since_a_revision(state: registry.Registry) -> None:
    first = await state.commit([put("a", k="1")])
    await state.commit([put("a", k="2")])
    last = await state.commit([remove("a")])
    events = state.collection(KIND).since(first)
    assert [event.type for event in events] == ["MODIFIED", "DELETED"]
    gone = events[-1].stored.decode()
    assert gone["metadata"]["resourceVersion"] == str(last)
    assert gone["data"] == {"k": "2"}


async def test_compaction_moves_the_floor(state: registry.Registry) -> None:
    await state.commit([put("a", k="1")])
    second = await state.commit([put("a", k="2")])
    third = await state.commit([put("a", k="3")])
    await state.compact(third)
    assert state.oldest == third
    assert state.collection(KIND).floor == second
    assert state.collection(KIND).since(second)[0].revision == third


async def test_memory_of_events_is_bounded(state: registry.Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "RECENT_EVENTS", 3)
    revisions = [await state.commit([put("a", k=str(number))]) for number in range(6)]
    collection = state.collection(KIND)
    assert [event.revision for event in collection.recent] == revisions[-3:]
    assert collection.floor == revisions[-4]


async def test_a_restart_finds_objects_and_recent_events(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path / "db") as before:
        first = await before.commit([put("a", k="1")])
        await before.commit([put("b")])
        await before.commit([remove("a")])
    async with running(tmp_path / "db") as after:
        assert [stored.name for stored in after.items(KIND)] == ["b"]
        assert after.revision == before.revision
        assert [event.type for event in after.collection(KIND).since(first)] == ["ADDED", "DELETED"]


async def test_subscribers_see_the_past_and_the_present_in_order(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path / "db") as before:
        await before.commit([put("a")])
    seen: list[bodies.Change] = []
    async with running(tmp_path / "db", seen.append) as after:
        await after.commit([put("a", k="2")])
        await after.commit([remove("a")])
    assert [(change.type, change.name) for change in seen] == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert seen[1].object["data"] == {"k": "2"}
    assert seen[0].previous is None


async def test_a_faulty_subscriber_does_not_stop_the_others(tmp_path: pathlib.Path) -> None:
    def faulty(change: bodies.Change) -> None:
        raise RuntimeError(change.name)

    seen: list[str] = []
    async with running(tmp_path / "db", faulty, lambda change: seen.append(change.name)) as state:
        await state.commit([put("a")])
    assert seen == ["a"]


async def test_a_feed_begins_with_what_is_there(state: registry.Registry) -> None:
    await state.commit([put("a")])
    feed = state.feed(KIND)
    await state.commit([put("b")])
    async with asyncio.timeout(30):
        assert [(await anext(feed)).name, (await anext(feed)).name] == ["a", "b"]
    feed.close()
    await state.commit([put("c")])
    assert state.collection(KIND).feeds == []


def test_splicing_keeps_the_rest_of_the_object() -> None:
    tricky = {"kind": "X", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": '"metadata":{'}}
    body = bodies.spliced(bodies.encode_value(tricky), 7)
    assert bodies.decode(body) == {**tricky, "metadata": {"name": "a", "resourceVersion": "7"}}
    assert bodies.decode(bodies.respliced(body, 12345))["metadata"] == {"name": "a", "resourceVersion": "12345"}


def test_values_begin_with_kind_and_metadata_whatever_the_order() -> None:
    obj = {"data": {}, "metadata": {"resourceVersion": "9", "name": "a"}, "apiVersion": "v1", "kind": "X"}
    assert bodies.encode_value(obj) == b'{"kind":"X","apiVersion":"v1","metadata":{"name":"a"},"data":{}}'
    assert obj["metadata"] == {"resourceVersion": "9", "name": "a"}
