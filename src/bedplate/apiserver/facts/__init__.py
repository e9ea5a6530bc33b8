"""The shipped tables of facts, one per Kubernetes minor version, and the only reader of them.

`load("1.35")` gives a `Facts`: kinds, types, discovery. The tables are made by `bedplate lab facts` (its module
`reduce` says what they hold). A table is some 40 KB compressed and opens in about four milliseconds; a type is decoded
when it is first asked for, because a server touches a few dozen of the six hundred.
"""

from __future__ import annotations

import gzip
import importlib.resources
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from bedplate.apiserver import kinds
from bedplate.apiserver.shape import typegraph
from bedplate.apiserver.shape.typegraph import TypeNode
from bedplate.core import errors

__all__ = ["DEFAULT_VERSION", "Facts", "GoField", "available", "load"]

DEFAULT_VERSION = "1.35"
_VERSION = re.compile(r"v?(\d+\.\d+)(?:\.\d+)?")
_TABLE = re.compile(r"v(\d+\.\d+)\.json\.gz")

META = "io.k8s.apimachinery.pkg.apis.meta.v1."
OBJECT_META = META + "ObjectMeta"

# Kinds the server leaves out: a live probe of components it does not run, and a second version of a resource whose
# conversion is a large special case (clients since 1.26 use autoscaling/v2).
LEFT_OUT = frozenset({("", "v1", "componentstatuses"), ("autoscaling", "v1", "horizontalpodautoscalers")})

# Two served versions of one object: fields here to fields there. Everything else is equal.
EVENT_RENAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
STORED_ELSEWHERE = {("events.k8s.io", "v1", "events"): (("", "v1", "events"), EVENT_RENAMES)}

# Types that are one value in JSON, whatever their Go struct looks like.
SCALARS = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
    META + "Time": "time",
    META + "MicroTime": "microtime",
    META + "Duration": "string",
}
_API_EXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
UNTYPED = frozenset(
    {
        "io.k8s.apimachinery.pkg.runtime.RawExtension",
        META + "FieldsV1",
        META + "Patch",
        _API_EXTENSIONS + "JSON",
        _API_EXTENSIONS + "JSONSchemaPropsOrArray",
        _API_EXTENSIONS + "JSONSchemaPropsOrBool",
        _API_EXTENSIONS + "JSONSchemaPropsOrStringArray",
    }
)


class GoField(NamedTuple):
    """A field of a Go struct: JSON name (empty when inlined), protobuf number, type expression, flags.

    In the expression `*` is a pointer, `[]` a list, `M[]` a list in a message of its own, `{}` a map from strings.
    Flags: `i` inlined, `e` omitempty, `z` omitzero.
    """

    name: str
    number: int
    type: str
    flags: str


class _Type(msgspec.Struct):
    schema: dict[str, Any] | None = None
    go: list[GoField] = []
    defaults: dict[str, Any] = {}


class _Table(msgspec.Struct):
    kubernetes: dict[str, Any]
    groups: list[dict[str, Any]]
    columns: dict[str, list[tuple[str, str, str, int]]]
    selectable: dict[str, list[str]]
    kinds: dict[str, str]
    types: dict[str, msgspec.Raw]


class Facts:
    """One version's table."""

    def __init__(self, table: bytes) -> None:
        self._table = msgspec.json.decode(table, type=_Table)
        self._types: dict[str, _Type] = {}
        self._nodes: dict[str, TypeNode] = {}

    @property
    def kubernetes(self) -> Mapping[str, Any]:
        """The /version document of the server the table was read from."""
        return self._table.kubernetes

    @property
    def groups(self) -> list[dict[str, Any]]:
        """Aggregated discovery as that server gave it, the core group (without a name) first."""
        return self._table.groups

    @property
    def type_names(self) -> list[str]:
        return list(self._table.types)

    @property
    def kind_types(self) -> Mapping[str, str]:
        """`apiVersion/kind` to type name, for every kind with a type: also Scale, Eviction, TokenRequest, lists."""
        return self._table.kinds

    def type_name(self, api_version: str, kind: str) -> str | None:
        """The type of a kind, known by what the object says of itself."""
        name = self._table.kinds.get(f"{api_version}/{kind}")
        # Options and watch events belong to every group and version.
        return name or (META + kind if META + kind in self._table.types else None)

    def _type(self, name: str) -> _Type:
        definition = self._types.get(name)
        if definition is None:
            definition = self._types[name] = msgspec.json.decode(self._table.types[name], type=_Type)
        return definition

    def schema(self, name: str) -> dict[str, Any] | None:
        """The OpenAPI v3 schema of a type, without texts, `$ref` holding a bare type name."""
        return self._type(name).schema

    def go_fields(self, name: str) -> list[GoField]:
        """The fields of the type's Go struct; empty for a name that is not a struct."""
        return self._type(name).go if name in self._table.types else []

    def node(self, name: str) -> TypeNode:
        """The type as a node; recursive types end in lazy nodes."""
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = TypeNode.lazy(lambda: self._build(name))
        return node

    @property
    def object_meta(self) -> TypeNode:
        return self.node(OBJECT_META)

    def resources(self) -> list[kinds.Resource]:
        """The built-in kinds the server serves."""
        return [
            self._resource(group.get("metadata", {}).get("name", ""), version["version"], entry)
            for group in self._table.groups
            for version in group["versions"]
            for entry in version["resources"]
            if (group.get("metadata", {}).get("name", ""), version["version"], entry["resource"]) not in LEFT_OUT
        ]

    def _resource(self, group: str, version: str, entry: Mapping[str, Any]) -> kinds.Resource:
        key = (group, version, entry["resource"])
        path = "/".join(key)
        kind = entry["responseKind"]["kind"]
        api_version = f"{group}/{version}" if group else version
        type_name = self.type_name(api_version, kind)
        storage_key, renames = STORED_ELSEWHERE.get(key, (key, {}))
        return kinds.Resource(
            group=group,
            version=version,
            resource=entry["resource"],
            kind=kind,
            list_kind=kind + "List",
            singular=entry["singularResource"],
            namespaced=entry["scope"] == "Namespaced",
            type=self.node(type_name) if type_name else typegraph.ANY,
            short_names=tuple(entry.get("shortNames") or ()),
            categories=tuple(entry.get("categories") or ()),
            verbs=tuple(entry["verbs"]),
            subresources={
                sub["subresource"]: _subresource(group, version, sub) for sub in entry.get("subresources") or ()
            },
            columns=tuple(
                kinds.Column(name=name, type=type_, format=format_, priority=priority)
                for name, type_, format_, priority in self._table.columns.get(path, ())
            ),
            selectable=tuple(self._table.selectable.get(path, ())),
            storage_version=storage_key == key,
            storage_key=storage_key,
            renames=renames,
        )

    def _build(self, name: str) -> TypeNode:
        if name in SCALARS:
            return typegraph.scalar_node(SCALARS[name], name=name)
        if name in UNTYPED or name not in self._table.types:
            return TypeNode(shape="any", preserve_unknown=True, name=name)
        facts = self._type(name)
        fields: dict[str, TypeNode] = {}
        schema = facts.schema or {}
        properties: Mapping[str, Any] = schema.get("properties") or {}
        for go_field, defaults in self._flat_go_fields(name):
            use = properties.get(go_field.name) or {}
            fields[go_field.name] = self._field(use, go_field, defaults.get(go_field.name, msgspec.UNSET))
        return TypeNode(
            shape="struct",
            fields=fields,
            map_type=schema.get("x-kubernetes-map-type", "granular"),
            name=name,
        )

    def _flat_go_fields(self, name: str) -> list[tuple[GoField, Mapping[str, Any]]]:
        """All JSON fields of a struct with the defaults of the struct that declares each."""
        facts = self._type(name)
        flat: list[tuple[GoField, Mapping[str, Any]]] = []
        for go_field in facts.go:
            if "i" in go_field.flags:
                flat += self._flat_go_fields(go_field.type.lstrip("*"))
            elif go_field.name != "-":
                flat.append((go_field, facts.defaults))
        return flat

    def _field(self, use: Mapping[str, Any], go_field: GoField, default: Any) -> TypeNode:
        def fill() -> TypeNode:
            base = self._expression(go_field.type.lstrip("*"), use)
            strategy = use.get("x-kubernetes-patch-strategy", "")
            return base.using(
                patch_strategy=tuple(strategy.split(",")) if strategy else (),
                patch_key=use.get("x-kubernetes-patch-merge-key", ""),
                default=default,
                pointer=go_field.type.startswith("*"),
                omit_empty="e" in go_field.flags,
                omit_zero="z" in go_field.flags,
            )

        return TypeNode.lazy(fill)

    def _expression(self, expression: str, use: Mapping[str, Any]) -> TypeNode:
        """The node of a Go type expression, with what the OpenAPI schema of this use adds to it."""
        if expression.startswith(("[]", "M[]")):
            element = expression.split("[]", 1)[1]
            return TypeNode(
                shape="list",
                element=self._lazy_expression(element, use.get("items") or {}),
                list_type=use.get("x-kubernetes-list-type", "atomic"),
                list_keys=tuple(use.get("x-kubernetes-list-map-keys") or ()),
            )
        if expression.startswith("{}"):
            return TypeNode(
                shape="map",
                element=self._lazy_expression(expression[2:], use.get("additionalProperties") or {}),
                map_type=use.get("x-kubernetes-map-type", "granular"),
            )
        if "." in expression:
            base = self.node(expression)
            map_type = use.get("x-kubernetes-map-type")
            return base.using(map_type=map_type) if map_type else base
        kind, width = GO_SCALARS[expression]
        return typegraph.scalar_node(kind, width or use.get("format", ""))

    def _lazy_expression(self, expression: str, use: Mapping[str, Any]) -> TypeNode:
        return TypeNode.lazy(lambda: self._expression(expression.lstrip("*"), use))


GO_SCALARS = {
    "string": ("string", ""),
    "bool": ("boolean", ""),
    "int32": ("integer", "int32"),
    "int64": ("integer", "int64"),
    "float64": ("number", "double"),
    "bytes": ("bytes", "byte"),
}


def _subresource(group: str, version: str, entry: Mapping[str, Any]) -> kinds.Subresource:
    kind = entry["responseKind"]
    return kinds.Subresource(
        name=entry["subresource"],
        # Discovery leaves group and version empty where they are those of the resource.
        group=kind["group"] or group if not kind["version"] else kind["group"],
        version=kind["version"] or version,
        kind=kind["kind"],
        verbs=tuple(entry["verbs"]),
    )


def available() -> list[str]:
    """The minor versions a table is shipped for, oldest first."""
    names = [_TABLE.fullmatch(entry.name) for entry in importlib.resources.files(__name__).iterdir()]
    minors = [match[1] for match in names if match]
    return sorted(minors, key=lambda minor: tuple(int(part) for part in minor.split(".")))


def load(version: str = DEFAULT_VERSION) -> Facts:
    """The table of a version: 1.35, v1.35 and 1.35.4 all mean the table of the minor version."""
    match = _VERSION.fullmatch(version.strip())
    minor = match[1] if match else version
    if minor not in available():
        raise errors.Invalid(
            f"there are no facts of Kubernetes {version}",
            hint=f"use one of {', '.join(available())}, or make them with: bedplate lab facts",
        )
    table = importlib.resources.files(__name__).joinpath(f"v{minor}.json.gz")
    return Facts(gzip.decompress(table.read_bytes()))
