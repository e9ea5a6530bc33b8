"""Deletes what an application no longer has, and nothing else.

In: recorded objects. Out: for each whether it is gone, still going, or kept, and why. An object is deleted only while
the server says that the application has applied it; a namespace only when nothing of others is in it; a definition
only when no object of its kind is left. What cannot be asked is not gone: every error is raised.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from bedplate.api import meta
from bedplate.api.resources import CRDS, NAMESPACES
from bedplate.core import errors
from bedplate.head.applications.kinds import Kinds
from bedplate.head.applications.records import Item

if TYPE_CHECKING:
    from bedplate.kube.client import Client

__all__ = ["Fate", "Outcome", "Pruner"]

_PROTECTED = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
_OF_THE_SERVER = frozenset({("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")})
_PASSING = frozenset({"Event", "Lease", "Endpoints", "PodMetrics"})
"""Kinds that come by themselves and hold nothing that somebody could miss."""
_NAMED = 3


class Fate(enum.Enum):
    """What became of an object."""

    GONE = enum.auto()
    GOING = enum.auto()
    """It is being deleted; somebody has still to do something about it."""
    KEPT = enum.auto()
    """It stays, and is the application's no more."""


class Outcome(NamedTuple):
    fate: Fate
    why: str = ""


class Pruner:
    """Deletes objects of one application, whose field manager is `manager`."""

    def __init__(self, client: Client, kinds: Kinds, manager: str, guard: Callable[[], None]) -> None:
        self._client = client
        self._kinds = kinds
        self._manager = manager
        self._guard = guard

    async def delete(self, item: Item) -> Outcome:
        """Delete one object if it is still the application's."""
        served = await self._kinds.find(item.group, item.kind)
        if served is None:
            # The server's own lists do not have the kind: there can be no object of it.
            return Outcome(Fate.GONE)
        namespace = item.namespace or None
        try:
            obj = await self._client.get(served.ref, item.name, namespace)
        except errors.NotFound:
            return Outcome(Fate.GONE)
        if not _is_applied_by(obj, self._manager):
            return Outcome(Fate.KEPT, "it is no longer the one that was applied")
        if not obj["metadata"].get("deletionTimestamp"):
            obstacle = await self._obstacle(item, obj)
            if obstacle is not None:
                return obstacle
            self._guard()
            await self._client.delete(
                served.ref, item.name, namespace, uid=obj["metadata"]["uid"], propagation="Background"
            )
        try:
            left = await self._client.get(served.ref.partial(), item.name, namespace)
        except errors.NotFound:
            return Outcome(Fate.GONE)
        if left.metadata.uid != obj["metadata"]["uid"]:
            return Outcome(Fate.GONE)
        return Outcome(Fate.GOING, _holders(left))

    async def _obstacle(self, item: Item, obj: dict[str, Any]) -> Outcome | None:
        """Why a namespace or a definition may not be deleted now."""
        if (item.group, item.kind) == (NAMESPACES.group, NAMESPACES.kind):
            return await self._in_namespace(item.name)
        if (item.group, item.kind) == (CRDS.group, CRDS.kind):
            return await self._instances(obj)
        return None

    async def _in_namespace(self, name: str) -> Outcome | None:
        if name in _PROTECTED:
            return Outcome(Fate.KEPT, "it is a namespace of Kubernetes itself")
        self._kinds.forget()
        others: list[str] = []
        for served in await self._kinds.listable():
            if served.ref.kind in _PASSING:
                continue
            listed = await self._client.list(served.ref.partial(), name)
            others += [
                f"{served.ref.kind} {obj.metadata.name}"
                for obj in listed.items
                if _counts(served.ref.kind, obj.metadata)
            ]
        if not others:
            return None
        return Outcome(Fate.KEPT, f"it holds {_three(others)}")

    async def _instances(self, crd: dict[str, Any]) -> Outcome | None:
        spec = crd["spec"]
        self._kinds.forget()
        served = await self._kinds.find(spec["group"], spec["names"]["kind"])
        if served is None:
            return Outcome(Fate.KEPT, "its objects cannot be listed, since no version of it is served")
        listed = await self._client.list(served.ref.partial())
        left = [f"{served.ref.kind} {obj.metadata.name}" for obj in listed.items if not obj.metadata.is_deleting]
        if left:
            return Outcome(Fate.KEPT, f"there are objects of its kind: {_three(left)}")
        if listed.items:
            return Outcome(Fate.GOING, f"{listed.items[0].metadata.name} of its kind is being deleted")
        return None


def _counts(kind: str, obj: meta.ObjectMeta) -> bool:
    """Whether an object speaks for keeping its namespace: not what goes with its owner, nor what is going."""
    return not obj.owner_references and not obj.is_deleting and (kind, obj.name) not in _OF_THE_SERVER


def _is_applied_by(obj: dict[str, Any], manager: str) -> bool:
    fields = obj["metadata"].get("managedFields") or []
    return any(entry.get("manager") == manager and entry.get("operation") == "Apply" for entry in fields)


def _holders(left: meta.PartialObject) -> str:
    names = ", ".join(left.metadata.finalizers)
    return f"it is being deleted, and waits for {names}" if names else "it is being deleted"


def _three(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
