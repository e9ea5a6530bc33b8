"""Type nodes: lazy ones, those of structural schemas, what they say of list maps."""

from __future__ import annotations

import msgspec
import pytest

from bedplate.apiserver.shape import typegraph
from bedplate.apiserver.shape.typegraph import TypeNode

META = TypeNode(shape="struct", fields={"name": typegraph.scalar_node("string")}, name="ObjectMeta")


def test_lazy_node_is_filled_once_when_first_read() -> None:
    calls = []

    def fill() -> TypeNode:
        calls.append(1)
        return TypeNode(shape="struct", name="T")

    node = TypeNode.lazy(fill)
    assert not calls
    assert (node.shape, node.name, node.list_keys) == ("struct", "T", ())
    assert len(calls) == 1


def test_lazy_nodes_may_contain_themselves() -> None:
    def build() -> TypeNode:
        return TypeNode(shape="struct", fields={"inner": node}, name="Tree")

    node = TypeNode.lazy(build)
    assert node.fields["inner"].fields["inner"].name == "Tree"


def test_unknown_slot_is_refused() -> None:
    with pytest.raises(TypeError, match="colour"):
        TypeNode(shape="any", colour="red")
    with pytest.raises(AttributeError):
        _ = TypeNode.lazy(lambda: typegraph.ANY).colour


def test_schema_gives_list_map_keys_and_their_defaults() -> None:
    node = typegraph.from_schema(
        {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {
                "type": "object",
                "properties": {"port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}},
            },
        }
    )
    assert (node.shape, node.list_type, node.list_keys) == ("list", "map", ("port", "protocol"))
    assert node.key_defaults == {"protocol": "TCP"}


def test_schema_shapes() -> None:
    schema = {
        "type": "object",
        "required": ["a"],
        "properties": {
            "a": {"type": "string", "default": None, "nullable": True},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}, "x-kubernetes-map-type": "atomic"},
            "either": {"x-kubernetes-int-or-string": True},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "untyped": {},
        },
    }
    node = typegraph.from_schema(schema)
    fields = node.fields
    assert fields["a"].default is None
    assert fields["either"].default is msgspec.UNSET
    assert fields["map"].shape == "map"
    assert fields["map"].map_type == "atomic"
    assert fields["map"].element is not None
    assert fields["map"].element.scalar == "integer"
    assert fields["either"].scalar == "int-or-string"
    assert fields["free"].shape == "struct"
    assert fields["free"].preserve_unknown
    assert fields["untyped"].shape == "any"
    assert not node.preserve_unknown


def test_metadata_of_whole_resources_is_object_meta_whatever_the_schema_says() -> None:
    embedded = {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "properties": {"metadata": {"type": "string"}},
    }
    schema = {
        "type": "object",
        "properties": {"list": {"type": "array", "items": embedded}, "plain": {"type": "object"}},
    }
    node = typegraph.from_schema(schema, META, is_resource=True)
    assert node.fields["metadata"] is META
    assert node.fields["kind"].scalar == "string"
    element = node.fields["list"].element
    assert element is not None
    assert element.fields["metadata"] is META
    assert "metadata" not in node.fields["plain"].fields
