"""What the webhook knows of the cluster, from its caches.

In: caches of namespaces, claims, volumes and storage classes. Out: the rules of a namespace, and what claims lead to.
Nothing here asks the API server: an answer costs no request. A claim that the caches do not show yet may be anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from bedplate.api import meta
from bedplate.api.permissions import PersistentVolume, PersistentVolumeClaim, StorageClass
from bedplate.api.resources import RawObject
from bedplate.operators.permissions import pods, volumes
from bedplate.operators.permissions.decision import Claims
from bedplate.operators.permissions.rules import NamespaceRules
from bedplate.runtime.cache import Cache, Change

__all__ = ["Cluster"]


@dataclass(slots=True)
class Cluster:
    """The rules of all namespaces, and the storage that pods may use."""

    namespaces: Cache[meta.PartialObject]
    claims: Cache[PersistentVolumeClaim]
    persistent: Cache[PersistentVolume]
    classes: Cache[StorageClass]
    has_strict_groups: bool = True
    _rules: dict[str, NamespaceRules] = field(init=False, default_factory=dict)
    """Parsed once; forgotten when the namespace changes."""
    _new: dict[str, PersistentVolume] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.namespaces.on_change(self._forget)

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
        known: dict[str, volumes.Claim] = {}
        for _, volume in pods.volumes(pod):
            if volume.get("ephemeral") is not None:
                name, claim = self._ephemeral(pod, volume)
                known[name] = claim
            name = str(pods.mapped(volume.get("persistentVolumeClaim")).get("claimName", ""))
            entry = self.claims.get(f"{namespace}/{name}") if name else None
            if entry is not None:
                known[name] = self.claim(namespace, entry)[0]
        return known

    def claim(self, namespace: str, claim: PersistentVolumeClaim) -> tuple[volumes.Claim, StorageClass | None]:
        """What a claim leads to, and its class."""
        class_ = self.classes.get(claim.spec.storage_class_name or "")
        volume = self._volume(claim.spec.volume_name) if claim.spec.volume_name else None
        return volumes.claim_of(claim.spec.volume_name, class_, volume), class_

    def _ephemeral(self, pod: RawObject, volume: Any) -> tuple[str, volumes.Claim]:
        """A claim that will be made for the pod, from its template."""
        name = f"{pods.mapped(pod.get('metadata')).get('name', '')}-{volume.get('name', '')}"
        template = pods.mapped(pods.mapped(volume["ephemeral"]).get("volumeClaimTemplate"))
        spec = pods.mapped(template.get("spec"))
        class_ = self.classes.get(str(spec.get("storageClassName") or ""))
        volume_name = str(spec.get("volumeName") or "")
        return name, volumes.claim_of(volume_name, class_, self._volume(volume_name) if volume_name else None)

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
