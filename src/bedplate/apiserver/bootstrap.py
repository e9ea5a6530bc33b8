"""What a cluster holds from its first moment: namespaces, priority classes, default roles, the `kubernetes` service.

In: the shipped facts of a version and the services of a starting server. Out: every object that is
missing; what users changed or added stays. Runs at each start, before requests are served.
"""

from __future__ import annotations

import gzip
import uuid
from importlib import resources
from typing import Any

import msgspec

from bedplate.apiserver import services
from bedplate.apiserver.state import bodies
from bedplate.core import clock as clocks
from bedplate.store import interface

__all__ = ["ensure", "load", "missing"]

FIRST_ADDRESS = "10.96.0.1"
OBJECTS_PER_COMMIT = 100
"""etcd takes at most 128 operations at once."""


def load(version: str) -> list[dict[str, Any]]:
    """The shipped objects of a Kubernetes version (`1.35`)."""
    name = f"bootstrap-v{version}.json.gz"
    data = gzip.decompress((resources.files("bedplate.apiserver.facts") / name).read_bytes())
    objects: list[dict[str, Any]] = msgspec.json.decode(data)
    return objects


def missing(parts: services.Services, objects: list[dict[str, Any]]) -> list[tuple[str, str, dict[str, Any]]]:
    """Those objects the registry does not have: (group, resource, object ready to be stored)."""
    absent = []
    moment = clocks.rfc3339(parts.clock.now())
    for obj in objects:
        kind = parts.kinds.by_api_version(obj["apiVersion"], obj["kind"])
        if kind is None:
            continue
        meta = obj["metadata"]
        if parts.client.get(kind.group, kind.resource, meta.get("namespace", ""), meta["name"]) is None:
            complete = obj | {"metadata": meta | {"uid": str(uuid.uuid4()), "creationTimestamp": moment}}
            if obj["kind"] == "Namespace":
                complete |= {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
            absent.append((kind.group, kind.resource, complete))
    return absent


async def ensure(parts: services.Services, version: str, port: int) -> int:
    """Create what is missing; how many objects that were."""
    objects = [*load(version), _kubernetes_service(port)]
    absent = missing(parts, objects)
    # Straight to the store: the rules these objects would be checked by are among them.
    operations = []
    for group, resource, obj in absent:
        key = bodies.key_of((group, resource), obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        operations.append(interface.Put(key, bodies.encode_value(obj), 0))
    for start in range(0, len(operations), OBJECTS_PER_COMMIT):
        try:
            await parts.registry.commit(operations[start : start + OBJECTS_PER_COMMIT])
        except interface.CompareFailed:
            # Another server on the same store starts too: create what it has left to do.
            return await ensure(parts, version, port)
    return len(absent)


def _kubernetes_service(port: int) -> dict[str, Any]:
    labels = {"component": "apiserver", "provider": "kubernetes"}
    spec = {
        "clusterIP": FIRST_ADDRESS,
        "clusterIPs": [FIRST_ADDRESS],
        "internalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
        "sessionAffinity": "None",
        "type": "ClusterIP",
    }
    metadata = {"name": "kubernetes", "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec, "status": {"loadBalancer": {}}}
