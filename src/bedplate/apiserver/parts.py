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
    found = (holder or {}).get(field)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise _refusal(field, "an object")
    return found


def text(holder: Mapping[str, Any], field: str) -> str:
    found = holder.get(field)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise _refusal(field, "a string")
    return found


def texts(holder: Mapping[str, Any], field: str) -> list[str]:
    found = holder.get(field)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise _refusal(field, "a list of strings")
    return found


def number(holder: Mapping[str, Any], field: str) -> int | None:
    """A whole number of 64 bits; None where it is left out."""
    found = holder.get(field)
    if found is None:
        return None
    if type(found) is not int or not -(1 << 63) <= found < 1 << 63:
        raise _refusal(field, "a whole number")
    return found


def _refusal(field: str, wanted: str) -> status.StatusError:
    return status.bad_request(f"json: cannot unmarshal the field {field}: it must be {wanted}")
