"""JSON merge patch (RFC 7386): null removes, lists are replaced whole, and the version may be stated."""

from __future__ import annotations

import asyncio

from tests.conformance import objects
from tests.conformance.http import MERGE_PATCH, Api
from tests.conformance.objects import apps, config_map, core, deployment


async def test_null_removes_and_values_are_merged(api: Api, ns: str) -> None:
    await api.create(core(ns, "configmaps"), config_map("a", {"keep": "1", "drop": "1"}, labels={"l": "1"}))
    patch = {"data": {"drop": None, "new": "2"}, "metadata": {"labels": {"m": "2"}}}
    patched = (await api.patch(core(ns, "configmaps", "a"), patch)).expect(200)
    assert patched["data"] == {"keep": "1", "new": "2"}
    assert patched["metadata"]["labels"] == {"l": "1", "m": "2"}


async def test_a_list_is_replaced_whole(api: Api, ns: str) -> None:
    await api.create(apps(ns, "deployments"), deployment("d"))
    containers = [{"name": "other", "image": "example/other:1"}]
    patch = {"spec": {"template": {"spec": {"containers": containers}}}}
    patched = (await api.patch(apps(ns, "deployments", "d"), patch)).expect(200)
    assert [each["name"] for each in patched["spec"]["template"]["spec"]["containers"]] == ["other"]


async def test_null_on_a_whole_map_removes_it(api: Api, ns: str) -> None:
    await api.create(core(ns, "configmaps"), config_map("a", {"k": "1"}, annotations={"x": "1"}))
    patched = (await api.patch(core(ns, "configmaps", "a"), {"data": None, "metadata": {"annotations": None}})).expect(
        200
    )
    assert "data" not in patched
    assert "annotations" not in patched["metadata"]


async def test_a_stated_old_version_conflicts(api: Api, ns: str) -> None:
    made = await api.create(core(ns, "configmaps"), config_map("a", {"k": "1"}))
    (await api.patch(core(ns, "configmaps", "a"), {"data": {"k": "2"}})).expect(200)
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"k": "3"}}
    (await api.patch(core(ns, "configmaps", "a"), stale)).fails(409, "Conflict")
    assert (await api.read(core(ns, "configmaps", "a")))["data"] == {"k": "2"}


async def test_a_patch_that_changes_nothing_keeps_the_version(api: Api, ns: str) -> None:
    made = await api.create(core(ns, "configmaps"), config_map("a", {"k": "1"}))
    patched = (await api.patch(core(ns, "configmaps", "a"), {"data": {"k": "1"}})).expect(200)
    assert patched["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_concurrent_patches_of_different_keys_all_land(api: Api, ns: str) -> None:
    await api.create(core(ns, "configmaps"), config_map("a"))
    patches = [{"data": {f"k{number}": "1"}} for number in range(10)]
    replies = await asyncio.gather(*(api.patch(core(ns, "configmaps", "a"), patch) for patch in patches))
    assert {reply.status for reply in replies} == {200}
    assert len((await api.read(core(ns, "configmaps", "a")))["data"]) == 10


async def test_name_and_namespace_cannot_be_patched(api: Api, ns: str) -> None:
    await api.create(core(ns, "configmaps"), config_map("a"))
    (await api.patch(core(ns, "configmaps", "a"), {"metadata": {"name": "b"}})).fails(400, "BadRequest")
    (await api.patch(core(ns, "configmaps", "a"), {"metadata": {"namespace": "default"}})).fails(400, "BadRequest")


async def test_a_custom_object_takes_merge_patches(api: Api, ns: str) -> None:
    kind = await objects.install(api)
    await api.create(kind.path(ns), kind.new("w", spec={"list": [1, 2], "map": {"a": 1, "b": 2}}))
    patch = {"spec": {"list": [3], "map": {"a": None, "c": 3}}}
    patched = (await api.patch(kind.path(ns, "w"), patch, MERGE_PATCH)).expect(200)
    assert patched["spec"] == {"list": [3], "map": {"b": 2, "c": 3}}


async def test_a_patch_with_a_wrong_type_is_refused(api: Api, ns: str) -> None:
    await api.create(core(ns, "configmaps"), config_map("a"))
    reply = await api.patch(core(ns, "configmaps", "a"), {"data": {"k": 5}})
    assert reply.status in (400, 422), reply
    assert reply.json["kind"] == "Status"
