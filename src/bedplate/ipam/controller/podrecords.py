"""Which nodes that lost their block still have pods that may be using it.

In: blocks that are given up; the pods that the API server still has. Out: the nodes whose block is to be held back. A
node that is gone counts while a pod of it is recorded; one that still exists and is no longer selected only counts
while a pod on it holds an address of the block. Pods on the host's network and pods that have ended hold no address.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import msgspec

from bedplate.api import meta
from bedplate.api.resources import PODS
from bedplate.ipam.addresses import Address, parse_address
from bedplate.ipam.quarantine import addresses_of
from bedplate.kube.client import Client

__all__ = ["PodRecord", "PodRecords", "uses_of"]

NETWORK_STATUS = "k8s.v1.cni.cncf.io/network-status"
SINGLE_LOOKUPS = 8
"""For more nodes than that, one list of all pods is cheaper than a list for each."""


class _Spec(meta.Model, frozen=True):
    node_name: str = ""
    host_network: bool = False


class _PodIP(meta.Model, frozen=True):
    ip: str = ""


class _Status(meta.Model, frozen=True):
    phase: str = ""
    pod_ips: tuple[_PodIP, ...] = meta.field("podIPs", ())


class PodRecord(meta.Object, frozen=True):
    """A pod, as far as it tells who uses which address."""

    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def may_hold_addresses(self) -> bool:
        """It runs, or may run, with addresses of its own."""
        return not self.spec.host_network and self.status.phase not in ("Succeeded", "Failed")

    def addresses(self) -> Iterator[Address]:
        """Every address that the pod is known to have, on any network."""
        for pod_ip in self.status.pod_ips:
            yield from _parsed((pod_ip.ip,))
        try:
            networks = msgspec.json.decode(self.metadata.annotation(NETWORK_STATUS, "[]"), type=list[_Network])
        except msgspec.DecodeError:
            # The annotation is not ours: what cannot be read proves nothing.
            return
        for network in networks:
            yield from _parsed(network.ips)


class _Network(meta.Model, frozen=True):
    ips: tuple[str, ...] = ()


def _parsed(texts: Iterable[str]) -> Iterator[Address]:
    for text in texts:
        address = parse_address(text)
        if address is not None:
            yield address


class PodRecords:
    """Asks the API server for pods of nodes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._ref = PODS.with_model(PodRecord)

    async def of(self, nodes: Collection[str]) -> dict[str, list[PodRecord]]:
        """The pods of each of these nodes that may hold addresses. Raises `Denied` where that may not be read."""
        records: dict[str, list[PodRecord]] = {node: [] for node in nodes}
        for pod in await self._list(nodes):
            if pod.spec.node_name in records and pod.may_hold_addresses:
                records[pod.spec.node_name].append(pod)
        return records

    async def _list(self, nodes: Collection[str]) -> list[PodRecord]:
        if len(nodes) > SINGLE_LOOKUPS:
            return (await self._client.list(self._ref)).items
        pods: list[PodRecord] = []
        for node in nodes:
            pods += (await self._client.list(self._ref, field_selector=f"spec.nodeName={node}")).items
        return pods


def uses_of(
    blocks: Iterable[tuple[str, str]], pods: dict[str, list[PodRecord]], exists: Callable[[str], bool]
) -> frozenset[tuple[str, str]]:
    """Those of the (node, block) pairs that are to be held back."""
    return frozenset((node, block) for node, block in blocks if _is_used(node, block, pods.get(node, ()), exists))


def _is_used(node: str, block: str, pods: Sequence[PodRecord], exists: Callable[[str], bool]) -> bool:
    if not exists(node):
        return bool(pods)
    where = addresses_of(block)
    if where is None:
        return False
    bits, (first, last) = where
    return any(address.bits == bits and first <= address.value <= last for pod in pods for address in pod.addresses())
