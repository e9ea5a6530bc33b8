"""Custom objects against their structural schema: validation, defaulting, pruning."""

from __future__ import annotations

import pytest
from tests.conformance import objects
from tests.conformance.http import Api, Json
from tests.conformance.objects import install, spec_schema
from tests.waiting import until

PROPERTIES: Json = {
    "count": {"type": "integer", "minimum": 1, "maximum": 10},
    "even": {"type": "integer", "multipleOf": 2},
    "ratio": {"type": "number", "exclusiveMinimum": True, "minimum": 0},
    "name": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]+$"},
    "color": {"type": "string", "enum": ["red", "blue"]},
    "when": {"type": "string", "format": "date-time"},
    "address": {"type": "string", "format": "ipv4"},
    "id": {"type": "string", "format": "uuid"},
    "port": {"x-kubernetes-int-or-string": True},
    "flag": {"type": "boolean"},
    "tags": {
        "type": "array",
        "items": {"type": "string"},
        "minItems": 1,
        "maxItems": 3,
        "x-kubernetes-list-type": "set",
    },
    "limits": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 2},
    "maybe": {"type": "string", "nullable": True},
    "nested": {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
    "one": {
        "type": "object",
        "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
        "oneOf": [{"required": ["x"]}, {"required": ["y"]}],
    },
    "servers": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["host"],
        "items": {"type": "object", "required": ["host"], "properties": {"host": {"type": "string"}}},
    },
}


async def widgets(api: Api) -> objects.CustomKind:
    return await install(api, spec_schema(PROPERTIES))


@pytest.mark.parametrize(
    ("spec", "field", "reason"),
    [
        ({"count": 0}, "spec.count", "FieldValueInvalid"),
        ({"count": 11}, "spec.count", "FieldValueInvalid"),
        ({"count": 1.5}, "spec.count", "FieldValueTypeInvalid"),
        ({"count": "1"}, "spec.count", "FieldValueTypeInvalid"),
        ({"even": 3}, "spec.even", "FieldValueInvalid"),
        ({"ratio": 0}, "spec.ratio", "FieldValueInvalid"),
        ({"name": "a"}, "spec.name", "FieldValueInvalid"),
        ({"name": "abcdef"}, "spec.name", "FieldValueTooLong"),
        ({"name": "ABC"}, "spec.name", "FieldValueInvalid"),
        ({"color": "green"}, "spec.color", "FieldValueNotSupported"),
        ({"when": "yesterday"}, "spec.when", "FieldValueTypeInvalid"),
        ({"address": "1.2.3"}, "spec.address", "FieldValueTypeInvalid"),
        ({"id": "x"}, "spec.id", "FieldValueTypeInvalid"),
        ({"port": True}, "spec.port", "FieldValueTypeInvalid"),
        ({"flag": "true"}, "spec.flag", "FieldValueTypeInvalid"),
        ({"tags": []}, "spec.tags", "FieldValueInvalid"),
        ({"tags": ["a", "b", "c", "d"]}, "spec.tags", "FieldValueTooMany"),
        ({"tags": ["a", "a"]}, "spec.tags[1]", "FieldValueDuplicate"),
        ({"tags": ["a", 1]}, "spec.tags[1]", "FieldValueTypeInvalid"),
        ({"limits": {"a": 1, "b": 2, "c": 3}}, "spec.limits", "FieldValueTooMany"),
        ({"limits": {"a": "x"}}, "spec.limits.a", "FieldValueTypeInvalid"),
        ({"nested": {"b": "x"}}, "spec.nested.a", "FieldValueRequired"),
        ({"one": {"x": 1, "y": 2}}, "<nil>", "FieldValueInvalid"),
        ({"servers": [{"host": "a"}, {"host": "a"}]}, "spec.servers[1]", "FieldValueDuplicate"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
async def test_refused(api: Api, ns: str, spec: Json, field: str, reason: str) -> None:
    kind = await widgets(api)
    status = (await api.post(kind.path(ns), kind.new("w", spec=spec))).fails(422, "Invalid")
    assert status["message"].startswith("Widget." + kind.group + ' "w" is invalid: ')
    assert (field, reason) in {(cause["field"], cause["reason"]) for cause in status["details"]["causes"]}, status


async def test_accepted(api: Api, ns: str) -> None:
    kind = await widgets(api)
    spec = {
        "count": 10, "even": 4, "ratio": 0.5, "name": "abc", "color": "red", "when": "2026-01-02T03:04:05Z",
        "address": "10.0.0.1", "id": "6d7b9a1c-0a0a-4b4b-8c8c-0123456789ab", "port": "http", "flag": False,
        "tags": ["a", "b"], "limits": {"a": 1}, "maybe": None, "nested": {"a": "x"}, "one": {"x": 1},
        "servers": [{"host": "a"}, {"host": "b"}],
    }  # fmt: skip
    made = await api.create(kind.path(ns), kind.new("w", spec=spec))
    assert made["spec"] == spec
    assert (await api.create(kind.path(ns), kind.new("v", spec={"port": 80})))["spec"] == {"port": 80}


async def test_several_problems_are_reported_together(api: Api, ns: str) -> None:
    kind = await widgets(api)
    status = (await api.post(kind.path(ns), kind.new("w", spec={"count": 0, "color": "x"}))).fails(422, "Invalid")
    assert {cause["field"] for cause in status["details"]["causes"]} == {"spec.count", "spec.color"}
    assert "is invalid: [" in status["message"]


async def test_updates_are_validated_too(api: Api, ns: str) -> None:
    kind = await widgets(api)
    await api.create(kind.path(ns), kind.new("w", spec={"count": 1}))
    (await api.patch(kind.path(ns, "w"), {"spec": {"count": 99}})).fails(422, "Invalid")
    assert (await api.read(kind.path(ns, "w")))["spec"] == {"count": 1}


async def test_a_null_that_is_not_nullable_is_dropped(api: Api, ns: str) -> None:
    kind = await widgets(api)
    made = await api.create(kind.path(ns), kind.new("w", spec={"color": None, "count": 1}))
    assert made["spec"] == {"count": 1}


async def test_an_old_invalid_value_left_alone_is_tolerated(api: Api, ns: str) -> None:
    """Validation ratchets: a rule that came later does not hold back changes elsewhere."""
    kind = await install(api, spec_schema({"a": {"type": "string"}, "b": {"type": "string"}}), fresh=True)
    await api.create(kind.path(ns), kind.new("w", spec={"a": "long value"}))
    definition = await api.read(kind.crd_path)
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["a"][
        "maxLength"
    ] = 3
    (await api.put(kind.crd_path, definition)).expect(200)

    async def enforced() -> bool:
        return (await api.post(kind.path(ns), kind.new("x", spec={"a": "long"}), dryRun="All")).status == 422

    await until(enforced, "new schema enforced")
    (await api.patch(kind.path(ns, "w"), {"spec": {"b": "changed"}})).expect(200)
    (await api.patch(kind.path(ns, "w"), {"spec": {"a": "also long"}})).fails(422, "Invalid")


DEFAULTS: Json = {
    "replicas": {"type": "integer", "default": 1},
    "strategy": {
        "type": "object",
        "default": {},
        "properties": {"type": {"type": "string", "default": "Rolling"}, "max": {"type": "integer"}},
    },
    "optional": {"type": "object", "properties": {"inner": {"type": "string", "default": "x"}}},
    "ports": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"protocol": {"type": "string", "default": "TCP"}, "port": {"type": "integer"}},
        },
    },
    "nothing": {"type": "string", "nullable": True, "default": "filled"},
}


async def test_defaults_fill_what_is_missing(api: Api, ns: str) -> None:
    kind = await install(api, spec_schema(DEFAULTS))
    made = await api.create(kind.path(ns), kind.new("w", spec={"ports": [{"port": 1}, {"protocol": "UDP"}]}))
    assert made["spec"] == {
        "replicas": 1,
        "strategy": {"type": "Rolling"},
        "ports": [{"port": 1, "protocol": "TCP"}, {"protocol": "UDP"}],
        "nothing": "filled",
    }


async def test_defaults_do_not_make_an_absent_parent(api: Api, ns: str) -> None:
    kind = await install(api, spec_schema(DEFAULTS))
    assert "spec" not in await api.create(kind.path(ns), kind.new("w"))
    made = await api.create(kind.path(ns), kind.new("v", spec={"optional": {}}))
    assert made["spec"]["optional"] == {"inner": "x"}


async def test_a_null_is_kept_where_nullable_and_defaulted_where_not(api: Api, ns: str) -> None:
    kind = await install(api, spec_schema(DEFAULTS))
    made = await api.create(kind.path(ns), kind.new("w", spec={"nothing": None, "replicas": None}))
    assert made["spec"]["nothing"] is None
    assert made["spec"]["replicas"] == 1


async def test_a_removed_defaulted_field_comes_back(api: Api, ns: str) -> None:
    kind = await install(api, spec_schema(DEFAULTS))
    await api.create(kind.path(ns), kind.new("w", spec={"replicas": 5}))
    patched = (await api.patch(kind.path(ns, "w"), {"spec": {"replicas": None}})).expect(200)
    assert patched["spec"]["replicas"] == 1


async def test_a_new_default_shows_in_objects_stored_before(api: Api, ns: str) -> None:
    kind = await install(api, spec_schema({"a": {"type": "string"}}), fresh=True)
    await api.create(kind.path(ns), kind.new("w", spec={}))
    definition = await api.read(kind.crd_path)
    properties = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    properties["a"]["default"] = "later"
    (await api.put(kind.crd_path, definition)).expect(200)

    async def shown() -> bool:
        reply = await api.get(kind.path(ns, "w"))
        return reply.status == 200 and reply.json["spec"].get("a") == "later"

    await until(shown, "default in an old object")


PRUNED: Json = {
    "known": {"type": "string"},
    "open": {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {"in": {"type": "object", "properties": {"a": {"type": "string"}}}},
    },
    "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}}},
    "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
    "object": {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
}


async def test_unknown_fields_are_pruned_everywhere(api: Api, ns: str) -> None:
    kind = await install(api, spec_schema(PRUNED))
    spec = {"known": "1", "unknown": "1", "map": {"k": {"a": "1", "b": "2"}}, "list": [{"a": "1", "b": "2"}]}
    made = await api.create(kind.path(ns), kind.new("w", spec=spec, extra=1))
    assert made["spec"] == {"known": "1", "map": {"k": {"a": "1"}}, "list": [{"a": "1"}]}
    assert "extra" not in made


async def test_preserved_fields_stay_and_specified_ones_below_are_pruned(api: Api, ns: str) -> None:
    kind = await install(api, spec_schema(PRUNED))
    spec = {"open": {"anything": {"deep": [1]}, "in": {"a": "1", "b": "2"}}}
    made = await api.create(kind.path(ns), kind.new("w", spec=spec))
    assert made["spec"] == {"open": {"anything": {"deep": [1]}, "in": {"a": "1"}}}


async def test_an_embedded_object_needs_kind_and_valid_metadata(api: Api, ns: str) -> None:
    kind = await install(api, spec_schema(PRUNED))
    whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"x": 1}}
    assert (await api.create(kind.path(ns), kind.new("w", spec={"object": whole})))["spec"]["object"] == whole
    status = (await api.post(kind.path(ns), kind.new("v", spec={"object": {"spec": {}}}))).fails(422, "Invalid")
    fields = {cause["field"] for cause in status["details"]["causes"]}
    assert {"spec.object.apiVersion", "spec.object.kind"} <= fields


async def test_patches_are_pruned(api: Api, ns: str) -> None:
    kind = await install(api, spec_schema(PRUNED))
    await api.create(kind.path(ns), kind.new("w", spec={"known": "1"}))
    patched = (await api.patch(kind.path(ns, "w"), {"spec": {"unknown": "1", "known": "2"}})).expect(200)
    assert patched["spec"] == {"known": "2"}


async def test_metadata_of_a_custom_object_is_typed(api: Api, ns: str) -> None:
    kind = await widgets(api)
    body = kind.new("w")
    body["metadata"]["labels"] = {"a": 1}
    (await api.post(kind.path(ns), body)).fails(400, "BadRequest")
    body["metadata"]["labels"] = {"a": "not valid!"}
    (await api.post(kind.path(ns), body)).fails(422, "Invalid")


async def test_the_body_must_be_of_the_kind_in_the_path(api: Api, ns: str) -> None:
    kind = await widgets(api)
    status = (await api.post(kind.path(ns), {**kind.new("w"), "kind": "Gadget"})).fails(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "kind"
    (await api.post(kind.path(ns), {**kind.new("w"), "apiVersion": "other.example.com/v1"})).fails(400, "BadRequest")
