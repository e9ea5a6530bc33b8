"""Watch: events in order, nothing lost or repeated between a list and a watch or between two watches."""

from __future__ import annotations

import asyncio

import pytest
from tests.conformance import objects
from tests.conformance.http import Api, Json
from tests.conformance.objects import config_map, core


async def version(api: Api, ns: str) -> str:
    return str((await api.read(core(ns, "secrets")))["metadata"]["resourceVersion"])


async def write(api: Api, ns: str, name: str, **data: str) -> Json:
    return await api.create(core(ns, "secrets"), objects.secret(name, stringData=data))


async def test_events_after_a_list_come_in_order_with_whole_objects(api: Api, ns: str) -> None:
    start = await version(api, ns)
    async with api.watch(core(ns, "secrets"), resourceVersion=start) as watch:
        made = await write(api, ns, "a", k="1")
        changed = (await api.patch(core(ns, "secrets", "a"), {"metadata": {"labels": {"x": "1"}}})).expect(200)
        (await api.delete(core(ns, "secrets", "a"))).expect(200)
        events = [await watch.next() for _ in range(3)]
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert events[0]["object"] == made
    assert events[1]["object"] == changed
    assert events[2]["object"]["metadata"]["labels"] == {"x": "1"}
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions)), "a deletion has a version of its own"


async def test_resume_after_an_event_continues_with_the_next(api: Api, ns: str) -> None:
    start = await version(api, ns)
    for name in "abcd":
        await write(api, ns, name)
    async with api.watch(core(ns, "secrets"), resourceVersion=start) as watch:
        first = await watch.next()
        second = await watch.next()
    assert [first["object"]["metadata"]["name"], second["object"]["metadata"]["name"]] == ["a", "b"]
    (await api.delete(core(ns, "secrets", "a"))).expect(200)
    resumed = second["object"]["metadata"]["resourceVersion"]
    async with api.watch(core(ns, "secrets"), resourceVersion=resumed) as watch:
        assert await watch.take(3) == [("ADDED", "c"), ("ADDED", "d"), ("DELETED", "a")]
        assert await watch.is_quiet()


async def test_resume_after_a_deletion_does_not_repeat_it(api: Api, ns: str) -> None:
    start = await version(api, ns)
    await write(api, ns, "a")
    (await api.delete(core(ns, "secrets", "a"))).expect(200)
    async with api.watch(core(ns, "secrets"), resourceVersion=start) as watch:
        events = [await watch.next(), await watch.next()]
    assert events[1]["type"] == "DELETED"
    await write(api, ns, "b")
    async with api.watch(
        core(ns, "secrets"), resourceVersion=events[1]["object"]["metadata"]["resourceVersion"]
    ) as watch:
        assert await watch.take(1) == [("ADDED", "b")]


# Each in a namespace of its own: version 0 may be answered with a past in which something deleted is still there.
@pytest.mark.parametrize("options", [{}, {"resourceVersion": "0"}], ids=["none", "zero"])
async def test_without_a_version_the_present_comes_first_as_added(api: Api, ns: str, options: dict[str, str]) -> None:
    await write(api, ns, "a")
    await write(api, ns, "b")
    async with api.watch(core(ns, "secrets"), **options) as watch:
        assert sorted(await watch.take(2)) == [("ADDED", "a"), ("ADDED", "b")]
        await write(api, ns, "later")
        assert await watch.take(1) == [("ADDED", "later")]


async def test_only_the_watched_namespace_and_kind_are_seen(api: Api, ns: str) -> None:
    start = await version(api, ns)
    async with api.watch(core(ns, "secrets"), resourceVersion=start) as watch:
        await api.create(core("default", "secrets"), objects.secret(objects.unique("elsewhere")))
        await api.create(core(ns, "configmaps"), config_map("other-kind"))
        await write(api, ns, "mine")
        assert await watch.take(1) == [("ADDED", "mine")]


async def test_a_watch_over_all_namespaces_sees_this_one(api: Api, ns: str) -> None:
    start = await version(api, ns)
    async with api.watch("/api/v1/secrets", resourceVersion=start) as watch:
        await write(api, ns, "a")
        while True:
            event = await watch.next()
            if event["object"]["metadata"]["namespace"] == ns:
                break
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")


async def test_many_watchers_see_the_same_order(api: Api, ns: str) -> None:
    start = await version(api, ns)

    async def follow() -> list[tuple[str, str]]:
        async with api.watch(core(ns, "secrets"), resourceVersion=start) as watch:
            return await watch.take(12)

    followers = [asyncio.create_task(follow()) for _ in range(8)]
    await asyncio.gather(*(write(api, ns, f"s{number}") for number in range(12)))
    orders = await asyncio.gather(*followers)
    assert len(orders[0]) == len(set(orders[0])) == 12
    assert all(order == orders[0] for order in orders)


async def test_deleted_events_carry_the_last_state(api: Api, ns: str) -> None:
    start = await version(api, ns)
    async with api.watch(core(ns, "secrets"), resourceVersion=start) as watch:
        made = await write(api, ns, "a", k="1")
        (await api.delete(core(ns, "secrets", "a"))).expect(200)
        await watch.next()
        event = await watch.next()
    assert event["type"] == "DELETED"
    assert event["object"]["data"] == made["data"]
    assert event["object"]["metadata"]["uid"] == made["metadata"]["uid"]


async def test_the_old_watch_path_still_works(api: Api, ns: str) -> None:
    start = await version(api, ns)
    await write(api, ns, "a")
    async with api.watch(f"/api/v1/watch/namespaces/{ns}/secrets", resourceVersion=start) as watch:
        assert await watch.take(1) == [("ADDED", "a")]


async def test_a_custom_kind_is_watched(api: Api, ns: str) -> None:
    kind = await objects.install(api)
    start = (await api.read(kind.path(ns)))["metadata"]["resourceVersion"]
    async with api.watch(kind.path(ns), resourceVersion=start) as watch:
        await api.create(kind.path(ns), kind.new("w", spec={"a": 1}))
        (await api.patch(kind.path(ns, "w"), {"spec": {"a": 2}})).expect(200)
        events = [await watch.next(), await watch.next()]
    assert [(event["type"], event["object"]["spec"]["a"]) for event in events] == [("ADDED", 1), ("MODIFIED", 2)]


async def test_timeout_seconds_ends_the_watch_cleanly(api: Api, ns: str) -> None:
    start = await version(api, ns)
    await write(api, ns, "a")
    async with api.watch(core(ns, "secrets"), resourceVersion=start, timeoutSeconds=1) as watch:
        events = await watch.ended()
    assert [event["type"] for event in events if event["type"] != "BOOKMARK"] == ["ADDED"]
