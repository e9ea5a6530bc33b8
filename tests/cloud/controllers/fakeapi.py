"""Services and Nodes of an API server in memory, with finalizers, late watches and answers that get lost.

For tests that play thousands of histories; what the servers really do with the same patches, the tests on servers show.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from bedplate.api import core, meta
from bedplate.core import errors
from bedplate.kube import errors as kube_errors
from bedplate.kube.errors import Target
from bedplate.runtime.cache import Cache

DELETED = datetime(2026, 1, 1, tzinfo=UTC)


class FakeApi:
    """The truth, and the events that have not reached the caches yet. `faults` are raised by patches, one each:
    `before` they take effect or `after`."""

    def __init__(self) -> None:
        self.services: dict[str, core.Service] = {}
        self.nodes: dict[str, core.Node] = {}
        self.faults: deque[str] = deque()
        self.patches: list[tuple[str, dict[str, Any]]] = []
        self._pending: deque[Callable[[Caches], None]] = deque()
        self._version = 0

    # What users do

    def put_service(self, name: str, **spec: Any) -> None:
        """Create a Service, or change it."""
        key = f"n/{name}"
        old = self.services.get(key)
        annotations = spec.pop("annotations", None)
        if old is None:
            self._version += 1
            metadata = meta.ObjectMeta(name=name, namespace="n", uid=f"uid-{self._version}")
            old = core.Service(metadata=metadata, spec=core.ServiceSpec(ports=(core.ServicePort(port=80),)))
        if annotations is not None:
            old = replace(old, metadata=replace(old.metadata, annotations=annotations))
        new = replace(old, spec=replace(old.spec, **spec))
        if new.spec.type != "LoadBalancer":
            new = replace(new, spec=replace(new.spec, load_balancer_class=None))
        self._store(new)

    def delete_service(self, name: str) -> None:
        found = self.services.get(f"n/{name}")
        if found is not None:
            self._store(replace(found, metadata=replace(found.metadata, deletion_timestamp=DELETED)))

    def put_node(self, name: str, *, ready: bool = True, labels: dict[str, str] | None = None) -> None:
        self._version += 1
        node = core.Node(
            metadata=meta.ObjectMeta(name=name, resource_version=str(self._version), labels=labels or {}),
            spec=core.NodeSpec(provider_id=f"scripted://{name}"),
            status=core.NodeStatus(conditions=(meta.Condition("Ready", str(ready)),)),
        )
        self.nodes[name] = node
        self._pending.append(lambda caches: caches.nodes.put(node, node.metadata.resource_version))

    def delete_node(self, name: str) -> None:
        node = self.nodes.pop(name, None)
        if node is not None:
            self._pending.append(lambda caches: caches.nodes.remove(node, node.metadata.resource_version))

    # What the controller does

    async def patch(self, ref: Any, name: str, body: dict[str, Any], namespace: str, **options: Any) -> None:
        assert options["subresource"] == "status"
        assert set(body) <= {"metadata", "status"}
        await asyncio.sleep(0)
        fault = self.faults.popleft() if self.faults else ""
        if fault == "before":
            raise errors.Unavailable("the API server is away")
        key = f"{namespace}/{name}"
        self.patches.append((key, body))
        target = Target("PATCH", f"/{key}", ref, namespace, name)
        found = self.services.get(key)
        if found is None:
            raise kube_errors.NotFound(target, meta.Status(code=404, reason="NotFound"))
        self._store(_patched(target, found, body))
        if fault == "after":
            raise errors.Unavailable("the answer was lost")

    # What caches see

    def deliver(self, caches: Caches, count: int = 1_000_000) -> None:
        """Let that many events arrive, in their order."""
        while self._pending and count > 0:
            self._pending.popleft()(caches)
            count -= 1

    def list_into(self, caches: Caches) -> None:
        """The lists of a new process."""
        self._pending.clear()
        caches.services.replace(list(self.services.values()), str(self._version))
        caches.nodes.replace(list(self.nodes.values()), str(self._version))

    def _store(self, service: core.Service) -> None:
        self._version += 1
        version = str(self._version)
        service = replace(service, metadata=replace(service.metadata, resource_version=version))
        key = f"{service.namespace}/{service.name}"
        if service.metadata.is_deleting and not service.metadata.finalizers:
            self.services.pop(key, None)
            self._pending.append(lambda caches: caches.services.remove(service, version))
        else:
            self.services[key] = service
            self._pending.append(lambda caches: caches.services.put(service, version))


def _patched(target: Target, service: core.Service, body: dict[str, Any]) -> core.Service:
    metadata, finalizers = body.get("metadata", {}), list(service.metadata.finalizers)
    if metadata.get("uid", service.metadata.uid) != service.metadata.uid:
        raise kube_errors.Invalid(target, meta.Status(code=422, reason="Invalid", message="metadata.uid is immutable"))
    for one in metadata.get("finalizers", ()):
        if one not in finalizers:
            if service.metadata.is_deleting:
                raise kube_errors.Invalid(target, meta.Status(code=422, reason="Invalid", message="no new finalizers"))
            finalizers.append(one)
    for one in metadata.get("$deleteFromPrimitiveList/finalizers", ()):
        if one in finalizers:
            finalizers.remove(one)
    status = service.status
    if "status" in body:
        ingress = body["status"]["loadBalancer"]["ingress"] or ()
        # As the server does: an address without a mode is a VIP.
        ingress = [{**({"ipMode": "VIP"} if "ip" in one else {}), **one} for one in ingress]
        entries = msgspec.convert(ingress, tuple[core.LoadBalancerIngress, ...])
        status = core.ServiceStatus(load_balancer=core.LoadBalancerStatus(entries))
    return replace(service, metadata=replace(service.metadata, finalizers=tuple(finalizers)), status=status)


class Caches:
    """The caches of one process."""

    def __init__(self) -> None:
        self.services: Cache[core.Service] = Cache()
        self.nodes: Cache[core.Node] = Cache()
        self.slices: Cache[Any] = Cache()
