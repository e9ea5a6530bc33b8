"""The scale subresource of built-in and custom kinds."""

from __future__ import annotations

from tests.conformance import objects
from tests.conformance.http import Api, Json
from tests.conformance.objects import apps, deployment


async def scalable(api: Api, ns: str, **scale: str) -> objects.CustomKind:
    paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", **scale}
    schema = objects.spec_schema({"replicas": {"type": "integer"}, "selector": {"type": "string"}})
    kind = await objects.install(api, schema, subresources={"status": {}, "scale": paths})
    await api.create(kind.path(ns), kind.new("w", spec={"replicas": 2}))
    return kind


async def test_a_deployment_is_read_as_a_scale(api: Api, ns: str) -> None:
    made = await api.create(apps(ns, "deployments"), deployment("d", 0))
    scale = await api.read(apps(ns, "deployments", "d", "scale"))
    assert scale["kind"] == "Scale"
    assert scale["apiVersion"] == "autoscaling/v1"
    assert scale["spec"] == {}
    assert scale["status"] == {"replicas": 0, "selector": "app=d"}
    assert scale["metadata"]["name"] == "d"
    assert scale["metadata"]["uid"] == made["metadata"]["uid"]


def stateful_set(name: str) -> Json:
    """A kind with a scale that no running controller writes to in between."""
    body = deployment(name)
    body["kind"] = "StatefulSet"
    body["spec"]["serviceName"] = name
    return body


async def test_an_update_of_the_scale_changes_replicas(api: Api, ns: str) -> None:
    await api.create(apps(ns, "statefulsets"), stateful_set("s"))
    path = apps(ns, "statefulsets", "s", "scale")
    scale = await api.read(path)
    changed = (await api.put(path, {**scale, "spec": {"replicas": 3}})).expect(200)
    assert changed["spec"] == {"replicas": 3}
    held = await api.read(apps(ns, "statefulsets", "s"))
    assert held["spec"]["replicas"] == 3
    assert held["metadata"]["generation"] == 2


async def test_a_patch_of_the_scale(api: Api, ns: str) -> None:
    await api.create(apps(ns, "replicasets"), {**deployment("r", 1), "kind": "ReplicaSet"})
    path = apps(ns, "replicasets", "r", "scale")
    assert (await api.patch(path, {"spec": {"replicas": 0}})).expect(200)["kind"] == "Scale"
    assert (await api.read(apps(ns, "replicasets", "r")))["spec"]["replicas"] == 0


async def test_an_old_version_conflicts(api: Api, ns: str) -> None:
    await api.create(apps(ns, "statefulsets"), stateful_set("s"))
    path = apps(ns, "statefulsets", "s", "scale")
    scale = await api.read(path)
    (await api.patch(path, {"spec": {"replicas": 2}})).expect(200)
    (await api.put(path, {**scale, "spec": {"replicas": 4}})).fails(409, "Conflict")


async def test_a_negative_number_is_invalid(api: Api, ns: str) -> None:
    await api.create(apps(ns, "deployments"), deployment("d", 0))
    status = (await api.patch(apps(ns, "deployments", "d", "scale"), {"spec": {"replicas": -1}})).fails(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "spec.replicas"


async def test_a_custom_kind_scales_by_its_paths(api: Api, ns: str) -> None:
    kind = await scalable(api, ns, labelSelectorPath=".status.selector")
    path = kind.path(ns, "w", "scale")
    status: Json = {"replicas": 1, "selector": "app=w"}
    (await api.patch(kind.path(ns, "w", "status"), {"status": status})).expect(200)
    scale = await api.read(path)
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 1, "selector": "app=w"}
    changed = (await api.put(path, {**scale, "spec": {"replicas": 5}})).expect(200)
    assert changed["spec"] == {"replicas": 5}
    held = await api.read(kind.path(ns, "w"))
    assert held["spec"]["replicas"] == 5
    assert held["metadata"]["generation"] == 2
    assert held["status"] == status


async def test_a_custom_kind_without_replicas_has_no_scale_yet(api: Api, ns: str) -> None:
    kind = await scalable(api, ns)
    await api.create(kind.path(ns), kind.new("empty", spec={}))
    reply = await api.get(kind.path(ns, "empty", "scale"))
    assert reply.status in (404, 500), reply
    (await api.patch(kind.path(ns, "empty", "scale"), {"spec": {"replicas": 3}})).expect(200)
    assert (await api.read(kind.path(ns, "empty")))["spec"]["replicas"] == 3
