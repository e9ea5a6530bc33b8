"""Node objects as a kubelet would register them. Pure: in go a number and options, out come bodies and patches."""

from __future__ import annotations

import ipaddress
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bedplate.api import names
from bedplate.core.clock import rfc3339, rfc3339_micro

__all__ = ["HEARTBEAT_S", "LEASE_NAMESPACE", "LEASE_S", "Machine", "Shape", "lease", "node", "node_status"]

HEARTBEAT_S = 10.0
LEASE_NAMESPACE = "kube-node-lease"
LEASE_S = 40
_PODS_PER_MACHINE = 256
MACHINES = ipaddress.IPv4Network("10.192.0.0/14")
PODS = ipaddress.IPv4Network("10.128.0.0/10")
_SPACE = uuid.UUID("6f0c4f8e-5c39-4f0e-9a39-0f6b8b6f5d11")


@dataclass(frozen=True, slots=True)
class Shape:
    """What the simulated machines look like."""

    cpu: int = 64
    memory_gib: int = 512
    gpus: int = 8
    pods: int = 110
    version: str = "v1.35.4"
    is_uninitialized: bool = False
    """Register as a kubelet with --cloud-provider=external does: tainted until a cloud controller has been there."""
    network: ipaddress.IPv4Network = MACHINES
    pod_network: ipaddress.IPv4Network = PODS

    @property
    def most_machines(self) -> int:
        """How many have an address and a range for pods of their own."""
        return min(self.network.num_addresses - 2, self.pod_network.num_addresses // _PODS_PER_MACHINE)


@dataclass(frozen=True, slots=True)
class Machine:
    """One simulated machine: number `index` of a fleet."""

    name: str
    index: int
    shape: Shape

    @property
    def address(self) -> str:
        return str(self.shape.network[self.index + 1])

    @property
    def pod_range(self) -> ipaddress.IPv4Network:
        """256 addresses of its own."""
        first = int(self.shape.pod_network.network_address) + _PODS_PER_MACHINE * self.index
        return ipaddress.IPv4Network((first, 24))

    @property
    def system_uuid(self) -> str:
        """The same at every start, as a machine's is."""
        return str(uuid.uuid5(_SPACE, self.name))


def node(machine: Machine, now: datetime) -> dict[str, Any]:
    """The Node a kubelet creates when it finds none of its name."""
    taints = [{"key": names.TAINT_UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]
    labels = {
        "kubernetes.io/hostname": machine.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
    }
    spec: dict[str, Any] = {"taints": taints} if machine.shape.is_uninitialized else {}
    if not machine.shape.is_uninitialized:
        spec["podCIDR"] = str(machine.pod_range)
        spec["podCIDRs"] = [str(machine.pod_range)]
    return {
        "metadata": {"name": machine.name, "labels": labels, "annotations": {"node.alpha.kubernetes.io/ttl": "0"}},
        "spec": spec,
        "status": node_status(machine, now, is_ready=True),
    }


def node_status(machine: Machine, now: datetime, *, is_ready: bool, since: datetime | None = None) -> dict[str, Any]:
    """The status a kubelet reports."""
    shape = machine.shape
    resources = {
        "cpu": str(shape.cpu),
        "memory": f"{shape.memory_gib * 1024 * 1024}Ki",
        "ephemeral-storage": "1000Gi",
        "pods": str(shape.pods),
    }
    if shape.gpus:
        resources["nvidia.com/gpu"] = str(shape.gpus)
    addresses = [{"type": "Hostname", "address": machine.name}]
    if not shape.is_uninitialized:
        addresses.insert(0, {"type": "InternalIP", "address": machine.address})
    return {
        "capacity": resources,
        "allocatable": resources,
        "conditions": _conditions(now, since or now, is_ready=is_ready),
        "addresses": addresses,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "machineID": machine.system_uuid.replace("-", ""),
            "systemUUID": machine.system_uuid,
            "bootID": str(uuid.uuid5(_SPACE, machine.name + "/boot")),
            "kernelVersion": "6.8.0-simulated",
            "osImage": "Bedplate simulated machine",
            "containerRuntimeVersion": "simulated://1.0",
            "kubeletVersion": shape.version,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    }


def _conditions(now: datetime, since: datetime, *, is_ready: bool) -> list[dict[str, str]]:
    times = {"lastHeartbeatTime": rfc3339(now), "lastTransitionTime": rfc3339(since)}
    good = [
        ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ]
    conditions = [{"type": kind, "status": "False", "reason": why, "message": text} | times for kind, why, text in good]
    if is_ready:
        state = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
        }
    else:
        text = "the simulated machine was set to not ready"
        state = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": text}
    return [*conditions, state | times]


def lease(machine: Machine, now: datetime, uid: str) -> dict[str, Any]:
    """The heartbeat object of a node, owned by it."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": machine.name, "uid": uid}
    spec = {"holderIdentity": machine.name, "leaseDurationSeconds": LEASE_S, "renewTime": rfc3339_micro(now)}
    return {
        "metadata": {"name": machine.name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        "spec": spec,
    }
