"""What the webhook knows of the cluster, from its caches.

In: caches of namespaces, claims, volumes and storage classes. Out: the rules of a namespace, and what claims lead to.
Nothing here asks the API server: an answer costs no request. A claim that the caches do not show yet may be anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bedplate.api import meta
from bedplate.api.permissions import PersistentVolume, PersistentVolumeClaim, StorageClass
from bedplate.api.resources import RawObject
from bedplate.core import clock
from bedplate.operators.permissions import volumes
from bedplate.operators.permissions.decision import Claims
from bedplate.operators.permissions.rules import NamespaceRules
from bedplate.runtime.cache import Cache, Change

__all__ = ["Cluster"]

_IN_FLIGHT_S = 70.0
"""Longer than an API server lets a request last: a pod that was judged before is stored by then, or never."""


@dataclass(slots=True)
class Cluster:
    """The rules of all namespaces, and the storage that pods may use."""

    namespaces: Cache[meta.PartialObject]
    claims: Cache[PersistentVolumeClaim]
    persistent: Cache[PersistentVolume]
    classes: Cache[StorageClass]
    has_strict_groups: bool = True
    time: clock.Clock = field(default_factory=clock.SystemClock)
    _rules: dict[str, NamespaceRules] = field(init=False, default_factory=dict)
    """Parsed once; forgotten when the namespace changes."""
    _new: dict[str, PersistentVolume] = field(init=False, default_factory=dict)
    _gone: dict[str, float] = field(init=False, default_factory=dict)
    """Claims that were not on a path of a node, by key, and when they went."""

    def __post_init__(self) -> None:
        self.namespaces.on_change(self._forget)
        self.claims.on_change(self._note_gone)

    def rules(self, namespace: str) -> NamespaceRules:
        """The rules of a namespace. One that is not known is one that has lost them: the API server asks about
        restricted namespaces only."""
        known = self._rules.get(namespace)
        if known is None:
            entry = self.namespaces.get(namespace)
            known = NamespaceRules((), self.has_strict_groups, is_labelled=True)
            if entry is not None:
                parsed = NamespaceRules.parse(entry.metadata.annotations, needs_strict_groups=self.has_strict_groups)
                known = msgspec.structs.replace(parsed, is_labelled=True)
                self._rules[namespace] = known
        return known

    def claims_of(self, namespace: str, pod: RawObject) -> Claims:
        """What the claims of a pod lead to, by name; those that are not known are left out."""
        return volumes.claims_of(
            pod,
            lambda name: self.claims.get(f"{namespace}/{name}"),
            lambda claim: self.claim(namespace, claim)[0],
        )

    def claim(self, namespace: str, claim: PersistentVolumeClaim) -> tuple[volumes.Claim, StorageClass | None]:
        """What a claim leads to, and its class."""
        class_ = self.classes.get(claim.spec.storage_class_name or "")
        volume = self._volume(claim.spec.volume_name) if claim.spec.volume_name else None
        return volumes.claim_of(claim.spec.volume_name, class_, volume), class_

    def was_other(self, namespace: str, claim: PersistentVolumeClaim) -> bool:
        """Whether pods may be on their way that were judged by another claim of this name, which was not on a path of a
        node: it went a moment ago, or the cache still shows it."""
        key = f"{namespace}/{claim.name}"
        shown = self.claims.get(key)
        if shown is not None and shown.metadata.uid != claim.metadata.uid:
            return self._is_free(shown)
        return self.time.monotonic() - self._gone.get(key, -math.inf) < _IN_FLIGHT_S

    def _note_gone(self, change: Change[PersistentVolumeClaim]) -> None:
        old, new = change.old, change.new
        if old is None or (new is not None and new.metadata.uid == old.metadata.uid):
            return
        now = self.time.monotonic()
        self._gone = {key: at for key, at in self._gone.items() if now - at < _IN_FLIGHT_S}
        if self._is_free(old):
            self._gone[change.key] = now

    def _is_free(self, claim: PersistentVolumeClaim) -> bool:
        """Whether pods may have been admitted with the claim as one that is on no path of a node. A volume that is gone
        from the cache may have been any."""
        leads = self.claim(claim.namespace, claim)[0]
        return not leads.path and (bool(claim.spec.volume_name) or not leads.may_be_host_path)

    def remember(self, volume: PersistentVolume) -> None:
        """A volume that the cache does not show yet."""
        self._new[volume.name] = volume

    def _volume(self, name: str) -> PersistentVolume | None:
        volume = self.persistent.get(name)
        if volume is not None:
            self._new.pop(name, None)
            return volume
        return self._new.get(name)

    def _forget(self, change: Change[Any]) -> None:
        self._rules.pop(change.key, None)
