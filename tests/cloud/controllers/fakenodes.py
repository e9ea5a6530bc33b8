"""Nodes in memory behind the few calls of a client that the node controllers make, and the cache they read.

Faster and more obedient than a server: conflicts and failures are scripted (`refusals` are raised by the next writes),
and the cache can be kept from hearing of changes (`is_stale`). Tests of what a server makes of a patch use a server.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from bedplate.api import core, meta
from bedplate.api.resources import NODES, ResourceRef
from bedplate.core import clock
from bedplate.kube import errors
from bedplate.kube.options import PatchType
from bedplate.runtime.cache import Cache


class FakeNodes:
    """Stands in for a `Client`, for Nodes alone."""

    def __init__(self) -> None:
        self.cache: Cache[core.Node] = Cache()
        self.cache.replace([], "0")
        self.raw: dict[str, dict[str, Any]] = {}
        self.writes: list[tuple[str, str, Any]] = []
        self.deleted: list[tuple[str, str]] = []
        self.refusals: list[Exception] = []
        self.is_stale = False
        self._versions = itertools.count(1)

    # What tests do

    def put(self, name: str, **parts: Any) -> core.Node:
        """Create a node, or change parts (`metadata`, `spec`, `status`) of one, as a kubelet or a person would."""
        base: dict[str, Any] = {
            "metadata": {
                "name": name,
                "uid": f"uid-{name}-{next(self._versions)}",
                "creationTimestamp": clock.rfc3339(datetime(2025, 1, 1, tzinfo=UTC)),
            }
        }
        return self._store(name, merge(self.raw.get(name, base), parts))

    def drop(self, name: str) -> None:
        """Remove it, as if another client had deleted it."""
        gone = self.node(name)
        del self.raw[name]
        if not self.is_stale:
            self.cache.remove(gone, str(next(self._versions)))

    def node(self, name: str) -> core.Node:
        return msgspec.convert(self.raw[name], core.Node)

    def catch_up(self) -> None:
        """Let the cache hear of everything."""
        self.cache.replace([self.node(name) for name in self.raw], str(next(self._versions)))

    def _store(self, name: str, raw: dict[str, Any]) -> core.Node:
        self.raw[name] = merge(raw, {"metadata": {"resourceVersion": str(next(self._versions))}})
        found = self.node(name)
        if not self.is_stale:
            self.cache.put(found, found.metadata.resource_version)
        return found

    # What controllers call

    async def get(self, ref: ResourceRef[Any], name: str) -> core.Node:
        assert ref is NODES
        return msgspec.convert(self._find("GET", name), core.Node)

    async def patch(
        self,
        ref: ResourceRef[Any],
        name: str,
        body: Mapping[str, Any],
        *,
        type: PatchType = PatchType.MERGE,
        subresource: str = "",
        field_manager: str = "",
    ) -> core.Node:
        assert ref is NODES and type is PatchType.MERGE and field_manager
        self._refuse()
        found = self._find("PATCH", name)
        for key, value in body.get("metadata", {}).items():
            if key in ("uid", "resourceVersion") and found["metadata"][key] != value:
                raise conflict(name)
        self.writes.append((subresource, name, body))
        return self._store(name, merge(found, body))

    async def delete(self, ref: ResourceRef[Any], name: str, *, uid: str = "", resource_version: str = "") -> None:
        assert ref is NODES
        self._refuse()
        found = self._find("DELETE", name)["metadata"]
        if (uid and found["uid"] != uid) or (resource_version and found["resourceVersion"] != resource_version):
            raise conflict(name)
        self.deleted.append((name, uid))
        self.drop(name)

    def _refuse(self) -> None:
        if self.refusals:
            raise self.refusals.pop(0)

    def _find(self, method: str, name: str) -> dict[str, Any]:
        if name not in self.raw:
            target = errors.Target(method, f"/api/v1/nodes/{name}", NODES, "", name)
            raise errors.NotFound(target, meta.Status(code=404, reason="NotFound", message=f"no node {name}"))
        return self.raw[name]


def conflict(name: str) -> errors.Conflict:
    """What a server says to a write that was decided on an older version."""
    target = errors.Target("PATCH", f"/api/v1/nodes/{name}", NODES, "", name)
    return errors.Conflict(target, meta.Status(code=409, reason="Conflict", message="the object has been modified"))


def merge(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON merge patch; neither of the two is changed."""
    result = dict(base)
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            result[key] = merge(result.get(key) or {}, value)
        else:
            result[key] = value
    return result


def condition(ready: str) -> dict[str, Any]:
    """A status part with that Ready condition."""
    return {"conditions": [{"type": "Ready", "status": ready}]}
