"""The status of a custom resource: what to write, and writing it.

In: a custom resource and an outcome. Out: a status, equal to the present one when nothing changed, so that a restart
writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from bedplate.api.permissions import Permission
from bedplate.api.resources import RawObject, ResourceRef
from bedplate.kube.client import Client

__all__ = ["following", "write"]

READY = "Ready"
MADE = "Made"


def following(
    resource: Permission, reason: str, message: str, objects: Sequence[str], digest: str, now: datetime
) -> RawObject | None:
    """The next status; None when the present one says the same. Ready is true for the reason `Made` alone."""
    before = resource.status
    is_ready, known = reason == MADE, before.ready
    value = "True" if is_ready else "False"
    generation = resource.metadata.generation
    if known is not None and (known.status, known.reason, known.message) == (value, reason, message):
        is_same = (before.objects, before.digest) == (tuple(objects), digest)
        if is_same and before.observed_generation == generation:
            return None
    changed = now
    if known is not None and known.status == value and known.last_transition_time is not None:
        changed = known.last_transition_time
    condition = {
        "type": READY,
        "status": value,
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": changed.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return {
        "conditions": [condition],
        "objects": list(objects),
        "digest": digest,
        "observedGeneration": generation,
    }


async def write(client: Client, ref: ResourceRef[Any], resource: Permission, status: RawObject) -> None:
    """Write a status."""
    await client.patch(ref, resource.name, {"status": status}, resource.namespace, subresource="status")
