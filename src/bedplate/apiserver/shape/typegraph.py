"""The one description of a field tree: what each field of a kind is, how lists merge, what is defaulted.

Nodes come from the shipped facts (built-in kinds, see `facts`) or from a structural schema (custom kinds, see
`from_schema`). Strategic merge, server-side apply, defaulting, pruning and unknown-field warnings walk them; nothing
here touches an object.

Graphs may be recursive (JSONSchemaProps), and a server uses few of the thousand built-in types, so a node may be
*lazy*: its slots stay empty until the first of them is read. A resolved node costs a plain slot read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

__all__ = ["ANY", "NO_FIELDS", "ListType", "MapType", "Shape", "TypeNode", "from_schema", "scalar_node"]

Shape = Literal["struct", "map", "list", "scalar", "any"]
ListType = Literal["atomic", "set", "map"]
MapType = Literal["granular", "atomic"]

NO_FIELDS: Mapping[str, TypeNode] = {}

_SLOTS: dict[str, Any] = {
    "shape": "any",
    "scalar": "",
    "format": "",
    "fields": NO_FIELDS,
    "element": None,
    "list_type": "atomic",
    "list_keys": (),
    "map_type": "granular",
    "patch_strategy": (),
    "patch_key": "",
    "default": msgspec.UNSET,
    "preserve_unknown": False,
    "pointer": True,
    "omit_empty": True,
    "omit_zero": False,
    "name": "",
}


class TypeNode:
    """One use of a type. Read-only after it is resolved; shared freely."""

    __slots__ = (*_SLOTS, "_fill", "_key_defaults")

    shape: Shape
    """`any` is an untyped value (RawExtension, JSON, FieldsV1): kept whole, never looked into."""
    scalar: str
    """string, integer, number, boolean, int-or-string, quantity, time, microtime, bytes."""
    format: str
    fields: Mapping[str, TypeNode]
    """struct: JSON field name to node; inlined Go structs are flattened."""
    element: TypeNode | None
    """list items or map values."""
    list_type: ListType
    list_keys: tuple[str, ...]
    map_type: MapType
    """for structs and maps: `atomic` ones are owned and replaced whole by server-side apply."""
    patch_strategy: tuple[str, ...]
    """strategic merge patch: any of merge, replace, retainKeys; empty means replace for lists, merge for maps."""
    patch_key: str
    default: Any
    """the declared default, `msgspec.UNSET` when there is none."""
    preserve_unknown: bool
    pointer: bool
    """built-in kinds: Go holds a pointer, so an explicit zero value differs from an absent one."""
    omit_empty: bool
    """built-in kinds: Go's JSON leaves the zero value out; otherwise the field is always written."""
    omit_zero: bool
    """built-in kinds: the Go 1.24 `omitzero` tag, which leaves out empty structs and times too."""
    name: str
    """OpenAPI type name such as io.k8s.api.core.v1.PodSpec; empty when anonymous."""
    _fill: Callable[[], TypeNode]
    _key_defaults: Mapping[str, Any]

    def __init__(self, **slots: Any) -> None:
        for key, value in _SLOTS.items():
            setattr(self, key, slots.pop(key, value))
        if slots:
            raise TypeError(f"TypeNode has no {', '.join(sorted(slots))}")

    @classmethod
    def lazy(cls, fill: Callable[[], TypeNode]) -> TypeNode:
        """A node that takes its slots from `fill()` when first looked at."""
        node = cls.__new__(cls)
        object.__setattr__(node, "_fill", fill)
        return node

    def __getattr__(self, key: str) -> Any:
        # Only reached when a slot is still empty, that is before a lazy node is resolved.
        if key not in _SLOTS:
            raise AttributeError(key)
        source = self._fill()
        for slot in _SLOTS:
            setattr(self, slot, getattr(source, slot))
        return getattr(self, key)

    @property
    def key_defaults(self) -> Mapping[str, Any]:
        """list-map keys that may be left out, with the value they then have (ports: protocol is TCP)."""
        try:
            return self._key_defaults
        except AttributeError:
            element = self.element.fields if self.element is not None else NO_FIELDS
            defaults = {key: element[key].default for key in self.list_keys if key in element}
            self._key_defaults = {key: value for key, value in defaults.items() if value is not msgspec.UNSET}
            return self._key_defaults

    def using(self, **slots: Any) -> TypeNode:
        """A copy with some slots changed: the same type in another place."""
        return TypeNode(**{key: getattr(self, key) for key in _SLOTS} | slots)

    def __repr__(self) -> str:
        return f"<TypeNode {self.name or self.scalar or self.shape}>"


ANY = TypeNode(shape="any", preserve_unknown=True)


def scalar_node(scalar: str, format: str = "", **slots: Any) -> TypeNode:
    return TypeNode(shape="scalar", scalar=scalar, format=format, **slots)


def from_schema(
    schema: Mapping[str, Any], object_meta: TypeNode | None = None, *, is_resource: bool = False
) -> TypeNode:
    """The node of a structural schema (a CRD's `openAPIV3Schema`).

    Where the schema is that of a whole resource (the outermost one, or `x-kubernetes-embedded-resource`),
    `object_meta` stands in for `metadata` whatever the schema says of it.
    """
    common: dict[str, Any] = {
        "default": schema.get("default", msgspec.UNSET),
        "preserve_unknown": bool(schema.get("x-kubernetes-preserve-unknown-fields")),
        "map_type": schema.get("x-kubernetes-map-type", "granular"),
        "format": schema.get("format", ""),
    }
    if schema.get("x-kubernetes-int-or-string"):
        return TypeNode(shape="scalar", scalar="int-or-string", **common)
    kind = schema.get("type", "")
    if kind == "object":
        is_resource = is_resource or bool(schema.get("x-kubernetes-embedded-resource"))
        return _object_node(schema, common, object_meta, is_resource)
    if kind == "array":
        return TypeNode(
            shape="list",
            element=from_schema(schema.get("items") or {}, object_meta),
            list_type=schema.get("x-kubernetes-list-type", "atomic"),
            list_keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()),
            **common,
        )
    if not kind:
        return TypeNode(shape="any", **(common | {"preserve_unknown": True}))
    return TypeNode(shape="scalar", scalar=kind, **common)


def _object_node(
    schema: Mapping[str, Any], common: dict[str, Any], object_meta: TypeNode | None, is_resource: bool
) -> TypeNode:
    properties: Mapping[str, Any] = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    if extra not in (None, False) and not properties and not is_resource:
        element = from_schema(extra, object_meta) if isinstance(extra, Mapping) else ANY
        return TypeNode(shape="map", element=element, **common)
    fields = {key: from_schema(value, object_meta) for key, value in properties.items()}
    if is_resource:
        string = scalar_node("string")
        fields |= {"apiVersion": string, "kind": string, "metadata": object_meta or ANY}
    return TypeNode(shape="struct", fields=fields, **common)
