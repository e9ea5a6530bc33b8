"""Owners and dependents: foreground, background and orphan deletion, and garbage collection."""

from __future__ import annotations

from tests.conformance.http import Api, Json
from tests.conformance.objects import config_map, core, owner
from tests.waiting import until


async def gone(api: Api, path: str) -> None:
    async def is_gone() -> bool:
        return (await api.get(path)).status == 404

    await until(is_gone, f"{path} deleted")


async def family(api: Api, ns: str, *, blocks: bool = False, **child: Json) -> tuple[str, str]:
    """The paths of an owner and of its dependent."""
    parent = await api.create(core(ns, "configmaps"), config_map("parent"))
    await api.create(
        core(ns, "configmaps"), config_map("child", ownerReferences=[owner(parent, blocks=blocks)], **child)
    )
    return core(ns, "configmaps", "parent"), core(ns, "configmaps", "child")


async def test_background_removes_the_owner_now_and_dependents_later(api: Api, ns: str) -> None:
    parent, child = await family(api, ns)
    status = (await api.delete(parent, {"propagationPolicy": "Background"})).expect(200)
    assert status["kind"] == "Status"
    (await api.get(parent)).fails(404, "NotFound")
    await gone(api, child)


async def test_the_default_is_background(api: Api, ns: str) -> None:
    parent, child = await family(api, ns)
    (await api.delete(parent)).expect(200)
    await gone(api, child)


async def test_foreground_waits_for_blocking_dependents(api: Api, ns: str) -> None:
    parent, child = await family(api, ns, blocks=True, finalizers=["example.com/hold"])
    marked = (await api.delete(parent, {"propagationPolicy": "Foreground"})).expect(200)
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert marked["metadata"]["deletionTimestamp"]

    async def child_marked() -> bool:
        return "deletionTimestamp" in (await api.read(child))["metadata"]

    await until(child_marked, "dependent marked")
    assert (await api.get(parent)).status == 200
    (await api.patch(child, {"metadata": {"finalizers": None}})).expect(200)
    await gone(api, parent)


async def test_foreground_does_not_wait_for_dependents_that_do_not_block(api: Api, ns: str) -> None:
    parent, child = await family(api, ns, blocks=False, finalizers=["example.com/hold"])
    (await api.delete(parent, {"propagationPolicy": "Foreground"})).expect(200)
    await gone(api, parent)
    assert (await api.get(child)).status == 200
    (await api.patch(child, {"metadata": {"finalizers": None}})).expect(200)


async def test_orphan_leaves_dependents_without_the_reference(api: Api, ns: str) -> None:
    parent, child = await family(api, ns)
    marked = (await api.delete(parent, {"propagationPolicy": "Orphan"})).expect(200)
    assert marked["metadata"]["finalizers"] == ["orphan"]
    await gone(api, parent)
    assert "ownerReferences" not in (await api.read(child))["metadata"]


async def test_the_policy_may_come_as_a_query(api: Api, ns: str) -> None:
    parent, child = await family(api, ns)
    (await api.delete(parent, propagationPolicy="Orphan")).expect(200)
    await gone(api, parent)
    assert (await api.get(child)).status == 200


async def test_orphan_dependents_is_the_old_word(api: Api, ns: str) -> None:
    parent, child = await family(api, ns)
    (await api.delete(parent, {"orphanDependents": True})).expect(200)
    await gone(api, parent)
    assert "ownerReferences" not in (await api.read(child))["metadata"]
    both = {"orphanDependents": True, "propagationPolicy": "Orphan"}
    (await api.delete(child, both)).fails(422, "Invalid")


async def test_an_unknown_policy_is_invalid(api: Api, ns: str) -> None:
    parent, _ = await family(api, ns)
    (await api.delete(parent, {"propagationPolicy": "Sideways"})).fails(422, "Invalid")
    assert (await api.get(parent)).status == 200


async def test_a_dependent_of_two_owners_lives_until_both_are_gone(api: Api, ns: str) -> None:
    first = await api.create(core(ns, "configmaps"), config_map("first"))
    second = await api.create(core(ns, "configmaps"), config_map("second"))
    await api.create(core(ns, "configmaps"), config_map("child", ownerReferences=[owner(first), owner(second)]))
    child = core(ns, "configmaps", "child")
    (await api.delete(core(ns, "configmaps", "first"))).expect(200)

    async def let_go() -> bool:
        return [each["name"] for each in (await api.read(child))["metadata"]["ownerReferences"]] == ["second"]

    await until(let_go, "reference to the absent owner removed")
    (await api.delete(core(ns, "configmaps", "second"))).expect(200)
    await gone(api, child)


async def test_a_dependent_of_an_owner_that_never_was_is_collected(api: Api, ns: str) -> None:
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "ghost",
        "uid": "11111111-2222-3333-4444-555555555555",
    }
    await api.create(core(ns, "configmaps"), config_map("child", ownerReferences=[reference]))
    await gone(api, core(ns, "configmaps", "child"))


async def test_chains_of_owners_fall_together(api: Api, ns: str) -> None:
    held = await api.create(core(ns, "configmaps"), config_map("c0"))
    for number in range(1, 4):
        held = await api.create(core(ns, "configmaps"), config_map(f"c{number}", ownerReferences=[owner(held)]))
    (await api.delete(core(ns, "configmaps", "c0"), {"propagationPolicy": "Foreground"})).expect(200)
    for number in range(4):
        await gone(api, core(ns, "configmaps", f"c{number}"))


async def test_an_incomplete_owner_reference_is_invalid(api: Api, ns: str) -> None:
    broken = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": ""}
    status = (await api.post(core(ns, "configmaps"), config_map("a", ownerReferences=[broken]))).fails(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "metadata.ownerReferences.uid"
    controllers = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name, "controller": True} for name in "xy"
    ]
    status = (await api.post(core(ns, "configmaps"), config_map("a", ownerReferences=controllers))).fails(
        422, "Invalid"
    )
    assert "Only one reference can have Controller set to true" in status["message"]
