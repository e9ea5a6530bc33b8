"""Who holds which address, as far as the cluster tells it: pods' addresses and their network-status annotations.

In: pods. Out: `Holding`s. Pure. A node's store knows more (`stores.py`): containers that never came to be pods, and the
moment an address was given; what is read here needs no login to any node.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from bedplate.api import core, meta
from bedplate.api.resources import PODS
from bedplate.ipam.addresses import Address, parse_address

__all__ = ["LEAN_PODS", "NETWORK_STATUS", "Holding", "LeanPod", "Pod", "of_pod", "of_pods"]

NETWORK_STATUS = "k8s.v1.cni.cncf.io/network-status"
_FINISHED = frozenset({"Succeeded", "Failed"})


class LeanAnnotations(meta.Model, frozen=True):
    """What Multus wrote."""

    network_status: str = meta.field(NETWORK_STATUS)


class LeanMeta(meta.Model, frozen=True):
    """Whose pod it is."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    creation_timestamp: datetime | None = None
    annotations: LeanAnnotations = LeanAnnotations()


class LeanSpec(meta.Model, frozen=True):
    """Where it runs."""

    node_name: str = ""
    host_network: bool = False


class LeanStatus(meta.Model, frozen=True):
    """Which addresses it has, and since when."""

    phase: str = ""
    pod_ip: str = meta.field("podIP")
    pod_ips: tuple[core.PodIP, ...] = meta.field("podIPs", ())
    start_time: datetime | None = None


class LeanPod(meta.Model, frozen=True):
    """As much of a pod as is read here: a large cluster has a hundred thousand of them."""

    metadata: LeanMeta = LeanMeta()
    spec: LeanSpec = LeanSpec()
    status: LeanStatus = LeanStatus()


Pod = LeanPod | core.Pod
LEAN_PODS = PODS.with_model(LeanPod)


class Holding(msgspec.Struct, frozen=True, gc=False):
    """An address and its holder. `source` says where that is written: network-status, podIPs or a store."""

    address: Address
    namespace: str
    pod: str
    uid: str
    node: str
    interface: str
    network: str
    since: datetime | None
    source: str
    pool: str = ""
    container: str = ""
    device: str = ""

    @property
    def who(self) -> str:
        """The pod as kubectl names it, or the container when no pod is known."""
        return f"{self.namespace}/{self.pod}" if self.pod else f"container {self.container[:12]}"


class _Attachment(msgspec.Struct, frozen=True):
    """One entry of the annotation, as far as it is read."""

    name: str = ""
    interface: str = ""
    ips: tuple[str, ...] = ()


_decoder = msgspec.json.Decoder(tuple[_Attachment, ...])


def of_pods(pods: Iterable[Pod]) -> list[Holding]:
    """The addresses of all pods that may still use them."""
    return [holding for pod in pods for holding in of_pod(pod)]


def of_pod(pod: Pod) -> list[Holding]:
    """A pod's addresses, each once. A pod that has ended, or that has its node's address, holds none."""
    about, status = pod.metadata, pod.status
    if status.phase in _FINISHED or pod.spec.host_network:
        return []
    # By address: interface, network, source.
    networks: dict[Address, tuple[str, str, str]] = {}
    for attachment in _attachments(about):
        for written in attachment.ips:
            # Some plugins write the length of the network behind the address.
            address = parse_address(written.partition("/")[0])
            if address is not None:
                networks.setdefault(address, (attachment.interface, attachment.name, "network-status"))
    for written in [pod_ip.ip for pod_ip in status.pod_ips] or [status.pod_ip]:
        address = parse_address(written)
        if address is not None:
            networks.setdefault(address, ("", "", "podIPs"))
    since = status.start_time or about.creation_timestamp
    node = pod.spec.node_name
    return [
        Holding(address, about.namespace, about.name, about.uid, node, interface, network, since, source)
        for address, (interface, network, source) in networks.items()
    ]


def _attachments(about: LeanMeta | meta.ObjectMeta) -> tuple[_Attachment, ...]:
    noted = about.annotations
    text = noted.network_status if isinstance(noted, LeanAnnotations) else noted.get(NETWORK_STATUS)
    if not text:
        return ()
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError:
        # Users can write annotations too; one that is not a list of networks is ignored.
        return ()
