"""What the API server does with a custom resource between decoding and storing it.

In: a version's `openAPIV3Schema` (compiled once) and decoded objects. Out: objects pruned and defaulted in place, and
the causes for which one is refused. Resetting status, bumping generation and judging metadata are the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bedplate.apiserver.crds import validations
from bedplate.apiserver.schema import causes, formats, gotext, shaping, values
from bedplate.apiserver.schema.causes import key_path
from bedplate.apiserver.status import FieldProblem

__all__ = ["CustomValidator", "check_embedded"]

_BLOCKING = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
_MAX_REPLICAS = 2**31 - 1

Schema = Mapping[str, Any]


class CustomValidator:
    """Defaults, prunes and validates the objects of one version of a custom kind."""

    def __init__(self, schema: Mapping[str, Any], *, scale: Mapping[str, Any] | None = None) -> None:
        self._schema = schema
        self._scale = scale or {}
        self._check = values.compile_check(schema, is_root=True)
        status = (schema.get("properties") or {}).get("status")
        self._check_status = values.compile_check(status) if status is not None else None
        self._fill = shaping.compile_defaults(schema)
        self._prune = shaping.compile_pruning(schema, is_resource=True)
        self._judges_lists = _holds(schema, lambda sub: sub.get("x-kubernetes-list-type") in ("set", "map"))
        self._judges_embedded = _holds(schema, lambda sub: bool(sub.get("x-kubernetes-embedded-resource")))
        self._rules = validations.compile_tree(schema, is_root=True)

    def default(self, obj: dict[str, Any]) -> None:
        if self._fill is not None:
            self._fill(obj)

    def prune(self, obj: dict[str, Any]) -> list[str]:
        """Remove unknown fields; their paths, sorted."""
        dropped: list[str] = []
        self._prune(obj, "", dropped)
        return sorted(dropped)

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None = None) -> list[FieldProblem]:
        """The faults of a new object, or of an update of `old`: what an update leaves unchanged is tolerated."""
        findings = values.Findings()
        self._check(obj, "", values.MISSING if old is None else old, findings)
        faults = values.to_causes(findings)
        faults += _check_replicas(obj, self._scale.get("specReplicasPath"))
        faults += _check_replicas(obj, self._scale.get("statusReplicasPath"))
        return faults + self._check_rest(obj, old, faults)

    def validate_status(self, obj: dict[str, Any], old: dict[str, Any]) -> list[FieldProblem]:
        """The faults of an update through the status subresource."""
        faults: list[FieldProblem] = []
        if "status" in obj and self._check_status is not None:
            findings = values.Findings()
            self._check_status(obj["status"], "", old.get("status", values.MISSING), findings)
            faults = values.to_causes(findings, "status")
        faults += _check_replicas(obj, self._scale.get("statusReplicasPath"))
        return faults + self._check_rest(obj, old, faults)

    def _check_rest(
        self, obj: dict[str, Any], old: dict[str, Any] | None, sofar: list[FieldProblem]
    ) -> list[FieldProblem]:
        faults: list[FieldProblem] = []
        if self._judges_embedded:
            faults += check_embedded(self._schema, obj)
        if self._judges_lists and (old is None or not _check_lists(self._schema, old)):
            faults += _check_lists(self._schema, obj)
        if self._rules is not None:
            if any(cause.reason in _BLOCKING for cause in [*sofar, *faults]):
                faults.append(causes.invalid(causes.NO_PATH, None, _UNCHECKED))
            else:
                faults += self._rules.validate(obj, old)
        return faults


def _check_replicas(obj: Mapping[str, Any], path: str | None) -> list[FieldProblem]:
    if not path:
        return []
    value: Any = obj
    for name in path.lstrip(".").split("."):
        if not isinstance(value, dict) or name not in value:
            return []
        value = value[name]
    if isinstance(value, bool) or not isinstance(value, int):
        return []
    if value < 0:
        return [causes.invalid(path, value, "should be a non-negative integer")]
    if value > _MAX_REPLICAS:
        return [causes.invalid(path, value, f"should be less than or equal to {_MAX_REPLICAS}")]
    return []


def _holds(schema: Any, predicate: Callable[[Schema], bool]) -> bool:
    if not isinstance(schema, Mapping):
        return False
    subs = [*(schema.get("properties") or {}).values(), schema.get("additionalProperties"), schema.get("items")]
    return predicate(schema) or any(_holds(sub, predicate) for sub in subs)


def _parts(schema: Schema, value: Any, path: str = "") -> Iterator[tuple[Schema, Any, str]]:
    """An object or list and all those below it that have a schema, with their paths."""
    yield schema, value, path
    below: list[tuple[Schema, Any, str]] = []
    if isinstance(value, dict):
        properties: Schema = schema.get("properties") or {}
        extra = schema.get("additionalProperties")
        for name, member in value.items():
            if name in properties:
                below.append((properties[name], member, f"{path}.{name}" if path else name))
            elif isinstance(extra, Mapping):
                below.append((extra, member, key_path(path, name)))
    elif isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        below = [(schema["items"], item, f"{path}[{index}]") for index, item in enumerate(value)]
    for sub, member, where in below:
        if isinstance(member, list | dict):
            yield from _parts(sub, member, where)


def _check_lists(schema: Schema, value: Any) -> list[FieldProblem]:
    """Lists that are sets or maps hold every element or key once."""
    faults: list[FieldProblem] = []
    for sub, part, path in _parts(schema, value):
        kind = sub.get("x-kubernetes-list-type")
        if isinstance(part, list) and kind == "set":
            faults += [causes.duplicate(f"{path}[{index}]", part[index]) for index in _repeated(part)]
        elif isinstance(part, list) and kind == "map":
            faults += _check_map(part, sub.get("x-kubernetes-list-map-keys") or (), path)
    return faults


def _check_map(value: Sequence[Any], keys: Sequence[str], path: str) -> list[FieldProblem]:
    for index, item in enumerate(value):
        if item is not None and not isinstance(item, dict):
            return [causes.invalid(f"{path}[{index}]", item, "must be an object for an array of list-type map")]
    key_values = [{key: item[key] for key in keys if key in item} if item else {} for item in value]
    return [causes.duplicate(f"{path}[{index}]", key_values[index]) for index in _repeated(key_values)]


def _repeated(items: Sequence[Any]) -> list[int]:
    """Where an element appears for the second time."""
    seen: dict[str, int] = {}
    repeated = []
    for index, item in enumerate(items):
        text = type(item).__name__ + gotext.marshal(item)
        seen[text] = seen.get(text, 0) + 1
        if seen[text] == 2:
            repeated.append(index)
    return repeated


def check_embedded(schema: Schema, value: Any, path: str = "") -> list[FieldProblem]:
    """Embedded resources say what they are."""
    faults: list[FieldProblem] = []
    for sub, part, where in _parts(schema, value, path):
        if isinstance(part, dict) and sub.get("x-kubernetes-embedded-resource"):
            faults += _check_resource(part, where)
    return faults


def _check_resource(value: Mapping[str, Any], path: str) -> Iterator[FieldProblem]:
    for name in ("apiVersion", "kind"):
        where = f"{path}.{name}" if path else name
        if name not in value:
            yield causes.required(where)
        elif not isinstance(value[name], str):
            yield causes.invalid(where, value[name], "must be a string")
        elif not value[name]:
            yield causes.invalid(where, "", "must not be empty")
        elif name == "apiVersion" and value[name].count("/") > 1:
            yield causes.invalid(where, value[name], f"unexpected GroupVersion string: {value[name]}")
        elif name == "kind" and (faults := formats.dns1035_label(value[name].lower())):
            detail = "may have mixed case, but should otherwise match: " + ",".join(faults)
            yield causes.invalid(where, value[name], detail)
