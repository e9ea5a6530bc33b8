"""Times as Kubernetes writes them: whole seconds in UTC, or six digits of a second (`MicroTime`).

A text that is not an RFC 3339 time comes back unchanged, because validation is not this module's task.
"""

from __future__ import annotations

import datetime
from typing import Any

__all__ = ["canonical", "canonical_micro"]


def canonical(given: Any) -> Any:
    """`2026-01-02T04:04:05.9+01:00` is `2026-01-02T03:04:05Z`."""
    if not isinstance(given, str) or (len(given) == 20 and given[-1] == "Z"):
        return given
    moment = _parse(given)
    return given if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def canonical_micro(given: Any) -> Any:
    """`2026-01-02T03:04:05Z` is `2026-01-02T03:04:05.000000Z`."""
    if not isinstance(given, str) or (len(given) == 27 and given[-1] == "Z"):
        return given
    moment = _parse(given)
    return given if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _parse(text: str) -> datetime.datetime | None:
    try:
        moment = datetime.datetime.fromisoformat(text)
        return moment.astimezone(datetime.UTC) if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
