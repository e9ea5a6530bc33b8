"""Bookmarks, and lists sent as a watch (sendInitialEvents) with the bookmark that ends them."""

from __future__ import annotations

from tests.conformance import objects
from tests.conformance.http import PARTIAL, Api
from tests.conformance.objects import config_map, core, secret

END = "k8s.io/initial-events-end"
STREAM = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}


async def test_the_initial_state_ends_with_a_marked_bookmark(api: Api, ns: str) -> None:
    for name in "abc":
        await api.create(core(ns, "secrets"), secret(name))
    async with api.watch(core(ns, "secrets"), **STREAM) as watch:
        events = [await watch.next() for _ in range(4)]
        assert [event["type"] for event in events] == ["ADDED"] * 3 + ["BOOKMARK"]
        assert sorted(event["object"]["metadata"]["name"] for event in events[:3]) == ["a", "b", "c"]
        bookmark = events[3]["object"]
        assert bookmark["metadata"]["annotations"] == {END: "true"}
        assert bookmark["kind"] == "Secret"
        assert bookmark["apiVersion"] == "v1"
        assert "name" not in bookmark["metadata"]
        newest = max(int(event["object"]["metadata"]["resourceVersion"]) for event in events[:3])
        assert int(bookmark["metadata"]["resourceVersion"]) >= newest


async def test_after_the_marker_the_watch_goes_on(api: Api, ns: str) -> None:
    await api.create(core(ns, "secrets"), secret("a"))
    async with api.watch(core(ns, "secrets"), **STREAM) as watch:
        assert (await watch.next())["type"] == "ADDED"
        assert (await watch.next())["type"] == "BOOKMARK"
        await api.create(core(ns, "secrets"), secret("b"))
        (await api.delete(core(ns, "secrets", "a"))).expect(200)
        assert await watch.take(2) == [("ADDED", "b"), ("DELETED", "a")]


async def test_an_empty_collection_has_only_the_marker(api: Api, ns: str) -> None:
    async with api.watch(core(ns, "secrets"), **STREAM) as watch:
        event = await watch.next()
    assert event["type"] == "BOOKMARK"
    assert event["object"]["metadata"]["annotations"][END] == "true"


async def test_the_bookmarks_version_resumes_a_plain_watch(api: Api, ns: str) -> None:
    await api.create(core(ns, "secrets"), secret("a"))
    async with api.watch(core(ns, "secrets"), **STREAM) as watch:
        await watch.next()
        bookmark = await watch.next()
    await api.create(core(ns, "secrets"), secret("b"))
    resumed = bookmark["object"]["metadata"]["resourceVersion"]
    async with api.watch(core(ns, "secrets"), resourceVersion=resumed) as watch:
        assert await watch.take(1) == [("ADDED", "b")]


async def test_selectors_filter_the_initial_events(api: Api, ns: str) -> None:
    for name, app in (("a", "web"), ("b", "db")):
        body = secret(name)
        body["metadata"]["labels"] = {"app": app}
        await api.create(core(ns, "secrets"), body)
    async with api.watch(core(ns, "secrets"), labelSelector="app=db", **STREAM) as watch:
        first, second = await watch.next(), await watch.next()
    assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "b")
    assert second["type"] == "BOOKMARK"


async def test_initial_events_need_not_older_than(api: Api, ns: str) -> None:
    reply = await api.get(core(ns, "secrets"), watch=True, sendInitialEvents="true", allowWatchBookmarks="true")
    status = reply.fails(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "resourceVersionMatch"
    reply = await api.get(core(ns, "secrets"), sendInitialEvents="true", resourceVersionMatch="NotOlderThan")
    assert "sendInitialEvents is forbidden for list" in reply.fails(422, "Invalid")["message"]


async def test_initial_events_from_a_known_version(api: Api, ns: str) -> None:
    made = await api.create(core(ns, "configmaps"), config_map("a"))
    version = made["metadata"]["resourceVersion"]
    seen = set()
    async with api.watch(core(ns, "configmaps"), resourceVersion=version, **STREAM) as watch:
        while (event := await watch.next())["type"] != "BOOKMARK":
            seen.add(event["object"]["metadata"]["name"])
    assert "a" in seen
    assert int(event["object"]["metadata"]["resourceVersion"]) >= int(version)


async def test_initial_events_as_metadata_only(api: Api, ns: str) -> None:
    await api.create(core(ns, "secrets"), secret("a", stringData={"k": "v"}))
    async with api.watch(core(ns, "secrets"), accept=PARTIAL, **STREAM) as watch:
        first, marker = await watch.next(), await watch.next()
    assert first["object"]["kind"] == "PartialObjectMetadata"
    assert "data" not in first["object"]
    assert marker["object"]["kind"] == "PartialObjectMetadata"
    assert marker["object"]["metadata"]["annotations"] == {END: "true"}


async def test_custom_kinds_stream_their_lists_too(api: Api, ns: str) -> None:
    kind = await objects.install(api)
    await api.create(kind.path(ns), kind.new("w"))
    async with api.watch(kind.path(ns), **STREAM) as watch:
        first, marker = await watch.next(), await watch.next()
    assert first["object"]["metadata"]["name"] == "w"
    assert marker["object"]["kind"] == "Widget"
    assert marker["object"]["apiVersion"] == kind.api_version
    assert marker["object"]["metadata"]["annotations"] == {END: "true"}


async def test_no_bookmarks_unless_asked_for(api: Api, ns: str) -> None:
    async with api.watch(core(ns, "secrets"), timeoutSeconds=2) as watch:
        assert await watch.ended() == []


async def test_a_bookmark_comes_before_the_server_ends_a_watch(api: Api, ns: str) -> None:
    start = (await api.read(core(ns, "secrets")))["metadata"]["resourceVersion"]
    async with api.watch(
        core(ns, "secrets"), resourceVersion=start, allowWatchBookmarks="true", timeoutSeconds=5
    ) as watch:
        elsewhere = await api.create(core("default", "secrets"), secret(objects.unique("s")))
        events = await watch.ended()
    assert {event["type"] for event in events} == {"BOOKMARK"}
    assert int(events[-1]["object"]["metadata"]["resourceVersion"]) >= int(elsewhere["metadata"]["resourceVersion"])
    assert "annotations" not in events[-1]["object"]["metadata"]
