"""fieldValidation: unknown and duplicate fields are refused, warned about or ignored."""

from __future__ import annotations

import json

from tests.conformance.http import MERGE_PATCH, STRATEGIC_PATCH, Api, Json
from tests.conformance.objects import apps, config_map, core, deployment, install, spec_schema


def with_unknown(name: str) -> Json:
    body = deployment(name)
    body["spec"]["nonsense"] = 1
    body["spec"]["template"]["spec"]["containers"][0]["alsoNonsense"] = 2
    return body


async def test_strict_refuses_unknown_fields_of_a_built_in_kind(api: Api, ns: str) -> None:
    status = (await api.post(apps(ns, "deployments"), with_unknown("d"), fieldValidation="Strict")).fails(
        400, "BadRequest"
    )
    assert 'unknown field "spec.nonsense"' in status["message"]
    assert 'unknown field "spec.template.spec.containers[0].alsoNonsense"' in status["message"]
    assert "strict decoding error" in status["message"]


async def test_warn_is_the_default(api: Api, ns: str) -> None:
    reply = await api.post(apps(ns, "deployments"), with_unknown("d"))
    made = reply.expect(201)
    assert "nonsense" not in made["spec"]
    assert sorted(reply.warnings) == [
        '299 - "unknown field \\"spec.nonsense\\""',
        '299 - "unknown field \\"spec.template.spec.containers[0].alsoNonsense\\""',
    ]


async def test_ignore_says_nothing(api: Api, ns: str) -> None:
    reply = await api.post(apps(ns, "deployments"), with_unknown("d"), fieldValidation="Ignore")
    assert "nonsense" not in reply.expect(201)["spec"]
    assert reply.warnings == []


async def test_duplicate_fields(api: Api, ns: str) -> None:
    text = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"1"},"data":{"k":"2"}}'
    status = (await api.post(core(ns, "configmaps"), text, fieldValidation="Strict")).fails(400, "BadRequest")
    assert 'duplicate field "data"' in status["message"]
    reply = await api.post(core(ns, "configmaps"), text, fieldValidation="Warn")
    assert reply.expect(201)["data"] == {"k": "2"}
    assert reply.warnings == ['299 - "duplicate field \\"data\\""']


async def test_custom_kinds(api: Api, ns: str) -> None:
    kind = await install(api, spec_schema({"a": {"type": "string"}}))
    body = kind.new("w", spec={"a": "1", "b": "2"}, extra=1)
    status = (await api.post(kind.path(ns), body, fieldValidation="Strict")).fails(400, "BadRequest")
    assert 'unknown field "extra"' in status["message"]
    assert 'unknown field "spec.b"' in status["message"]
    reply = await api.post(kind.path(ns), body, fieldValidation="Warn")
    assert reply.expect(201)["spec"] == {"a": "1"}
    assert sorted(reply.warnings) == ['299 - "unknown field \\"extra\\""', '299 - "unknown field \\"spec.b\\""']


async def test_metadata_of_custom_kinds(api: Api, ns: str) -> None:
    kind = await install(api, spec_schema({"a": {"type": "string"}}))
    body = kind.new("w")
    body["metadata"]["clusterNames"] = "x"
    status = (await api.post(kind.path(ns), body, fieldValidation="Strict")).fails(400, "BadRequest")
    assert 'unknown field "metadata.clusterNames"' in status["message"]


async def test_updates(api: Api, ns: str) -> None:
    await api.create(apps(ns, "deployments"), deployment("d"))
    reply = await api.put(apps(ns, "deployments", "d"), with_unknown("d"), fieldValidation="Strict")
    reply.fails(400, "BadRequest")


async def test_merge_and_strategic_patches(api: Api, ns: str) -> None:
    await api.create(apps(ns, "deployments"), deployment("d"))
    target = apps(ns, "deployments", "d")
    for content_type in (MERGE_PATCH, STRATEGIC_PATCH):
        reply = await api.patch(target, {"spec": {"nonsense": 1}}, content_type, fieldValidation="Strict")
        status = reply.fails(422, "Invalid")
        assert 'unknown field "spec.nonsense"' in status["message"]
        reply = await api.patch(target, {"spec": {"nonsense": 1}}, content_type, fieldValidation="Warn")
        reply.expect(200)
        assert reply.warnings == ['299 - "unknown field \\"spec.nonsense\\""']


async def test_an_unknown_mode_is_invalid(api: Api, ns: str) -> None:
    status = (await api.post(core(ns, "configmaps"), config_map("a"), fieldValidation="Loose")).fails(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "fieldValidation"


async def test_yaml_bodies_are_checked_too(api: Api, ns: str) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\nnonsense: 1\n"
    reply = await api.post(core(ns, "configmaps"), text, content_type="application/yaml", fieldValidation="Strict")
    assert 'unknown field "nonsense"' in reply.fails(400, "BadRequest")["message"]


async def test_field_names_differ_by_case(api: Api, ns: str) -> None:
    text = json.dumps({**config_map("a"), "Data": {"k": "1"}}).encode()
    status = (await api.post(core(ns, "configmaps"), text, fieldValidation="Strict")).fails(400, "BadRequest")
    assert 'unknown field "Data"' in status["message"]
