"""Parts of a body that a behaviour's own handler reads, checked to be what they must be.

In: decoded bodies of subresources and options, which no kind's rules have seen. Out: the part in its type, empty where
it is left out; 400 where it is something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bedplate.apiserver import status

__all__ = ["mapping", "number", "text", "texts"]


def mapping(holder: Mapping[str, Any] | None, field: str) -> dict[str, Any]:
    """An object."""
    value = (holder or {}).get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _refusal(field, "an object")
    return value


def text(holder: Mapping[str, Any], field: str) -> str:
    value = holder.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _refusal(field, "a string")
    return value


def texts(holder: Mapping[str, Any], field: str) -> list[str]:
    value = holder.get(field)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise _refusal(field, "a list of strings")
    return value


def number(holder: Mapping[str, Any], field: str) -> int | None:
    """An integer of 64 bits; None where it is left out."""
    value = holder.get(field)
    if value is None:
        return None
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise _refusal(field, "an integer")
    return value


def _refusal(field: str, expected: str) -> status.StatusError:
    return status.bad_request(f"json: cannot unmarshal the field {field}: it must be {expected}")
