"""Writing a pool's status, and knowing one's own writes again.

In: a pool as it was read, the blocks it shall show. Out: a PUT on its status subresource that fails with a conflict
when another client was quicker; the pool as it is after that. Until the watch brings a write of ours back, `present`
gives it instead of what the cache still holds, so that the next pass neither plans from old facts nor runs into a
conflict with itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from bedplate.api import meta
from bedplate.api.resources import ResourceRef
from bedplate.core.metrics import shared
from bedplate.ipam.controller.metrics import PoolMetrics
from bedplate.ipam.pools import CIDRPool, IPPool
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client
from bedplate.runtime.cache import Cache

__all__ = ["Statuses"]

P = TypeVar("P", bound=IPPool | CIDRPool)


@dataclass(frozen=True, slots=True)
class _Written(Generic[P]):
    """A pool after writes of ours, and the versions that they replaced: the cache may still hold any of these."""

    replaced: frozenset[str]
    pool: P


class Statuses(Generic[P]):
    """The pools of one kind: as they are now, and how to write them."""

    def __init__(self, client: Client, ref: ResourceRef[P], cache: Cache[P], registry: Any, kind: str) -> None:
        self._client = client
        self._ref = ref
        self._cache = cache
        self._kind = kind
        self._metrics = shared(registry, PoolMetrics)
        self._written: dict[str, _Written[P]] = {}

    def present(self, key: str) -> P | None:
        """The pool as far as it is known: what the cache holds, or a write of ours that it has not seen yet."""
        cached = self._cache.get(key)
        written = self._written.get(key)
        if cached is None or written is None:
            self._written.pop(key, None)
            return cached
        if _version(cached) in written.replaced and cached.metadata.uid == written.pool.metadata.uid:
            return written.pool
        del self._written[key]
        return cached

    async def write(self, key: str, pool: P, allocations: Sequence[Any]) -> P:
        """Replace the status. Raises `Conflict` when the pool has changed since."""
        place = {"name": pool.name, "namespace": pool.namespace, "resourceVersion": _version(pool)}
        body = {"metadata": {**place, "uid": pool.metadata.uid}, "status": {"allocations": allocations}}
        try:
            answer = await self._client.update(self._ref.partial(), body, pool.namespace, subresource="status")
        except kube_errors.Conflict:
            self._metrics.writes.labels(self._kind, "conflict").inc()
            raise
        except Exception:
            self._metrics.writes.labels(self._kind, "error").inc()
            raise
        self._metrics.writes.labels(self._kind, "success").inc()
        status: Any = type(pool.status)(tuple(allocations))
        return self._keep(key, pool, answer.metadata, msgspec.structs.replace(pool, status=status))

    async def annotate(self, key: str, pool: P, name: str, value: str | None) -> P:
        """Set or remove an annotation. Raises `Conflict` when the pool has changed since."""
        body = {"metadata": {"resourceVersion": _version(pool), "annotations": {name: value}}}
        answer = await self._client.patch(self._ref.partial(), pool.name, body, pool.namespace)
        return self._keep(key, pool, answer.metadata, pool)

    def forget(self, key: str) -> None:
        """The pool is gone."""
        self._written.pop(key, None)

    def _keep(self, key: str, before: P, metadata: meta.ObjectMeta, after: P) -> P:
        pool = msgspec.structs.replace(after, metadata=metadata)
        known = self._written.get(key)
        is_next = known is not None and _version(known.pool) == _version(before)
        replaced = frozenset({_version(before)}) | (known.replaced if known is not None and is_next else frozenset())
        self._written[key] = _Written(replaced, pool)
        return pool


def _version(pool: meta.Object) -> str:
    return pool.metadata.resource_version
