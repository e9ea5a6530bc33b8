"""Whether a schema is structural: every field named outside of `anyOf`, `oneOf`, `allOf` and `not`, with a type.

In: an `openAPIV3Schema` and the path where it stands in its CustomResourceDefinition. Out: causes, in the server's
order (by text). Other rules for schemas are in `definition`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bedplate.apiserver.schema import causes, gotext
from bedplate.apiserver.schema.causes import key_path
from bedplate.apiserver.status import FieldProblem

__all__ = ["check_structural"]

_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_EMPTY_TYPE = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
_NESTED_FORBIDDEN = {
    "type": "must be empty to be structural",
    "additionalProperties": "must be undefined to be structural",
    "default": "must be undefined to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "nullable": "must be false to be structural",
    "x-kubernetes-preserve-unknown-fields": "must be false to be structural",
    "x-kubernetes-embedded-resource": "must be false to be structural",
    "x-kubernetes-int-or-string": "must be false to be structural",
    "x-kubernetes-list-map-keys": "must be empty to be structural",
    "x-kubernetes-list-type": "must be undefined to be structural",
    "x-kubernetes-map-type": "must be undefined to be structural",
    "x-kubernetes-validations": "must be empty to be structural",
}
_UNDEFINED = frozenset({"additionalProperties", "default", "x-kubernetes-list-type", "x-kubernetes-map-type"})

Schema = Mapping[str, Any]


def check_structural(schema: Schema, path: str) -> list[FieldProblem]:
    faults = [*_invariants(schema, "root", path), *_completeness(schema, schema, path, path)]
    return sorted(faults, key=str)


def _invariants(schema: Schema, level: str, path: str) -> Iterator[FieldProblem]:
    kind = schema.get("type", "")
    items, extra = schema.get("items"), schema.get("additionalProperties")
    if kind == "array" and items is None:
        yield causes.required(f"{path}.items", "must be specified")
    if isinstance(items, Mapping):
        yield from _invariants(items, "item", f"{path}.items")
    for name, sub in (schema.get("properties") or {}).items():
        yield from _invariants(sub, "field", key_path(f"{path}.properties", name))
    if extra is not None and level == "root":
        yield causes.forbidden(f"{path}.additionalProperties", "must not be used at the root")
    if isinstance(extra, Mapping):
        yield from _invariants(extra, "field", f"{path}.additionalProperties")
    yield from _extensions(schema, path)
    yield from _values(
        schema, path, skips_any=schema.get("anyOf") == _INT_OR_STRING, skips_first_all=_all_of_pattern(schema)
    )
    yield from _types(schema, level, path)
    yield from _metadata(schema, level, path)


def _all_of_pattern(schema: Schema) -> bool:
    all_of = schema.get("allOf") or []
    return bool(all_of) and all_of[0].get("anyOf") == _INT_OR_STRING


def _extensions(schema: Schema, path: str) -> Iterator[FieldProblem]:
    if schema.get("x-kubernetes-int-or-string"):
        for name in ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"):
            if schema.get(name):
                yield causes.invalid(f"{path}.{name}", True, "must be false if x-kubernetes-int-or-string is true")


def _types(schema: Schema, level: str, path: str) -> Iterator[FieldProblem]:
    kind, embedded = schema.get("type", ""), schema.get("x-kubernetes-embedded-resource")
    untyped_allowed = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if embedded and kind != "object":
        detail = "must be object if x-kubernetes-embedded-resource is true"
        yield causes.invalid(f"{path}.type", kind, detail) if kind else causes.required(f"{path}.type", detail)
    elif not kind and not untyped_allowed:
        yield causes.required(f"{path}.type", _EMPTY_TYPE[level])
    if embedded and schema.get("additionalProperties") is not None:
        detail = "must not be used if x-kubernetes-embedded-resource is set"
        yield causes.forbidden(f"{path}.additionalProperties", detail)
    if level == "root" and kind and kind != "object":
        yield causes.invalid(f"{path}.type", kind, "must be object at the root")
    if embedded and not schema.get("x-kubernetes-preserve-unknown-fields") and not schema.get("properties"):
        detail = (
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        )
        yield causes.required(f"{path}.properties", detail)


def _metadata(schema: Schema, level: str, path: str) -> Iterator[FieldProblem]:
    """Of the metadata of a resource a schema may only restrict name and generateName."""
    properties: Schema = schema.get("properties") or {}
    is_resource = level == "root" or bool(schema.get("x-kubernetes-embedded-resource"))
    for name in ("kind", "apiVersion"):
        if is_resource and name in properties and properties[name].get("type") != "string":
            where = key_path(f"{path}.properties", name)
            yield causes.invalid(f"{where}.type", properties[name].get("type", ""), "must be string")
    metadata = properties.get("metadata")
    if metadata is None:
        return
    where = key_path(f"{path}.properties", "metadata")
    if is_resource and metadata.get("type") != "object":
        yield causes.invalid(f"{where}.type", metadata.get("type", ""), "must be object")
    if level == "root":
        named = set(metadata.get("properties") or ())
        rest = {key for key, value in metadata.items() if value and key not in ("type", "default", "properties")}
        if rest or named - {"name", "generateName"}:
            detail = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            yield causes.forbidden(where, detail)


def _values(
    schema: Schema, path: str, *, skips_any: bool = False, skips_first_all: bool = False
) -> Iterator[FieldProblem]:
    if not skips_any:
        for index, sub in enumerate(schema.get("anyOf") or ()):
            yield from _nested(sub, f"{path}.anyOf[{index}]")
    for index, sub in enumerate(schema.get("allOf") or ()):
        yield from _nested(sub, f"{path}.allOf[{index}]", skips_any=skips_first_all and index == 0)
    for index, sub in enumerate(schema.get("oneOf") or ()):
        yield from _nested(sub, f"{path}.oneOf[{index}]")
    if schema.get("not") is not None:
        yield from _nested(schema["not"], f"{path}.not")
    if pattern := schema.get("pattern"):
        try:
            gotext.compile_pattern(pattern)
        except gotext.PatternError as error:
            detail = f"must be a valid regular expression, but isn't: {error}"
            yield causes.invalid(f"{path}.pattern", pattern, detail)


def _nested(schema: Schema, path: str, *, skips_any: bool = False) -> Iterator[FieldProblem]:
    yield from _values(schema, path, skips_any=skips_any)
    if isinstance(schema.get("items"), Mapping):
        yield from _nested(schema["items"], f"{path}.items")
    properties: Schema = schema.get("properties") or {}
    for name, sub in properties.items():
        yield from _nested(sub, key_path(f"{path}.properties", name))
    for name, detail in _NESTED_FORBIDDEN.items():
        if schema.get(name) is not None if name in _UNDEFINED else schema.get(name):
            yield causes.forbidden(f"{path}.{name}", detail)
    if "metadata" in properties:
        where = key_path(f"{path}.properties", "metadata")
        yield causes.forbidden(where, "must not be specified in a nested context")


def _completeness(values: Schema, schema: Schema, path: str, values_path: str) -> Iterator[FieldProblem]:
    """Every field that a nested check names must be named by the schema itself."""
    if values.get("not") is not None:
        yield from _nested_completeness(values["not"], schema, path, f"{values_path}.not")
    for word in ("allOf", "anyOf", "oneOf"):
        for index, sub in enumerate(values.get(word) or ()):
            yield from _nested_completeness(sub, schema, path, f"{values_path}.{word}[{index}]")


def _nested_completeness(values: Schema, schema: Schema | None, path: str, values_path: str) -> Iterator[FieldProblem]:
    if schema is None:
        yield causes.required(path, f"because it is defined in {values_path}")
        return
    yield from _completeness(values, schema, path, values_path)
    if isinstance(values.get("items"), Mapping):
        items = schema.get("items")
        yield from _nested_completeness(values["items"], items, f"{path}.items", f"{values_path}.items")
    properties: Schema = schema.get("properties") or {}
    for name, sub in (values.get("properties") or {}).items():
        where = key_path(f"{values_path}.properties", name)
        yield from _nested_completeness(sub, properties.get(name), key_path(f"{path}.properties", name), where)
