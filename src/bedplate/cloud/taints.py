"""Taints of the cloud controllers: what they look like, who has them, and lists with one more or less.

In: a Node's taints. Out: other lists, and their form on the wire. Pure. A list is always written whole together with
the resourceVersion it was read at: taints have no merge key.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bedplate.api import core, names
from bedplate.core import clock

__all__ = ["OUT_OF_SERVICE", "SHUTDOWN", "added", "has", "is_uninitialized", "on_the_wire", "removed", "without_key"]

SHUTDOWN = core.Taint(key=names.TAINT_SHUTDOWN, effect="NoSchedule")
OUT_OF_SERVICE = core.Taint(key=names.TAINT_OUT_OF_SERVICE, value="nodeshutdown", effect="NoExecute")

Taints = tuple[core.Taint, ...]


def is_uninitialized(node: core.Node) -> bool:
    """Whether the node waits for its cloud; the key alone says so."""
    return any(taint.key == names.TAINT_UNINITIALIZED for taint in node.spec.taints)


def has(taints: Iterable[core.Taint], sought: core.Taint) -> bool:
    """Whether a taint of the same key and effect is there."""
    return any(_same(taint, sought) for taint in taints)


def added(taints: Taints, taint: core.Taint) -> Taints:
    """The list with this taint in it, in the place of one of the same key and effect."""
    if taint in taints:
        return taints
    return (*removed(taints, taint), taint)


def removed(taints: Taints, unwanted: core.Taint) -> Taints:
    """The list without the taints of that key and effect."""
    return tuple(taint for taint in taints if not _same(taint, unwanted))


def without_key(taints: Taints, key: str) -> Taints:
    """The list without any taint of that key."""
    return tuple(taint for taint in taints if taint.key != key)


def on_the_wire(taints: Taints) -> list[dict[str, Any]] | None:
    """For a merge patch; None removes the field, as an empty list of the API is written."""
    return [_one(taint) for taint in taints] or None


def _same(left: core.Taint, other: core.Taint) -> bool:
    return (left.key, left.effect) == (other.key, other.effect)


def _one(taint: core.Taint) -> dict[str, Any]:
    fields: dict[str, Any] = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    if taint.time_added is not None:
        fields["timeAdded"] = clock.rfc3339(taint.time_added)
    return {key: value for key, value in fields.items() if value}
