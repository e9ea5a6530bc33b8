"""EndpointSlices for Services: which ready pods stand behind a service.

In: Services with a selector, and Pods. Out: one EndpointSlice per service, named after it, owned by it. `plan` is
pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bedplate.apiserver import hooks, selectors, services
from bedplate.apiserver.access import subjects
from bedplate.apiserver.controllers.loop import Loop, own_key
from bedplate.apiserver.controllers.replicasets import controlled_by, is_ready
from bedplate.apiserver.state import bodies

__all__ = ["plan", "run"]

GROUP = "discovery.k8s.io"
MANAGED_BY = "endpointslice-controller.k8s.io"


async def run(parts: services.Services) -> None:
    """Run until cancelled."""
    client = parts.client.acting_as(subjects.LOOPBACK, "endpointslice-controller")

    async def reconcile(key: tuple[str, str]) -> None:
        namespace, name = key
        service = client.get("", "services", namespace, name)
        current = client.get(GROUP, "endpointslices", namespace, name)
        if service is None or not (service["spec"].get("selector")) or service["spec"].get("type") == "ExternalName":
            return
        endpoint_slice = plan(service, client.list("", "pods", namespace))
        if current is None:
            await client.create(GROUP, "endpointslices", endpoint_slice)
        elif any(current.get(part) != endpoint_slice[part] for part in ("endpoints", "ports")):
            await client.update(
                GROUP, "endpointslices", current | {part: endpoint_slice[part] for part in ("endpoints", "ports")}
            )

    loop: Loop[tuple[str, str]] = Loop("endpoints", client, reconcile)

    def of_pod(change: bodies.Change) -> Iterable[tuple[str, str]]:
        labels = [
            change.object["metadata"].get("labels") or {},
            (change.previous or {"metadata": {}})["metadata"].get("labels") or {},
        ]
        for service in client.list("", "services", change.namespace):
            selector = service["spec"].get("selector")
            if selector and any(selector.items() <= pod_labels.items() for pod_labels in labels):
                yield change.namespace, service["metadata"]["name"]

    await loop.run(("", "services", own_key), ("", "pods", of_pod))


def plan(service: hooks.Object, pods: Iterable[hooks.Object]) -> hooks.Object:
    """The EndpointSlice a service should have, given the pods of its namespace."""
    meta, spec = service["metadata"], service["spec"]
    selects = selectors.of_label_selector({"matchLabels": spec["selector"]})
    chosen = [pod for pod in pods if selects(pod["metadata"].get("labels") or {}) and _is_served(pod)]
    return {
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": {
                "kubernetes.io/service-name": meta["name"],
                "endpointslice.kubernetes.io/managed-by": MANAGED_BY,
            },
            "ownerReferences": [controlled_by("v1", "Service", service)],
        },
        "addressType": "IPv4",
        "endpoints": [_endpoint(pod) for pod in sorted(chosen, key=lambda pod: str(pod["metadata"]["name"]))],
        "ports": [_port(port, chosen) for port in spec.get("ports") or ()],
    }


def _is_served(pod: hooks.Object) -> bool:
    """A pod that has ended keeps its address, but nobody is there."""
    state = pod.get("status") or {}
    return bool(state.get("podIP")) and state.get("phase") not in ("Succeeded", "Failed")


def _endpoint(pod: hooks.Object) -> dict[str, Any]:
    meta = pod["metadata"]
    is_going = bool(meta.get("deletionTimestamp"))
    return {
        "addresses": [pod["status"]["podIP"]],
        "conditions": {"ready": is_ready(pod) and not is_going, "serving": is_ready(pod), "terminating": is_going},
        "nodeName": (pod.get("spec") or {}).get("nodeName", ""),
        "targetRef": {"kind": "Pod", "namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]},
    }


def _port(port: dict[str, Any], pods: list[hooks.Object]) -> dict[str, Any]:
    number = port.get("targetPort", port.get("port"))
    if isinstance(number, str):
        named = (
            container_port["containerPort"]
            for pod in pods
            for container in pod["spec"]["containers"]
            for container_port in container.get("ports") or ()
            if container_port.get("name") == number
        )
        number = next(named, None)
    endpoint_port = {"name": port.get("name", ""), "protocol": port.get("protocol", "TCP")}
    return endpoint_port if number is None else endpoint_port | {"port": number}
