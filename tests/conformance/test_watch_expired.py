"""Watches and lists from versions the server no longer has: 410, and how it is said."""

from __future__ import annotations

from tests.conformance.conftest import new_namespace
from tests.conformance.http import Api, Json
from tests.conformance.objects import core, unique
from tests.conformance.test_pagination import template
from tests.waiting import until


async def expire(api: Api, ns: str, since: str) -> None:
    """Write and forget until the list at `since` has expired."""

    async def gone() -> bool:
        for _ in range(3):
            touch = {"metadata": {"annotations": {"t": unique("t")}}}
            (await api.patch(core(ns, "podtemplates", "p"), touch)).expect(200)
        api.server.forget_history()
        reply = await api.get(core(ns, "podtemplates"), resourceVersion=since, resourceVersionMatch="Exact")
        return reply.status == 410

    await until(gone, f"version {since} forgotten")


async def start(api: Api) -> tuple[str, str]:
    """A namespace with one object, and a version before its last change."""
    ns = await new_namespace(api)
    made = await api.create(core(ns, "podtemplates"), template("p"))
    return ns, made["metadata"]["resourceVersion"]


async def first_event(api: Api, ns: str, version: str, **options: str) -> Json:
    async with api.watch(core(ns, "podtemplates"), resourceVersion=version, **options) as watch:
        return await watch.next()


async def test_a_watch_from_a_forgotten_version_gets_an_error_event(forgetful: Api) -> None:
    ns, old = await start(forgetful)
    await expire(forgetful, ns, old)
    event = await first_event(forgetful, ns, old)
    assert event["type"] == "ERROR"
    assert event["object"]["code"] == 410, event["object"]["message"]
    status = event["object"]
    assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure")
    assert status["code"] == 410
    assert status["reason"] in ("Expired", "Gone")


async def test_the_stream_ends_after_the_error_event(forgetful: Api) -> None:
    ns, old = await start(forgetful)
    await expire(forgetful, ns, old)
    async with forgetful.watch(core(ns, "podtemplates"), resourceVersion=old) as watch:
        events = await watch.ended()
    assert [event["type"] for event in events] == ["ERROR"]


async def test_bookmarks_asked_for_do_not_hide_the_error(forgetful: Api) -> None:
    ns, old = await start(forgetful)
    await expire(forgetful, ns, old)
    event = await first_event(forgetful, ns, old, allowWatchBookmarks="true")
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410), event["object"]["message"]


async def test_after_410_a_fresh_list_and_watch_works(forgetful: Api) -> None:
    ns, old = await start(forgetful)
    await expire(forgetful, ns, old)
    fresh = await forgetful.read(core(ns, "podtemplates"))
    assert [item["metadata"]["name"] for item in fresh["items"]] == ["p"]
    async with forgetful.watch(core(ns, "podtemplates"), resourceVersion=fresh["metadata"]["resourceVersion"]) as watch:
        await forgetful.create(core(ns, "podtemplates"), template("q"))
        assert await watch.take(1) == [("ADDED", "q")]


async def test_a_running_watch_survives_the_forgetting(forgetful: Api) -> None:
    ns, old = await start(forgetful)
    async with forgetful.watch(core(ns, "podtemplates"), resourceVersion=old) as watch:
        (await forgetful.patch(core(ns, "podtemplates", "p"), {"metadata": {"labels": {"is": "seen"}}})).expect(200)
        assert await watch.take(1) == [("MODIFIED", "p")]
        await expire(forgetful, ns, old)
        await forgetful.create(core(ns, "podtemplates"), template("late"))
        while (event := await watch.next_change())["object"]["metadata"]["name"] == "p":
            assert event["type"] == "MODIFIED"
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "late")


async def test_an_exact_list_of_a_forgotten_version_says_expired(forgetful: Api) -> None:
    ns, old = await start(forgetful)
    await expire(forgetful, ns, old)
    reply = await forgetful.get(core(ns, "podtemplates"), resourceVersion=old, resourceVersionMatch="Exact")
    status = reply.fails(410, "Expired")
    assert "too old" in status["message"]
    not_older = await forgetful.names(
        core(ns, "podtemplates"), resourceVersion=old, resourceVersionMatch="NotOlderThan"
    )
    assert not_older == ["p"]


async def test_a_version_that_is_no_number_is_refused(api: Api, ns: str) -> None:
    reply = await api.get(core(ns, "configmaps"), watch=True, resourceVersion="yesterday")
    assert reply.status in (400, 500), reply
    assert reply.json["status"] == "Failure" if "status" in reply.json else reply.json["type"] == "ERROR"
