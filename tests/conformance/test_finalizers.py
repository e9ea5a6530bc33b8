"""Finalizers: deletion waits for them, and what may still change meanwhile."""

from __future__ import annotations

from tests.conformance import objects
from tests.conformance.http import JSON_PATCH, Api, Json
from tests.conformance.objects import config_map, core

ONE, TWO = "example.com/one", "example.com/two"


async def held(api: Api, ns: str, *finalizers: str) -> Json:
    """An object under deletion that its finalizers keep."""
    await api.create(core(ns, "configmaps"), config_map("a", {"k": "1"}, finalizers=list(finalizers)))
    return (await api.delete(core(ns, "configmaps", "a"))).expect(200)


async def test_deletion_only_marks_an_object_with_finalizers(api: Api, ns: str) -> None:
    marked = await held(api, ns, ONE)
    assert marked["kind"] == "ConfigMap", "the answer is the object, not a Status"
    assert marked["metadata"]["deletionTimestamp"]
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    assert marked["metadata"]["finalizers"] == [ONE]
    assert (await api.read(core(ns, "configmaps", "a")))["metadata"]["deletionTimestamp"]


async def test_the_last_finalizer_removed_deletes_the_object(api: Api, ns: str) -> None:
    await held(api, ns, ONE, TWO)
    target = core(ns, "configmaps", "a")
    (await api.patch(target, [{"op": "remove", "path": "/metadata/finalizers/0"}], JSON_PATCH)).expect(200)
    assert (await api.read(target))["metadata"]["finalizers"] == [TWO]
    (await api.patch(target, {"metadata": {"finalizers": None}})).expect(200)
    (await api.get(target)).fails(404, "NotFound")


async def test_watchers_see_the_mark_then_the_deletion(api: Api, ns: str) -> None:
    start = (await api.read(core(ns, "configmaps")))["metadata"]["resourceVersion"]
    async with api.watch(core(ns, "configmaps"), resourceVersion=start, fieldSelector="metadata.name=a") as watch:
        await held(api, ns, ONE)
        (await api.patch(core(ns, "configmaps", "a"), {"metadata": {"finalizers": []}})).expect(200)
        events = [await watch.next() for _ in range(3)]
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert "deletionTimestamp" in events[1]["object"]["metadata"]


async def test_no_finalizer_can_be_added_under_deletion(api: Api, ns: str) -> None:
    await held(api, ns, ONE)
    status = (await api.patch(core(ns, "configmaps", "a"), {"metadata": {"finalizers": [ONE, TWO]}})).fails(
        422, "Invalid"
    )
    assert "no new finalizers can be added if the object is being deleted" in status["message"]
    assert status["details"]["causes"][0]["field"] == "metadata.finalizers"


async def test_other_fields_may_change_under_deletion(api: Api, ns: str) -> None:
    await held(api, ns, ONE)
    changed = (await api.patch(core(ns, "configmaps", "a"), {"data": {"k": "2"}})).expect(200)
    assert changed["data"] == {"k": "2"}
    assert changed["metadata"]["deletionTimestamp"]


async def test_the_deletion_mark_cannot_be_taken_back(api: Api, ns: str) -> None:
    marked = await held(api, ns, ONE)
    body = config_map("a", {"k": "3"}, finalizers=[ONE])
    updated = (await api.put(core(ns, "configmaps", "a"), body)).expect(200)
    assert updated["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]


async def test_deleting_twice_keeps_the_first_mark(api: Api, ns: str) -> None:
    marked = await held(api, ns, ONE)
    again = (await api.delete(core(ns, "configmaps", "a"))).expect(200)
    assert again["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]
    assert again["metadata"]["resourceVersion"] == marked["metadata"]["resourceVersion"]


async def test_the_name_is_taken_until_the_end(api: Api, ns: str) -> None:
    await held(api, ns, ONE)
    status = (await api.post(core(ns, "configmaps"), config_map("a"))).fails(409, "AlreadyExists")
    assert status["message"] == 'object is being deleted: configmaps "a" already exists'


async def test_a_finalizer_needs_a_qualified_name(api: Api, ns: str) -> None:
    status = (await api.post(core(ns, "configmaps"), config_map("a", finalizers=["Not Valid/x y"]))).fails(
        422, "Invalid"
    )
    assert status["details"]["causes"][0]["field"] == "metadata.finalizers"


async def test_deletion_of_a_custom_object_raises_its_generation(api: Api, ns: str) -> None:
    kind = await objects.install(api)
    body = kind.new("w")
    body["metadata"]["finalizers"] = [ONE]
    await api.create(kind.path(ns), body)
    marked = (await api.delete(kind.path(ns, "w"))).expect(200)
    assert marked["metadata"]["generation"] == 2
    (await api.patch(kind.path(ns, "w"), {"metadata": {"finalizers": None}})).expect(200)
    (await api.get(kind.path(ns, "w"))).fails(404, "NotFound")
