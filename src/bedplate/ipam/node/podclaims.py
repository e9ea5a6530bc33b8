"""What pods prove to hold after a store was damaged.

In: the pods of this node, the pools, the runtime's sandboxes where they are known. Out: addresses that have to be taken
for reserved. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from bedplate.ipam.addresses import Address, parse_address
from bedplate.ipam.node.cri import Sandbox
from bedplate.ipam.node.poolconfig import PoolConfig
from bedplate.ipam.node.proofs import LeanPod
from bedplate.ipam.node.reservations import Proven

__all__ = ["proven_by_pods"]

_NETWORK_STATUS = ("k8s.v1.cni.cncf.io/network-status", "k8s.v1.cni.cncf.io/networks-status")
_CLUSTER_INTERFACE = "eth0"
_FINISHED = ("Succeeded", "Failed")


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
