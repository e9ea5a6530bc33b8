"""What is wrong with a field, in the words of the Kubernetes API server.

In: the path of a field, its value, a detail. Out: a `FieldProblem` that shows the value of a custom object or of a
definition as Go does. Deciding what is wrong is up to the callers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bedplate.apiserver.schema import gotext
from bedplate.apiserver.status import FieldProblem

__all__ = [
    "NO_PATH",
    "OMITTED",
    "duplicate",
    "forbidden",
    "invalid",
    "key_path",
    "not_supported",
    "required",
    "too_long",
    "too_many",
    "type_invalid",
]

NO_PATH = "<nil>"
"""how the server writes the path of the whole object."""

_HEADINGS = {
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueInvalid": "Invalid value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueTooLong": "Too long",
    "FieldValueTooMany": "Too many",
    "FieldValueTypeInvalid": "Invalid value",
}

OMITTED: Any = object()
"""a value that is not shown."""


def _problem(reason: str, field: str, value: Any, detail: str) -> FieldProblem:
    text = _HEADINGS[reason]
    if isinstance(value, str):
        text += ": " + gotext.quote(value)
    elif isinstance(value, bool | float):
        text += ": " + gotext.show(value)
    elif value is not OMITTED:
        text += ": " + gotext.marshal(value)
    return FieldProblem(reason, field, f"{text}: {detail}" if detail else text)


def invalid(field: str, value: Any, detail: str) -> FieldProblem:
    return _problem("FieldValueInvalid", field, value, detail)


def type_invalid(field: str, value: Any, detail: str) -> FieldProblem:
    return _problem("FieldValueTypeInvalid", field, value, detail)


def required(field: str, detail: str = "") -> FieldProblem:
    return _problem("FieldValueRequired", field, OMITTED, detail)


def forbidden(field: str, detail: str) -> FieldProblem:
    return _problem("FieldValueForbidden", field, OMITTED, detail)


def duplicate(field: str, value: Any) -> FieldProblem:
    return _problem("FieldValueDuplicate", field, value, "")


def not_supported(field: str, value: Any, supported: Sequence[str]) -> FieldProblem:
    detail = "supported values: " + ", ".join(gotext.quote(text) for text in supported) if supported else ""
    return _problem("FieldValueNotSupported", field, value, detail)


def too_long(field: str, limit: int) -> FieldProblem:
    unit = "byte" if limit == 1 else "bytes"
    return _problem("FieldValueTooLong", field, OMITTED, f"may not be more than {limit} {unit}")


def too_many(field: str, actual: int, limit: int) -> FieldProblem:
    unit = "item" if limit == 1 else "items"
    return _problem("FieldValueTooMany", field, actual, f"must have at most {limit} {unit}")


def key_path(parent: str, key: str) -> str:
    """The path of a map's member: `spec.labels[app]`."""
    return f"{parent}[{key}]"
