"""What one look proves: that a reservation is dead, and what pods hold after a store was damaged.

In: a reservation, the sandboxes of the runtime, what the API server says of its pod; or all pods of this node and its
pools. Out: `Evidence`; or addresses that have to be taken for reserved. Pure; looking twice, counting and freeing are
the cleaner's.

The runtime is believed first: a sandbox that is listed lives, whatever the API server says, and one that is not is gone
even if its pod is still there (a reboot). Its list counts only when it is this node's: some sandbox in it is of a pod
that the API server has here too. A container id that no runtime would make (a driver's own) is judged by its pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import Enum
from typing import NamedTuple

import msgspec

from bedplate.api import meta
from bedplate.api.core import PodIP
from bedplate.api.resources import PODS
from bedplate.core import clock
from bedplate.ipam.addresses import Address, parse_address
from bedplate.ipam.node.cri import Sandbox
from bedplate.ipam.node.poolconfig import PoolConfig
from bedplate.ipam.node.reservations import Proven, Reservation

__all__ = [
    "LEAN_PODS",
    "Evidence",
    "LeanPod",
    "Proof",
    "Sandboxes",
    "Verdict",
    "age_s",
    "by_pod",
    "by_sandbox",
    "has_pod",
    "is_same_pod",
    "pod_key",
    "proven_by_pods",
    "sandboxes_of",
]

_STATIC_POD_UID = "kubernetes.io/config.hash"
_FINISHED = ("Succeeded", "Failed")
_NETWORK_STATUS = ("k8s.v1.cni.cncf.io/network-status", "k8s.v1.cni.cncf.io/networks-status")
_CLUSTER_INTERFACE = "eth0"
_SANDBOX_ID = re.compile(r"[0-9a-f]{64}")
# Nanoseconds are more than a datetime holds.
_FRACTION = re.compile(r"(\.\d{6})\d+")


class LeanPodSpec(meta.Model, frozen=True):
    """Where a pod runs."""

    node_name: str = ""
    host_network: bool = False


class LeanPodStatus(meta.Model, frozen=True):
    """How far a pod is, and its addresses in the cluster's network."""

    phase: str = ""
    pod_ips: tuple[PodIP, ...] = meta.field("podIPs", ())


class LeanPod(meta.Object, frozen=True):
    """As much of a pod as tells whose an address is."""

    spec: LeanPodSpec = LeanPodSpec()
    status: LeanPodStatus = LeanPodStatus()


LEAN_PODS = PODS.with_model(LeanPod)


class Proof(Enum):
    """By what a reservation is known to be dead."""

    SANDBOX = "sandbox"
    POD = "pod"


class Verdict(Enum):
    """What one look says."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


class Evidence(NamedTuple):
    """A verdict, by which proof, and why."""

    verdict: Verdict
    proof: Proof
    reason: str


class Sandboxes(NamedTuple):
    """What the runtime has."""

    ids: frozenset[str]
    uids: frozenset[str]
    pods: frozenset[str]
    is_of_this_node: bool


def sandboxes_of(sandboxes: Iterable[Sandbox], pods: Iterable[LeanPod]) -> Sandboxes:
    """The runtime's list, compared with the pods that the API server has on this node."""
    listed = list(sandboxes)
    uids = frozenset(sandbox.pod_uid for sandbox in listed)
    here = {uid for pod in pods for uid in _uids(pod)}
    return Sandboxes(
        frozenset(sandbox.id for sandbox in listed),
        uids,
        frozenset(f"{sandbox.pod_namespace}/{sandbox.pod_name}" for sandbox in listed),
        not here.isdisjoint(uids),
    )


def by_sandbox(reservation: Reservation, sandboxes: Sandboxes) -> Evidence | None:
    """What the runtime says; None when it cannot say anything."""
    if reservation.container_id in sandboxes.ids:
        return Evidence(Verdict.ALIVE, Proof.SANDBOX, "its sandbox exists")
    if _SANDBOX_ID.fullmatch(reservation.container_id) is None:
        is_here = (
            reservation.pod_uid in sandboxes.uids if reservation.pod_uid else pod_key(reservation) in sandboxes.pods
        )
        return Evidence(Verdict.ALIVE, Proof.SANDBOX, "its pod has a sandbox") if is_here else None
    if not sandboxes.is_of_this_node:
        return None
    return Evidence(Verdict.DEAD, Proof.SANDBOX, "the container runtime has no such sandbox")


def by_pod(reservation: Reservation, pod: LeanPod | None, node_name: str) -> Evidence:
    """What the API server says; None: there is no such pod."""
    if pod is None:
        return Evidence(Verdict.DEAD, Proof.POD, "the pod does not exist")
    if not is_same_pod(reservation, pod):
        return Evidence(Verdict.DEAD, Proof.POD, "the pod was replaced by one of the same name")
    if pod.spec.node_name and pod.spec.node_name != node_name:
        return Evidence(Verdict.DEAD, Proof.POD, f"the pod is on node {pod.spec.node_name}")
    if pod.status.phase in _FINISHED:
        return Evidence(Verdict.DEAD, Proof.POD, f"the pod has ended ({pod.status.phase})")
    return Evidence(Verdict.ALIVE, Proof.POD, "its pod exists")


def is_same_pod(reservation: Reservation, pod: LeanPod) -> bool:
    """The pod is the one that the address was given to, as far as anybody can tell."""
    return not reservation.pod_uid or reservation.pod_uid in _uids(pod)


def _uids(pod: LeanPod) -> tuple[str, ...]:
    # The runtime knows a static pod by the hash of its file, the API server its mirror by another uid.
    static = pod.metadata.annotation(_STATIC_POD_UID)
    return (pod.metadata.uid, static) if static else (pod.metadata.uid,)


def has_pod(reservation: Reservation) -> bool:
    """Somebody said which pod it is for."""
    return bool(reservation.pod_name and reservation.pod_namespace)


def pod_key(reservation: Reservation) -> str:
    """The pod's key in a cache."""
    return f"{reservation.pod_namespace}/{reservation.pod_name}"


def age_s(reservation: Reservation, now: datetime) -> float:
    """Seconds since it was made; 0 when nobody can say (an unreadable time, or one that is still to come)."""
    try:
        created = clock.parse_rfc3339(_FRACTION.sub(r"\1", reservation.create_time))
    except ValueError:
        return 0.0
    return max(0.0, (now - created).total_seconds())


# What pods hold


class _Network(msgspec.Struct):
    """An entry of the annotation in which Multus says what a pod was given."""

    interface: str = ""
    ips: list[str] = []


class _Held(NamedTuple):
    interface: str
    address: Address


_STATUSES: msgspec.json.Decoder[list[_Network]] = msgspec.json.Decoder(list[_Network])


def proven_by_pods(
    pods: Iterable[LeanPod], configs: Mapping[str, PoolConfig], sandboxes: Iterable[Sandbox] = ()
) -> list[Proven]:
    """Every address of a pool that a running pod says it has."""
    by_uid = {sandbox.pod_uid: sandbox.id for sandbox in sandboxes}
    claims = []
    for pod in pods:
        if pod.status.phase in _FINISHED or pod.spec.host_network:
            continue
        for address in dict.fromkeys(_held_by(pod)):
            config = _pool_of(address.address, configs)
            if config is not None:
                about = pod.metadata
                container = by_uid.get(about.uid, "")
                claims.append(
                    Proven(
                        config, address.address, address.interface, about.uid, about.name, about.namespace, container
                    )
                )
    return claims


def _held_by(pod: LeanPod) -> Iterator[_Held]:
    for name in _NETWORK_STATUS:
        for status in _read(pod.metadata.annotation(name)):
            for text in status.ips:
                address = parse_address(text.partition("/")[0])
                if address is not None:
                    yield _Held(status.interface or _CLUSTER_INTERFACE, address)
    for ip in pod.status.pod_ips:
        address = parse_address(ip.ip)
        if address is not None:
            yield _Held(_CLUSTER_INTERFACE, address)


def _read(text: str) -> list[_Network]:
    if not text:
        return []
    try:
        return _STATUSES.decode(text)
    except msgspec.MsgspecError:
        return []


def _pool_of(address: Address, configs: Mapping[str, PoolConfig]) -> PoolConfig | None:
    """The pool whose block holds the address; else one whose network does (a static address)."""
    in_network = None
    for config in configs.values():
        if config.in_block(address):
            return config
        if in_network is None and config.network.holds(address):
            in_network = config
    return in_network
