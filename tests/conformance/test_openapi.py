"""OpenAPI documents as clients use them: explain, validation, patch metadata, extensions."""

from __future__ import annotations

from tests.conformance.http import Api, Json
from tests.conformance.objects import install, spec_schema
from tests.waiting import until


async def schema(api: Api, path: str, name: str) -> Json:
    return (await api.read(f"/openapi/v3/{path}"))["components"]["schemas"][name]


async def test_the_index_lists_every_group_version(api: Api) -> None:
    paths = (await api.get("/openapi/v3")).json["paths"]
    assert {"api/v1", "apis/apps/v1", "apis/batch/v1", "apis/rbac.authorization.k8s.io/v1"} <= set(paths)
    assert paths["apis/apps/v1"]["serverRelativeURL"].startswith("/openapi/v3/apis/apps/v1?hash=")


async def test_a_group_document_has_schemas_and_paths(api: Api) -> None:
    document = await api.read("/openapi/v3/apis/apps/v1")
    assert document["openapi"].startswith("3.")
    schemas = document["components"]["schemas"]
    deployment = schemas["io.k8s.api.apps.v1.Deployment"]
    assert deployment["x-kubernetes-group-version-kind"] == [{"group": "apps", "kind": "Deployment", "version": "v1"}]
    assert {"apiVersion", "kind", "metadata", "spec", "status"} <= set(deployment["properties"])
    assert schemas["io.k8s.api.apps.v1.DeploymentSpec"]["required"] == ["selector", "template"]
    operation = document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments"]["post"]
    assert operation["x-kubernetes-group-version-kind"] == {"group": "apps", "kind": "Deployment", "version": "v1"}
    assert operation["x-kubernetes-action"] == "post"


async def test_lists_tell_how_they_merge(api: Api) -> None:
    containers = (await schema(api, "api/v1", "io.k8s.api.core.v1.PodSpec"))["properties"]["containers"]
    assert containers["x-kubernetes-list-type"] == "map"
    assert containers["x-kubernetes-list-map-keys"] == ["name"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-patch-strategy"] == "merge"


async def test_the_old_document_has_definitions_and_paths(api: Api) -> None:
    document = await api.read("/openapi/v2")
    assert document["swagger"] == "2.0"
    assert "io.k8s.api.core.v1.Pod" in document["definitions"]
    assert "/api/v1/namespaces/{namespace}/pods" in document["paths"]
    patch = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert "application/apply-patch+yaml" in patch["consumes"]


async def test_dry_run_and_field_validation_are_declared(api: Api) -> None:
    """kubectl refuses --dry-run=server for kinds whose patch does not declare the parameter."""
    document = await api.read("/openapi/v3/api/v1")
    patch = document["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"]["patch"]
    names = {each.get("name") for each in patch["parameters"]}
    assert {"dryRun", "fieldManager", "fieldValidation", "force"} <= names


async def test_a_custom_kind_appears(api: Api) -> None:
    described = {"size": {"type": "integer", "description": "how large it is"}}
    kind = await install(api, spec_schema(described))

    async def published() -> Json:
        reply = await api.get(f"/openapi/v3/apis/{kind.group}/v1")
        return reply.json if reply.status == 200 else None

    document = await until(published, "document of the custom group")
    (found,) = [
        each
        for each in document["components"]["schemas"].values()
        if {"group": kind.group, "kind": "Widget", "version": "v1"} in each.get("x-kubernetes-group-version-kind", [])
    ]
    assert found["properties"]["spec"]["properties"]["size"]["description"] == "how large it is"
    assert "metadata" in found["properties"]
    assert f"/apis/{kind.group}/v1/namespaces/{{namespace}}/widgets" in document["paths"]


async def test_an_unknown_document_is_not_found(api: Api) -> None:
    assert (await api.get("/openapi/v3/apis/nothing.example.com/v1")).status == 404
