"""The rules for the schema of a CustomResourceDefinition's version.

In: the version's `openAPIV3Schema`, its path. Out: causes, in the server's words. CEL rules are judged (by
`validations`) only where the schema around them is sound.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from bedplate.apiserver.crds import custom, validations
from bedplate.apiserver.schema import causes, shaping, structural, values
from bedplate.apiserver.schema.causes import key_path
from bedplate.apiserver.status import FieldProblem

__all__ = ["check_schema"]

Schema = Mapping[str, Any]

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_META = ("metadata", "kind", "apiVersion")
_UNSUPPORTED = ("additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_ROOT_WITH_STATUS = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern "
    "MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields "
    "XValidations"
)
_TOTAL_LIMIT = 100_000_000
_IF_STATUS = "if the status subresource is enabled"


def check_schema(schema: Schema, path: str, *, has_status: bool) -> list[FieldProblem]:
    """All faults of a version's schema."""
    faults: list[FieldProblem] = []
    if has_status:
        faults += _root_with_status(schema, path)
    if schema.get("nullable"):
        faults.append(causes.forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    shape = structural.check_structural(schema, path) if not _is_unsupported(schema) else []
    shape = shape or _check_defaults(schema, path, True)
    faults += shape
    judged, rule_faults, costs = _check_place(validations.Place(schema, path, is_root=True, judges_rules=not shape))
    return faults + judged + rule_faults + _check_total(costs, path)


def _check_total(costs: list[tuple[str, int]], path: str) -> list[FieldProblem]:
    total = sum(cost for _, cost in costs)
    if total <= _TOTAL_LIMIT:
        return []
    detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
    worst = sorted((entry for entry in costs if entry[1] >= _TOTAL_LIMIT // 100), key=lambda entry: -entry[1])[:4]
    what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
    whole = causes.forbidden(path, validations.cost_text(what, total, _TOTAL_LIMIT))
    return [*(causes.forbidden(where, detail) for where, _ in worst), whole]


def _root_with_status(schema: Schema, path: str) -> list[FieldProblem]:
    allowed = set(_ROOT_WITH_STATUS.split())
    for name, value in schema.items():
        if not value:
            continue
        if name == "type" and value != "object":
            detail = (
                'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
            )
            return [causes.invalid(f"{path}.type", value, detail)]
        go_name = "X" + "".join(part.title() for part in name[2:].split("-")[1:]) if name.startswith("x-") else name
        go_name = go_name[:1].upper() + go_name[1:]
        if go_name not in allowed:
            detail = f"only [{_ROOT_WITH_STATUS}] fields are allowed at the root of the schema {_IF_STATUS}"
            return [causes.invalid(path, schema, detail)]
    return []


def _is_unsupported(schema: Any) -> bool:
    """Whether the server cannot even read it as a structural schema."""
    if not isinstance(schema, Mapping):
        return False
    if any(schema.get(name) for name in _UNSUPPORTED) or isinstance(schema.get("items"), list):
        return True
    subs = [*(schema.get("properties") or {}).values(), schema.get("additionalProperties"), schema.get("items")]
    return any(_is_unsupported(sub) for sub in subs)


def _check_defaults(schema: Schema, path: str, is_root: bool) -> list[FieldProblem]:
    """Defaults must be valid, and hold no unknown field."""
    faults: list[FieldProblem] = []
    embedded = bool(schema.get("x-kubernetes-embedded-resource"))
    if schema.get("default") is not None:
        faults += _check_default(schema, f"{path}.default", embedded)
    if isinstance(schema.get("items"), Mapping):
        faults += _check_defaults(schema["items"], f"{path}.items", False)
    for name, sub in (schema.get("properties") or {}).items():
        if not (is_root and name in _META):
            faults += _check_defaults(sub, key_path(f"{path}.properties", name), False)
    return faults


def _check_default(schema: Schema, path: str, embedded: bool) -> list[FieldProblem]:
    default, unknown = schema["default"], []
    dropped: list[str] = []
    shaping.compile_pruning(schema, is_resource=embedded)(copy.deepcopy(default), "", dropped)
    if dropped:
        unknown.append(causes.invalid(path, default, "must not have unknown fields"))
    faults = custom.check_embedded(schema, default, path)
    if not faults:
        findings = values.Findings()
        values.compile_check(schema)(default, "", values.MISSING, findings)
        faults = values.to_causes(findings, path)
    return unknown + (faults or validations.check_default(schema, default, path))


Costs = list[tuple[str, int]]


def _check_place(place: validations.Place) -> tuple[list[FieldProblem], list[FieldProblem], Costs]:
    """Faults of a schema and all below it: those of the schema, those of its rules; and the rules' costs."""
    schema, path = place.schema, place.path
    faults: list[FieldProblem] = [*_check_basics(place)]
    rule_faults: list[FieldProblem] = []
    costs: Costs = []
    for sub in _below(place):
        sub_faults, sub_rule_faults, sub_costs = _check_place(sub)
        faults += sub_faults
        rule_faults += sub_rule_faults
        costs += sub_costs
    faults += [*_check_extensions(schema, path), *_check_lists(schema, path), *_check_map_keys(schema, path)]
    if schema.get("x-kubernetes-validations"):
        faults += _check_rule_texts(schema, f"{path}.x-kubernetes-validations")
        if not faults and place.judges_rules:
            own_faults, own_costs = validations.check_rules(place)
            rule_faults += own_faults
            costs += own_costs
    return faults, rule_faults, costs


def _check_basics(place: validations.Place) -> Iterator[FieldProblem]:
    schema, path = place.schema, place.path
    kind = schema.get("type", "")
    if kind and kind not in _TYPES:
        yield causes.not_supported(f"{path}.type", kind, _TYPES)
    if schema.get("default") is not None and place.no_defaults:
        yield causes.forbidden(f"{path}.default", f"must not be set {place.no_defaults}")
    if schema.get("id"):
        yield causes.forbidden(f"{path}.id", "id is not supported")
    for name in _UNSUPPORTED:
        if schema.get(name):
            yield causes.forbidden(f"{path}.{name}", f"{name} is not supported")
    if kind == "null":
        yield causes.forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if isinstance(schema.get("items"), list):
        yield causes.forbidden(f"{path}.items", "items must be a schema object and not an array")
    if place.in_metadata and schema.get("x-kubernetes-embedded-resource"):
        yield causes.forbidden(f"{path}.x-kubernetes-embedded-resource", "must not be used inside of resource meta")
    if schema.get("uniqueItems"):
        detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield causes.forbidden(f"{path}.uniqueItems", detail)
    extra = schema.get("additionalProperties")
    if extra is not None and schema.get("properties") and extra is not True:
        detail = "additionalProperties and properties are mutual exclusive"
        yield causes.forbidden(f"{path}.additionalProperties", detail)


def _below(place: validations.Place) -> Iterator[validations.Place]:
    schema, path = place.schema, place.path
    is_resource = place.is_root or bool(schema.get("x-kubernetes-embedded-resource"))
    extra, items = schema.get("additionalProperties"), schema.get("items")
    base = replace(place, is_root=False)
    if isinstance(extra, Mapping):
        refusal = "inside additionalProperties applying to object metadata" if place.in_metadata else place.no_defaults
        times = _times(place.cardinality, schema.get("maxProperties"))
        yield replace(base, schema=extra, path=f"{path}.additionalProperties", no_defaults=refusal, cardinality=times)
    for name, sub in (schema.get("properties") or {}).items():
        in_metadata = is_resource and name in _META
        yield replace(
            base,
            schema=sub,
            path=key_path(f"{path}.properties", name),
            in_metadata=place.in_metadata or in_metadata,
            no_defaults=f"in top-level {name}" if in_metadata and place.is_root else place.no_defaults,
        )
    if schema.get("not") is not None:
        yield replace(base, schema=schema["not"], path=f"{path}.not", judges_rules=False)
    for word in ("allOf", "oneOf", "anyOf"):
        for index, sub in enumerate(schema.get(word) or ()):
            yield replace(base, schema=sub, path=f"{path}.{word}[{index}]", judges_rules=False)
    if isinstance(items, Mapping):
        loose = "" if schema.get("x-kubernetes-list-type") == "map" else path
        times = _times(place.cardinality, schema.get("maxItems"))
        where = place.uncorrelatable or loose
        yield replace(base, schema=items, path=f"{path}.items", uncorrelatable=where, cardinality=times)


def _times(cardinality: int | None, most: int | None) -> int | None:
    return None if cardinality is None or most is None else cardinality * most


def _check_extensions(schema: Schema, path: str) -> Iterator[FieldProblem]:
    kind = schema.get("type", "")
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        where = f"{path}.x-kubernetes-preserve-unknown-fields"
        yield causes.invalid(where, False, "must be true or undefined")
    map_type = schema.get("x-kubernetes-map-type")
    if map_type is not None and kind != "object":
        detail = "must be object if x-kubernetes-map-type is specified"
        yield causes.invalid(f"{path}.type", kind, detail) if kind else causes.required(f"{path}.type", detail)
    if map_type is not None and map_type not in ("atomic", "granular"):
        yield causes.not_supported(f"{path}.x-kubernetes-map-type", map_type, ("atomic", "granular"))


def _check_lists(schema: Schema, path: str) -> Iterator[FieldProblem]:
    kind, list_type = schema.get("type", ""), schema.get("x-kubernetes-list-type")
    items = schema.get("items")
    keys = schema.get("x-kubernetes-list-map-keys") or []
    type_path, keys_path = f"{path}.x-kubernetes-list-type", f"{path}.x-kubernetes-list-map-keys"
    if list_type is not None and kind != "array":
        detail = "must be array if x-kubernetes-list-type is specified"
        yield causes.invalid(f"{path}.type", kind, detail) if kind else causes.required(f"{path}.type", detail)
    elif list_type == "set" and isinstance(items, Mapping):
        detail = "must be atomic as item of a list with x-kubernetes-list-type=set"
        inner = items.get("x-kubernetes-list-type")
        if items.get("type") == "array" and inner not in (None, "atomic"):
            yield causes.invalid(f"{path}.items.x-kubernetes-list-type", inner, detail)
        if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
            yield causes.invalid(f"{path}.items.x-kubernetes-map-type", inner, detail)
    if list_type not in (None, "atomic", "set", "map"):
        yield causes.not_supported(type_path, list_type, ("atomic", "set", "map"))
    if keys and list_type != "map":
        detail = "must be map if x-kubernetes-list-map-keys is non-empty"
        yield causes.required(type_path, detail) if list_type is None else causes.invalid(type_path, list_type, detail)
    if list_type == "map":
        if not keys:
            yield causes.required(keys_path, "must not be empty if x-kubernetes-list-type is map")
        if items is None:
            yield causes.required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
        elif items.get("type") != "object":
            detail = "must be object if parent array's x-kubernetes-list-type is map"
            yield causes.invalid(f"{path}.items.type", items.get("type", ""), detail)
        else:
            yield from _check_keys(items, keys, path)


def _check_keys(items: Schema, keys: list[str], path: str) -> Iterator[FieldProblem]:
    properties: Schema = items.get("properties") or {}
    seen: set[str] = set()
    keys_path = f"{path}.x-kubernetes-list-map-keys"
    for key in keys:
        if key not in properties:
            yield causes.invalid(keys_path, keys, "entries must all be names of item properties")
        elif properties[key].get("type") in ("array", "object"):
            detail = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield causes.invalid(f"{key_path(f'{path}.items.properties', key)}.type", items.get("type"), detail)
        if key in seen:
            yield causes.invalid(keys_path, keys, "must not contain duplicate entries")
        seen.add(key)


def _check_map_keys(schema: Schema, path: str) -> Iterator[FieldProblem]:
    items, list_type = schema.get("items"), schema.get("x-kubernetes-list-type")
    if not isinstance(items, Mapping) or list_type not in ("set", "map"):
        return
    if items.get("nullable"):
        detail = f"cannot be nullable when x-kubernetes-list-type is {list_type}"
        yield causes.forbidden(f"{path}.items.nullable", detail)
    if list_type == "set":
        return
    properties: Schema = items.get("properties") or {}
    for key in schema.get("x-kubernetes-list-map-keys") or ():
        if key not in properties:
            continue
        where = key_path(f"{path}.items.properties", key)
        about = "this property is in x-kubernetes-list-map-keys, so it"
        if key not in (items.get("required") or ()) and properties[key].get("default") is None:
            yield causes.required(f"{where}.default", f"{about} must have a default or be a required property")
        if properties[key].get("nullable"):
            yield causes.forbidden(f"{where}.nullable", f"{about} cannot be nullable")


def _check_rule_texts(schema: Schema, path: str) -> Iterator[FieldProblem]:
    for index, rule in enumerate(schema["x-kubernetes-validations"]):
        where, message, text = f"{path}[{index}]", rule.get("message") or "", (rule.get("rule") or "").strip()
        if not text:
            yield causes.required(f"{where}.rule", "rule is not specified")
        elif message and not message.strip():
            yield causes.invalid(f"{where}.message", message, "must be non-empty if specified")
        elif _has_newline(message.strip()):
            yield causes.invalid(f"{where}.message", message, "must not contain line breaks")
        elif _has_newline(text) and not message.strip():
            detail = "message must be specified if rule contains line breaks"
            yield causes.required(f"{where}.message", detail)
        expression = rule.get("messageExpression") or ""
        if expression and not expression.strip():
            detail = "messageExpression must be non-empty if specified"
            yield causes.required(f"{where}.messageExpression", detail)
        reason = rule.get("reason")
        if reason is not None and reason not in _REASONS:
            yield causes.not_supported(f"{where}.reason", reason, _REASONS)
        yield from _check_field_path(schema, rule.get("fieldPath") or "", f"{where}.fieldPath")


def _check_field_path(schema: Schema, field_path: str, where: str) -> Iterator[FieldProblem]:
    if not field_path:
        return
    if not field_path.strip():
        yield causes.invalid(where, field_path, "must be non-empty if specified")
    if _has_newline(field_path):
        yield causes.invalid(where, field_path, "must not contain line breaks")
    if validations.resolve_path(schema, field_path) is None:
        yield causes.invalid(where, field_path, "must be a valid path")


def _has_newline(text: str) -> bool:
    return "\n" in text or "\r" in text
