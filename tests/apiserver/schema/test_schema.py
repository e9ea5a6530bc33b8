"""Structural schemas: the real server's verdicts of cases/schema.yaml, defaults, pruning, ratcheting."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver import recorded

from bedplate.apiserver.crds import custom
from bedplate.apiserver.schema import formats, gotext

GROUPS = {group["name"]: group for group in recorded.questions("schema")}
ANSWERS = recorded.answers("schema")
OBJECTS = [(name, index) for name, group in GROUPS.items() for index in range(len(group["objects"]))]


def validator(spec: dict[str, Any], **root: Any) -> custom.CustomValidator:
    return custom.CustomValidator({"type": "object", "properties": {"spec": spec, **root}})


@pytest.mark.parametrize(("name", "index"), OBJECTS)
def test_an_object_is_judged_as_by_the_real_server(name: str, index: int) -> None:
    case = GROUPS[name]["objects"][index]
    assert recorded.judge_object(GROUPS[name]["schema"], case["spec"], case.get("old")) == ANSWERS[name][index]


@pytest.mark.parametrize("name", list(GROUPS))
def test_the_schemas_of_the_table_are_sound(name: str) -> None:
    assert recorded.judge_definition(recorded.definition(name, GROUPS[name]["schema"])) == []


def test_defaults_fill_in_at_every_depth_and_are_copies() -> None:
    schema = {
        "type": "object",
        "default": {"list": [{}]},
        "properties": {
            "list": {
                "type": "array",
                "items": {"type": "object", "properties": {"a": {"type": "integer", "default": 1}}},
            },
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"b": {"default": []}}}},
        },
    }
    rules = validator(schema)
    first: dict[str, Any] = {}
    rules.default(first)
    first["spec"]["list"].append("changed")
    second: dict[str, Any] = {"spec": {"map": {"k": {}}}}
    rules.default(second)
    third: dict[str, Any] = {}
    rules.default(third)
    assert third == {"spec": {"list": [{"a": 1}]}}
    assert second == {"spec": {"map": {"k": {"b": []}}}}


def test_a_null_gives_way_to_the_default_and_is_dropped_without_one_unless_nullable() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "default": "x"},
            "b": {"type": "string"},
            "c": {"type": "string", "nullable": True, "default": "y"},
        },
    }
    obj: dict[str, Any] = {"spec": {"a": None, "b": None, "c": None}}
    validator(schema).default(obj)
    assert obj == {"spec": {"a": "x", "c": None}}


def test_pruning_names_what_it_drops_and_keeps_what_is_preserved() -> None:
    schema = {
        "type": "object",
        "properties": {
            "known": {"type": "object", "properties": {"a": {"type": "string"}}},
            "free": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                "properties": {"strict": {"type": "object", "properties": {"a": {"type": "string"}}}},
            },
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "pod": {
                "type": "object",
                "x-kubernetes-embedded-resource": True,
                "properties": {"spec": {"type": "object"}},
            },
        },
    }
    obj = {
        "apiVersion": "g/v1",
        "kind": "K",
        "metadata": {"name": "x", "labels": {"a": "b"}},
        "junk": 1,
        "spec": {
            "known": {"a": "1", "b": {"c": 1}},
            "free": {"any": {"thing": 1}, "strict": {"a": "1", "b": 2}},
            "list": [{"a": "1"}, {"b": 2}],
            "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {"x": 1}, "status": {}},
        },
    }
    dropped = validator(schema).prune(obj)
    assert dropped == [
        "junk",
        "spec.free.strict.b",
        "spec.known.b",
        "spec.list[1].b",
        "spec.pod.spec.x",
        "spec.pod.status",
    ]
    assert obj["spec"] == {
        "known": {"a": "1"},
        "free": {"any": {"thing": 1}, "strict": {"a": "1"}},
        "list": [{"a": "1"}, {}],
        "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {}},
    }


def test_an_update_may_keep_what_is_invalid_but_not_touch_it() -> None:
    rules = validator(
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 3},
                "items": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"maximum": 5}}},
                },
                "plain": {"type": "array", "items": {"type": "integer", "maximum": 5}},
            },
        }
    )
    old = {"spec": {"name": "toolong", "items": [{"k": "a", "v": 9}, {"k": "b", "v": 1}], "plain": [9]}}
    kept = {"spec": {"name": "toolong", "items": [{"k": "b", "v": 2}, {"k": "a", "v": 9}], "plain": [9]}}
    touched = {"spec": {"name": "tolonger", "items": [{"k": "a", "v": 8}], "plain": [9, 1]}}
    assert rules.validate(kept, old) == []
    assert [cause.field for cause in rules.validate(touched, old)] == [
        "spec.name",
        "spec.items[0].v",
        "spec.plain[0]",
    ]
    assert len(rules.validate(kept)) == 3


def test_a_value_that_only_looks_equal_is_not_unchanged() -> None:
    rules = validator({"type": "object", "properties": {"b": {"type": "boolean"}}})
    assert [cause.field for cause in rules.validate({"spec": {"b": 1}}, {"spec": {"b": True}})] == ["spec.b"]


def test_status_is_judged_by_its_own_schema_with_short_names() -> None:
    rules = validator({"type": "object"}, status={"type": "object", "properties": {"phase": {"type": "string"}}})
    found = rules.validate_status({"spec": 5, "status": {"phase": 1}}, {"spec": {}, "status": {}})
    assert [str(cause) for cause in found] == [
        'status.phase: Invalid value: "integer": phase in body must be of type string: "integer"'
    ]


def test_replicas_must_fit_a_scale() -> None:
    paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    rules = custom.CustomValidator({"type": "object"}, scale=paths)
    found = rules.validate({"spec": {"replicas": -1}, "status": {"replicas": 2**31}})
    assert [str(cause) for cause in found] == [
        ".spec.replicas: Invalid value: -1: should be a non-negative integer",
        ".status.replicas: Invalid value: 2147483648: should be less than or equal to 2147483647",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1"), (1e21, "1e+21"), (1.5e-7, "1.5e-07"), (123456789.5, "1.234567895e+08"), (True, "true")],
)
def test_go_texts_of_numbers(value: float, text: str) -> None:
    assert gotext.show(value) == text


def test_go_quotes() -> None:
    assert gotext.quote('a"b\n\x01ü\u200b') == '"a\\"b\\n\\x01ü\\u200b"'
    assert gotext.marshal({"b": 1.0, "a": "<&>"}) == '{"a":"\\u003c\\u0026\\u003e","b":1}'


@pytest.mark.parametrize("name", ["a", "example", "a.example.com", "xn--a.example.com", "1and1.com"])
def test_hostnames(name: str) -> None:
    assert formats.CHECKS["hostname"](name)


@pytest.mark.parametrize("name", ["", "-a", "a-.com", "a..b", "a.c", "a.1x", "a_b"])
def test_not_hostnames(name: str) -> None:
    assert not formats.CHECKS["hostname"](name)


def test_faulty_names_are_told_in_the_words_of_the_real_server() -> None:
    assert formats.dns1123_label("a.b") == ["must not contain dots"]
    assert formats.dns1123_subdomain("a" * 254) == ["must be no more than 253 characters"]
    assert formats.qualified_name("a" * 254 + "/b") == ["prefix part must be no more than 253 bytes"]
    assert formats.qualified_name("a/" + "b" * 64) == ["name part must be no more than 63 bytes"]
    assert formats.qualified_name("/b") == ["prefix part must be non-empty"]
    assert formats.qualified_name("a/b/c")[0].startswith("a valid label key must consist of alphanumeric characters")
