"""OpenAPI documents: whole, stable under their hash, with custom kinds and with texts where there are any."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.realserver import RealServer
from tests.apiserver.test_kinds import widget_definition

from bedplate.apiserver import facts, kinds
from bedplate.apiserver.documents import openapi

REF = "#/components/schemas/"


@pytest.fixture(scope="module")
def table() -> facts.Facts:
    return facts.load()


@pytest.fixture
def live(table: facts.Facts) -> kinds.Kinds:
    return kinds.Kinds(table.resources())


@pytest.fixture
def documents(live: kinds.Kinds, table: facts.Facts) -> openapi.OpenAPI:
    return openapi.OpenAPI(live, table)


def document(documents: openapi.OpenAPI, path: str) -> dict[str, Any]:
    found = documents.document(path)
    assert found is not None
    parsed: dict[str, Any] = json.loads(found[0])
    return parsed


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref" and isinstance(inner, str):
                yield inner
            else:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_every_document_of_the_index_is_closed_under_its_references(documents: openapi.OpenAPI) -> None:
    index = json.loads(documents.index())["paths"]
    assert {"api/v1", "apis/apps/v1", "apis/apiextensions.k8s.io/v1"} <= set(index)
    for path, entry in index.items():
        found = documents.document(path)
        assert found is not None
        assert entry["serverRelativeURL"] == f"/openapi/v3/{path}?hash={found[1]}"
        parsed = json.loads(found[0])
        known = {REF + name for name in parsed["components"]["schemas"]}
        assert set(references(parsed)) <= known, path


def test_kubectl_finds_field_validation_for_a_kind(documents: openapi.OpenAPI) -> None:
    paths = document(documents, "apis/apps/v1")["paths"]
    patch = paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"]
    assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "apps", "version": "v1", "kind": "Deployment"}
    assert patch["operationId"] == "patchAppsV1NamespacedDeployment"


def test_schemas_carry_what_merging_needs(documents: openapi.OpenAPI) -> None:
    schemas = document(documents, "api/v1")["components"]["schemas"]
    ports = schemas["io.k8s.api.core.v1.ServiceSpec"]["properties"]["ports"]
    assert ports["x-kubernetes-list-map-keys"] == ["port", "protocol"]
    assert ports["x-kubernetes-patch-merge-key"] == "port"
    pod = schemas["io.k8s.api.core.v1.Pod"]
    assert pod["x-kubernetes-group-version-kind"] == [{"group": "", "version": "v1", "kind": "Pod"}]
    assert pod["properties"]["spec"] == {"allOf": [{"$ref": REF + "io.k8s.api.core.v1.PodSpec"}], "default": {}}


def test_custom_kind_appears_and_its_change_changes_the_hash(
    live: kinds.Kinds, documents: openapi.OpenAPI, table: facts.Facts
) -> None:
    assert documents.document("apis/example.com/v1") is None
    definition = widget_definition()
    live.replace(kinds.from_crd(definition, table.object_meta))
    before = documents.document("apis/example.com/v1")
    assert before is not None
    schema = definition["spec"]["versions"][1]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"] = {
        "type": "object",
        "description": "What is wished.",
        "properties": {"port": {"x-kubernetes-int-or-string": True}},
    }
    live.replace(kinds.from_crd(definition, table.object_meta))
    after = documents.document("apis/example.com/v1")
    assert after is not None
    assert after[1] != before[1]
    widget = json.loads(after[0])["components"]["schemas"]["com.example.v1.Widget"]
    assert widget["properties"]["spec"]["description"] == "What is wished."
    assert widget["properties"]["spec"]["properties"]["port"]["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert widget["properties"]["metadata"] == {"allOf": [{"$ref": REF + facts.OBJECT_META}]}
    live.remove("example.com", "widgets")
    assert documents.document("apis/example.com/v1") is None


def test_texts_of_a_real_server_are_shown_where_they_are_cached(
    live: kinds.Kinds, table: facts.Facts, tmp_path: Path
) -> None:
    full = {"components": {"schemas": {"io.k8s.api.core.v1.Pod": {"type": "object", "description": "A text."}}}}
    (tmp_path / "api_v1.json.gz").write_bytes(gzip.compress(json.dumps(full).encode()))
    plain = openapi.OpenAPI(live, table)
    told = openapi.OpenAPI(live, table, openapi.Texts(tmp_path))
    assert document(told, "api/v1")["components"]["schemas"]["io.k8s.api.core.v1.Pod"]["description"] == "A text."
    found, expected = plain.document("api/v1"), told.document("api/v1")
    assert found is not None
    assert expected is not None
    assert found[1] != expected[1]


def test_version_2_is_closed_and_keeps_types_plain(documents: openapi.OpenAPI) -> None:
    body, _ = documents.version_2()
    parsed = json.loads(body)
    assert parsed["swagger"] == "2.0"
    assert set(references(parsed)) <= {f"#/definitions/{name}" for name in parsed["definitions"]}
    intstr = parsed["definitions"]["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]
    assert intstr == {"type": "string", "format": "int-or-string"}
    patch = parsed["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert patch["parameters"][0]["in"] == "body"


def without_texts(value: Any) -> Any:
    """A schema without descriptions; a reference alone in `allOf` is the same as the bare reference."""
    if isinstance(value, dict):
        if set(value) == {"allOf"} and len(value["allOf"]) == 1:
            return without_texts(value["allOf"][0])
        kept = {key: inner for key, inner in value.items() if not (key == "description" and isinstance(inner, str))}
        if "allOf" in kept and set(kept) == {"allOf"}:
            return without_texts(kept)
        return {key: without_texts(inner) for key, inner in kept.items()}
    return [without_texts(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.real
def test_schemas_equal_those_of_the_real_server(documents: openapi.OpenAPI) -> None:
    several = {facts.META + "DeleteOptions", facts.META + "WatchEvent"}  # name every group there is
    with RealServer() as server:
        for path in json.loads(documents.index())["paths"]:
            code, real = server.call("GET", f"/openapi/v3/{path}")
            assert code == 200, path
            expected = without_texts(real["components"]["schemas"])
            for name, schema in document(documents, path)["components"]["schemas"].items():
                if name in expected and name not in several:
                    assert without_texts(schema) == expected[name], name
