"""Dry run: every verb answers as if, and nothing is stored, watched, allocated or counted."""

from __future__ import annotations

from tests.conformance import objects
from tests.conformance.http import JSON_PATCH, STRATEGIC_PATCH, Api
from tests.conformance.objects import apps, config_map, core, deployment, service


async def test_create(api: Api, ns: str) -> None:
    made = await api.create(core(ns, "configmaps"), config_map("a", {"k": "1"}), dryRun="All")
    assert made["metadata"]["uid"]
    assert made["metadata"]["creationTimestamp"]
    assert "resourceVersion" not in made["metadata"]
    (await api.get(core(ns, "configmaps", "a"))).fails(404, "NotFound")


async def test_update(api: Api, ns: str) -> None:
    held = await api.create(core(ns, "configmaps"), config_map("a", {"k": "1"}))
    updated = (await api.put(core(ns, "configmaps", "a"), {**held, "data": {"k": "2"}}, dryRun="All")).expect(200)
    assert updated["data"] == {"k": "2"}
    assert updated["metadata"]["resourceVersion"] == held["metadata"]["resourceVersion"]
    assert await api.read(core(ns, "configmaps", "a")) == held


async def test_patches(api: Api, ns: str) -> None:
    held = await api.create(core(ns, "configmaps"), config_map("a", {"k": "1"}))
    target = core(ns, "configmaps", "a")
    assert (await api.patch(target, {"data": {"k": "2"}}, dryRun="All")).expect(200)["data"] == {"k": "2"}
    assert (await api.patch(target, {"data": {"k": "3"}}, STRATEGIC_PATCH, dryRun="All")).expect(200)["data"] == {
        "k": "3"
    }
    operations = [{"op": "replace", "path": "/data/k", "value": "4"}]
    assert (await api.patch(target, operations, JSON_PATCH, dryRun="All")).expect(200)["data"] == {"k": "4"}
    assert await api.read(target) == held


async def test_delete(api: Api, ns: str) -> None:
    held = await api.create(core(ns, "configmaps"), config_map("a"))
    (await api.delete(core(ns, "configmaps", "a"), dryRun="All")).expect(200)
    (await api.delete(core(ns, "configmaps", "a"), {"dryRun": ["All"]})).expect(200)
    assert await api.read(core(ns, "configmaps", "a")) == held


async def test_refusals_are_the_same(api: Api, ns: str) -> None:
    await api.create(core(ns, "configmaps"), config_map("a"))
    (await api.post(core(ns, "configmaps"), config_map("a"), dryRun="All")).fails(409, "AlreadyExists")
    (await api.post(core(ns, "configmaps"), config_map("Bad_"), dryRun="All")).fails(422, "Invalid")
    stale = config_map("a", {"k": "1"}, resourceVersion="1")
    (await api.put(core(ns, "configmaps", "a"), stale, dryRun="All")).fails(409, "Conflict")
    (await api.delete(core(ns, "configmaps", "none"), dryRun="All")).fails(404, "NotFound")


async def test_an_unknown_value_is_invalid(api: Api, ns: str) -> None:
    status = (await api.post(core(ns, "configmaps"), config_map("a"), dryRun="Some")).fails(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "dryRun"


async def test_watchers_see_nothing(api: Api, ns: str) -> None:
    start = (await api.read(core(ns, "secrets")))["metadata"]["resourceVersion"]
    async with api.watch(core(ns, "secrets"), resourceVersion=start) as watch:
        await api.create(core(ns, "secrets"), objects.secret("a"), dryRun="All")
        await api.create(core(ns, "secrets"), objects.secret("b"))
        assert await watch.take(1) == [("ADDED", "b")]


async def test_defaults_are_shown(api: Api, ns: str) -> None:
    body = deployment("d")
    del body["spec"]["replicas"]
    made = await api.create(apps(ns, "deployments"), body, dryRun="All")
    assert made["spec"]["replicas"] == 1
    assert made["spec"]["strategy"]["type"] == "RollingUpdate"


async def test_node_ports_stay_free(api: Api, ns: str) -> None:
    first = await api.create(core(ns, "services"), service("a", type="NodePort"))
    port = first["spec"]["ports"][0]["nodePort"]
    (await api.delete(core(ns, "services", "a"))).expect(200)
    ports = [{"name": "http", "port": 80, "nodePort": port}]
    await api.create(core(ns, "services"), service("b", type="NodePort", ports=ports), dryRun="All")
    await api.create(core(ns, "services"), service("c", type="NodePort", ports=ports))


async def test_subresources(api: Api, ns: str) -> None:
    await api.create(apps(ns, "deployments"), deployment("d"))
    scaled = (await api.patch(apps(ns, "deployments", "d", "scale"), {"spec": {"replicas": 3}}, dryRun="All")).expect(
        200
    )
    assert scaled["spec"]["replicas"] == 3
    assert (await api.read(apps(ns, "deployments", "d")))["spec"]["replicas"] == 0
