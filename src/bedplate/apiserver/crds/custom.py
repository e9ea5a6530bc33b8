"""What the API server does with a custom resource between decoding and storing it.

In: a version's `openAPIV3Schema` (compiled once) and decoded objects. Out: objects pruned and defaulted in place, and
the causes for which one is refused. Resetting status, bumping generation and judging metadata are the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bedplate.apiserver.crds import validations
from bedplate.apiserver.schema import causes, shaping, uniqueness, values
from bedplate.apiserver.schema.causes import Cause

__all__ = ["CustomValidator"]

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
        self._judges_lists = uniqueness.needs_list_check(schema)
        self._judges_embedded = uniqueness.needs_embedded_check(schema)
        self._rules = validations.compile_tree(schema, is_root=True)

    def default(self, obj: dict[str, Any]) -> None:
        if self._fill is not None:
            self._fill(obj)

    def prune(self, obj: dict[str, Any]) -> list[str]:
        """Remove unknown fields; their paths, sorted."""
        dropped: list[str] = []
        self._prune(obj, "", dropped)
        return sorted(dropped)

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None = None) -> list[Cause]:
        """The faults of a new object, or of an update of `old`: what an update leaves unchanged is tolerated."""
        findings = values.Findings()
        self._check(obj, "", values.MISSING if old is None else old, findings)
        faults = values.to_causes(findings)
        faults += _check_replicas(obj, self._scale.get("specReplicasPath"))
        faults += _check_replicas(obj, self._scale.get("statusReplicasPath"))
        return faults + self._check_rest(obj, old, faults)

    def validate_status(self, obj: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
        """The faults of an update through the status subresource."""
        faults: list[Cause] = []
        if "status" in obj and self._check_status is not None:
            findings = values.Findings()
            self._check_status(obj["status"], "", old.get("status", values.MISSING), findings)
            faults = values.to_causes(findings, "status")
        faults += _check_replicas(obj, self._scale.get("statusReplicasPath"))
        return faults + self._check_rest(obj, old, faults)

    def _check_rest(self, obj: dict[str, Any], old: dict[str, Any] | None, sofar: list[Cause]) -> list[Cause]:
        faults: list[Cause] = []
        if self._judges_embedded:
            faults += uniqueness.check_embedded(self._schema, obj)
        if self._judges_lists and (old is None or not uniqueness.check_lists(self._schema, old)):
            faults += uniqueness.check_lists(self._schema, obj)
        if self._rules is not None:
            if any(cause.reason in _BLOCKING for cause in [*sofar, *faults]):
                faults.append(causes.invalid(causes.NO_PATH, None, _UNCHECKED))
            else:
                faults += self._rules.validate(obj, old)
        return faults


def _check_replicas(obj: Mapping[str, Any], path: str | None) -> list[Cause]:
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
