"""The shipped tables: complete, consistent, and read lazily; and the reduction that makes them."""

from __future__ import annotations

from typing import Any

import pytest

from bedplate.apiserver import facts
from bedplate.core import errors
from bedplate.lab.factgen import reduce


@pytest.fixture(params=facts.available())
def table(request: pytest.FixtureRequest) -> facts.Facts:
    return facts.load(request.param)


def test_tables_of_both_versions_are_shipped() -> None:
    assert {"1.34", "1.35"} <= set(facts.available())
    assert facts.DEFAULT_VERSION in facts.available()


@pytest.mark.parametrize("spelling", ["1.35", "v1.35", "1.35.4", "v1.35.9"])
def test_version_may_be_spelled_with_or_without_patch(spelling: str) -> None:
    assert facts.load(spelling).kubernetes["minor"] == "35"


def test_unknown_version_names_the_known_ones() -> None:
    with pytest.raises(errors.Invalid) as caught:
        facts.load("1.20")
    assert "1.35" in caught.value.hint


def test_every_kind_has_a_type_and_every_type_resolves(table: facts.Facts) -> None:
    for resource in table.resources():
        assert resource.type.shape == "struct", resource.key
        assert resource.type.fields["kind"].scalar == "string", resource.key
    for name in table.type_names:
        node = table.node(name)
        for field in node.fields.values():
            assert field.shape in ("struct", "map", "list", "scalar", "any")
            if field.shape in ("list", "map"):
                assert field.element is not None
                assert field.element.shape


def test_stored_kinds_have_columns(table: facts.Facts) -> None:
    without = [resource.key for resource in table.resources() if "list" in resource.verbs and not resource.columns]
    assert without == []


def test_pod_type_knows_merge_keys_defaults_and_pointers(table: facts.Facts) -> None:
    pod = table.node("io.k8s.api.core.v1.Pod")
    spec = pod.fields["spec"]
    containers = spec.fields["containers"]
    assert (containers.patch_strategy, containers.patch_key) == (("merge",), "name")
    assert (containers.list_type, containers.list_keys) == ("map", ("name",))
    container = containers.element
    assert container is not None
    assert container.fields["ports"].list_keys == ("containerPort", "protocol")
    assert container.fields["ports"].key_defaults == {"protocol": "TCP"}
    assert container.fields["resources"].fields["limits"].element is not None
    assert container.fields["resources"].fields["limits"].element.scalar == "quantity"
    assert spec.fields["restartPolicy"].default == "Always"
    assert spec.fields["terminationGracePeriodSeconds"].pointer
    assert not spec.fields["hostNetwork"].pointer
    assert spec.fields["nodeSelector"].map_type == "atomic"
    assert spec.fields["volumes"].element is not None
    assert spec.fields["volumes"].element.fields["configMap"].fields["defaultMode"].default == 420
    assert "merge" in spec.fields["volumes"].patch_strategy
    assert "retainKeys" in spec.fields["volumes"].patch_strategy


def test_options_are_known_in_every_group(table: facts.Facts) -> None:
    assert table.type_name("apps/v1", "DeleteOptions") == facts.META + "DeleteOptions"
    assert table.type_name("v1", "Nothing") is None


def small_input() -> reduce.Gathered:
    schema = {
        "description": "text",
        "type": "object",
        "properties": {
            "description": {"description": "text", "type": "string", "default": ""},
            "ref": {"description": "text", "default": {}, "allOf": [{"$ref": "#/components/schemas/a.v1.B"}]},
        },
        "x-kubernetes-group-version-kind": [{"group": "a", "version": "v1", "kind": "A"}],
    }
    fields: list[dict[str, Any]] = [
        {"name": "", "type": "a.v1.B", "number": 1, "inline": True},
        {"name": "ref", "type": "*a.v1.B", "number": 2, "omitempty": True},
    ]
    return reduce.Gathered(
        openapi={"apis/a/v1": {"components": {"schemas": {"a.v1.A": schema}}}},
        go={
            "types": {"a.v1.A": {"fields": fields}, "a.v1.B": {"fields": []}, "a.v1.C": {"fields": []}},
            "defaults": [{"type": "a.v1.A", "field": "ref", "value": {}, "kind": "A", "path": ".ref", "filled": 0}],
        },
    )


def test_reduction_keeps_types_drops_texts_and_what_nobody_reaches() -> None:
    table = reduce.reduce(small_input())
    assert table["kinds"] == {"a/v1/A": "a.v1.A"}
    assert set(table["types"]) == {"a.v1.A", "a.v1.B"}
    assert table["types"]["a.v1.A"] == {
        "schema": {
            "type": "object",
            "properties": {"description": {"type": "string", "default": ""}, "ref": {"$ref": "a.v1.B", "default": {}}},
        },
        "go": [["", 1, "a.v1.B", "i"], ["ref", 2, "*a.v1.B", "e"]],
        "defaults": {"ref": {}},
    }


def test_a_default_with_two_values_is_refused_because_it_needs_a_rule() -> None:
    gathered = small_input()
    gathered.go["defaults"].append(dict(gathered.go["defaults"][0], value={"x": 1}))
    with pytest.raises(ValueError, match=r"a\.v1\.A\.ref"):
        reduce.reduce(gathered)


def test_same_facts_are_the_same_bytes() -> None:
    table = reduce.reduce(small_input())
    assert reduce.encode(table) == reduce.encode(dict(reversed(table.items())))
