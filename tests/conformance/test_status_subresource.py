"""Spec and status are written through different doors; generation counts changes of the spec only."""

from __future__ import annotations

from tests.conformance import objects
from tests.conformance.http import JSON_PATCH, Api, Json
from tests.conformance.objects import apps, core, deployment


async def widget(api: Api, ns: str) -> tuple[objects.CustomKind, Json]:
    kind = await objects.install(api, objects.spec_schema({"size": {"type": "integer"}}), subresources={"status": {}})
    made = await api.create(kind.path(ns), kind.new("w", spec={"size": 1}, status={"seen": 1}))
    return kind, made


async def test_status_given_at_creation_is_dropped(api: Api, ns: str) -> None:
    _, made = await widget(api, ns)
    assert "status" not in made
    assert made["metadata"]["generation"] == 1
    body = deployment("d")
    body["status"] = {"replicas": 5}
    made = await api.create(apps(ns, "deployments"), body)
    assert "replicas" not in made.get("status", {})


async def test_the_main_resource_ignores_status(api: Api, ns: str) -> None:
    kind, made = await widget(api, ns)
    (await api.put(kind.path(ns, "w", "status"), {**made, "status": {"seen": 1}})).expect(200)
    held = await api.read(kind.path(ns, "w"))
    changed = (await api.put(kind.path(ns, "w"), {**held, "spec": {"size": 2}, "status": {"seen": 99}})).expect(200)
    assert changed["spec"] == {"size": 2}
    assert changed["status"] == {"seen": 1}
    assert changed["metadata"]["generation"] == 2


async def test_the_status_resource_ignores_spec_and_most_metadata(api: Api, ns: str) -> None:
    kind, made = await widget(api, ns)
    body = {**made, "spec": {"size": 99}, "status": {"seen": 3}}
    body["metadata"] = {**made["metadata"], "labels": {"x": "1"}, "finalizers": ["example.com/f"]}
    changed = (await api.put(kind.path(ns, "w", "status"), body)).expect(200)
    assert changed["spec"] == {"size": 1}
    assert changed["status"] == {"seen": 3}
    assert changed["metadata"]["generation"] == 1
    assert "labels" not in changed["metadata"]
    assert "finalizers" not in changed["metadata"]


async def test_generation_counts_spec_changes_only(api: Api, ns: str) -> None:
    kind, _ = await widget(api, ns)
    target = kind.path(ns, "w")
    patches: list[Json] = [{"metadata": {"labels": {"a": "1"}}}, *({"spec": {"size": size}} for size in (2, 2, 3))]
    generations = [(await api.patch(target, patch)).expect(200)["metadata"]["generation"] for patch in patches]
    assert generations == [1, 2, 2, 3]


async def test_generation_cannot_be_set(api: Api, ns: str) -> None:
    kind, made = await widget(api, ns)
    changed = (await api.patch(kind.path(ns, "w"), {"metadata": {"generation": 40, "labels": {"x": "1"}}})).expect(200)
    assert changed["metadata"]["generation"] == 1
    made = await api.create(apps(ns, "deployments"), deployment("d", generation=7))
    assert made["metadata"]["generation"] == 1


async def test_deployments_have_the_same_doors(api: Api, ns: str) -> None:
    await api.create(apps(ns, "deployments"), deployment("d"))
    target = apps(ns, "deployments", "d")
    patch = {"spec": {"paused": True}, "status": {"collisionCount": 7}}
    through_main = (await api.patch(target, patch)).expect(200)
    assert "collisionCount" not in through_main["status"]
    assert through_main["spec"]["paused"] is True
    through_status = (
        await api.patch(f"{target}/status", {"spec": {"paused": False}, "status": {"collisionCount": 3}})
    ).expect(200)
    assert through_status["spec"]["paused"] is True
    assert through_status["status"]["collisionCount"] == 3


async def test_without_the_subresource_status_is_plain_content(api: Api, ns: str) -> None:
    kind = await objects.install(api)
    made = await api.create(kind.path(ns), kind.new("w", spec={}, status={"seen": 1}))
    assert made["status"] == {"seen": 1}
    assert made["metadata"]["generation"] == 1
    changed = (await api.patch(kind.path(ns, "w"), {"status": {"seen": 2}})).expect(200)
    assert changed["metadata"]["generation"] == 2
    (await api.get(kind.path(ns, "w", "status"))).expect(404)


async def test_get_of_status_gives_the_whole_object(api: Api, ns: str) -> None:
    kind, made = await widget(api, ns)
    assert await api.read(kind.path(ns, "w", "status")) == made


async def test_status_takes_json_patch_and_checks_versions(api: Api, ns: str) -> None:
    kind, made = await widget(api, ns)
    target = kind.path(ns, "w", "status")
    operations = [
        {"op": "add", "path": "/status", "value": {"seen": 5}},
        {"op": "add", "path": "/spec/size", "value": 9},
    ]
    patched = (await api.patch(target, operations, JSON_PATCH)).expect(200)
    assert (patched["status"], patched["spec"]) == ({"seen": 5}, {"size": 1})
    (await api.put(target, {**made, "status": {"seen": 6}})).fails(409, "Conflict")


async def test_node_status_and_spec(api: Api) -> None:
    name = objects.unique("node")
    await api.create("/api/v1/nodes", objects.node(name))
    path = f"/api/v1/nodes/{name}"
    (await api.patch(f"{path}/status", {"status": {"capacity": {"cpu": "4"}}, "spec": {"unschedulable": True}})).expect(
        200
    )
    held = await api.read(path)
    assert held["status"]["capacity"] == {"cpu": "4"}
    assert "unschedulable" not in held["spec"]


async def test_status_cannot_be_created_or_deleted(api: Api, ns: str) -> None:
    kind, made = await widget(api, ns)
    (await api.post(kind.path(ns, "w", "status"), made)).fails(405, "MethodNotAllowed")
    (await api.delete(kind.path(ns, "w", "status"))).fails(405, "MethodNotAllowed")
    (await api.delete(core(ns, "pods", "p", "status"))).fails(405, "MethodNotAllowed")
