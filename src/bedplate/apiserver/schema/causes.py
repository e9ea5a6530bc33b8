"""What is wrong with a field, in the words of the Kubernetes API server.

In: the path of a field, its value, a detail. Out: a `Cause`, which knows its line in `status.details.causes` and its
text in `status.message`. Deciding what is wrong is up to the callers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bedplate.apiserver.schema import gotext

__all__ = [
    "NO_PATH",
    "OMITTED",
    "Cause",
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
    "FieldValueNotFound": "Not found",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueInvalid": "Invalid value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueTooLong": "Too long",
    "FieldValueTooMany": "Too many",
    "InternalError": "Internal error",
    "FieldValueTypeInvalid": "Invalid value",
}
_WITHOUT_VALUE = frozenset({"FieldValueRequired", "FieldValueForbidden", "FieldValueTooLong", "InternalError"})


class _Omitted:
    def __repr__(self) -> str:
        return "OMITTED"


OMITTED = _Omitted()
"""a value that is not shown."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One fault of one field."""

    reason: str
    field: str
    value: Any
    detail: str

    @property
    def message(self) -> str:
        """The text without the path, as in `status.details.causes[].message`."""
        text = _HEADINGS[self.reason]
        if self.reason not in _WITHOUT_VALUE and self.value is not OMITTED:
            if isinstance(self.value, str):
                text += ": " + gotext.quote(self.value)
            elif isinstance(self.value, bool | float):
                text += ": " + gotext.show(self.value)
            else:
                text += ": " + gotext.marshal(self.value)
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def invalid(field: str, value: Any, detail: str) -> Cause:
    return Cause("FieldValueInvalid", field, value, detail)


def type_invalid(field: str, value: Any, detail: str) -> Cause:
    return Cause("FieldValueTypeInvalid", field, value, detail)


def required(field: str, detail: str = "") -> Cause:
    return Cause("FieldValueRequired", field, OMITTED, detail)


def forbidden(field: str, detail: str) -> Cause:
    return Cause("FieldValueForbidden", field, OMITTED, detail)


def duplicate(field: str, value: Any) -> Cause:
    return Cause("FieldValueDuplicate", field, value, "")


def not_supported(field: str, value: Any, supported: Sequence[str]) -> Cause:
    detail = "supported values: " + ", ".join(gotext.quote(text) for text in supported) if supported else ""
    return Cause("FieldValueNotSupported", field, value, detail)


def too_long(field: str, limit: int) -> Cause:
    unit = "byte" if limit == 1 else "bytes"
    return Cause("FieldValueTooLong", field, OMITTED, f"may not be more than {limit} {unit}")


def too_many(field: str, actual: int, limit: int) -> Cause:
    unit = "item" if limit == 1 else "items"
    return Cause("FieldValueTooMany", field, actual, f"must have at most {limit} {unit}")


def key_path(parent: str, key: str) -> str:
    """The path of a map's member: `spec.labels[app]`."""
    return f"{parent}[{key}]"
