"""Refusals as Status objects: code, reason, message, details and causes."""

from __future__ import annotations

from tests.conformance.http import Api, Json
from tests.conformance.objects import apps, config_map, core, deployment, pod, service, usable_namespace


async def test_the_shape_of_a_status(api: Api, ns: str) -> None:
    reply = await api.get(apps(ns, "deployments", "none"))
    assert reply.headers["Content-Type"] == "application/json"
    assert reply.expect(404) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'deployments.apps "none" not found',
        "reason": "NotFound",
        "details": {"name": "none", "group": "apps", "kind": "deployments"},
        "code": 404,
    }


def causes(status: Json) -> set[tuple[str, str]]:
    return {(cause["field"], cause["reason"]) for cause in status["details"]["causes"]}


async def test_invalid_names_every_field(api: Api, ns: str) -> None:
    body = deployment("d")
    body["spec"]["selector"] = {"matchLabels": {"other": "x"}}
    body["spec"]["template"]["spec"]["containers"][0].pop("image")
    status = (await api.post(apps(ns, "deployments"), body)).fails(422, "Invalid")
    assert status["details"]["kind"] == "Deployment"
    assert status["details"]["group"] == "apps"
    assert status["details"]["name"] == "d"
    assert causes(status) == {
        ("spec.template.metadata.labels", "FieldValueInvalid"),
        ("spec.template.spec.containers[0].image", "FieldValueRequired"),
    }
    assert status["message"].startswith('Deployment.apps "d" is invalid: [')


async def test_required_fields_of_built_in_kinds(api: Api, ns: str) -> None:
    await usable_namespace(api, ns)
    body = pod("p")
    body["spec"]["containers"] = []
    status = (await api.post(core(ns, "pods"), body)).fails(422, "Invalid")
    assert ("spec.containers", "FieldValueRequired") in causes(status)
    status = (await api.post(core(ns, "services"), service("s", ports=[]))).fails(422, "Invalid")
    assert causes(status) == {("spec.ports", "FieldValueRequired")}


async def test_an_unsupported_value_lists_what_is_supported(api: Api, ns: str) -> None:
    status = (await api.post(core(ns, "services"), service("s", type="Magic"))).fails(422, "Invalid")
    (cause,) = [each for each in status["details"]["causes"] if each["field"] == "spec.type"]
    assert cause["reason"] == "FieldValueNotSupported"
    assert cause["message"] == (
        'Unsupported value: "Magic": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"'
    )


async def test_immutable_fields(api: Api, ns: str) -> None:
    await api.create(apps(ns, "deployments"), deployment("d"))
    patch = {
        "spec": {
            "selector": {"matchLabels": {"app": "d", "more": "x"}},
            "template": {"metadata": {"labels": {"more": "x"}}},
        }
    }
    status = (await api.patch(apps(ns, "deployments", "d"), patch)).fails(422, "Invalid")
    assert ("spec.selector", "FieldValueInvalid") in causes(status)
    assert "field is immutable" in status["message"]


async def test_broken_json_is_a_bad_request(api: Api, ns: str) -> None:
    for body in (b"{", b"[]", b'"text"', b""):
        reply = await api.post(core(ns, "configmaps"), body)
        assert reply.status in (400, 422), (body, reply)
        assert reply.json["kind"] == "Status"
        assert reply.json["reason"] in ("BadRequest", "Invalid")


async def test_a_wrong_type_is_a_bad_request_naming_the_field(api: Api, ns: str) -> None:
    body = deployment("d")
    body["spec"]["replicas"] = "three"
    status = (await api.post(apps(ns, "deployments"), body)).fails(400, "BadRequest")
    assert 'Deployment in version "v1" cannot be handled as a Deployment' in status["message"]
    assert "replicas" in status["message"]


async def test_the_kind_of_the_body_must_fit_the_path(api: Api, ns: str) -> None:
    status = (await api.post(core(ns, "configmaps"), {**config_map("a"), "kind": "Secret"})).fails(400, "BadRequest")
    assert status["message"].startswith('Secret in version "v1" cannot be handled as a ConfigMap')
    status = (await api.post(core(ns, "configmaps"), {**config_map("a"), "apiVersion": "v7"})).fails(400, "BadRequest")
    assert status["message"].startswith('ConfigMap in version "v7" cannot be handled as a ConfigMap')
    without = config_map("a")
    del without["kind"], without["apiVersion"]
    assert (await api.create(core(ns, "configmaps"), without))["kind"] == "ConfigMap"


async def test_labels_and_annotations_are_checked(api: Api, ns: str) -> None:
    status = (await api.post(core(ns, "configmaps"), config_map("a", labels={"k": "not valid!"}))).fails(422, "Invalid")
    assert causes(status) == {("metadata.labels", "FieldValueInvalid")}
    status = (await api.post(core(ns, "configmaps"), config_map("a", annotations={"bad key": "x"}))).fails(
        422, "Invalid"
    )
    assert causes(status) == {("metadata.annotations", "FieldValueInvalid")}
    long = {"example.com/big": "x" * (256 * 1024 + 1)}
    status = (await api.post(core(ns, "configmaps"), config_map("a", annotations=long))).fails(422, "Invalid")
    assert causes(status) == {("metadata.annotations", "FieldValueTooLong")}
    key = "example.com/big"
    longest = config_map("a", annotations={key: "x" * (256 * 1024 - len(key))})
    assert (await api.create(core(ns, "configmaps"), longest))["metadata"]["name"] == "a"


async def test_retryable_conflicts_differ_from_existing_names(api: Api, ns: str) -> None:
    made = await api.create(core(ns, "configmaps"), config_map("a"))
    (await api.patch(core(ns, "configmaps", "a"), {"data": {"k": "1"}})).expect(200)
    assert (await api.put(core(ns, "configmaps", "a"), made)).fails(409, "Conflict")
    assert (await api.post(core(ns, "configmaps"), config_map("a"))).fails(409, "AlreadyExists")
