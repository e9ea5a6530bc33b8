"""The custom resources: IPPool and CIDRPool, as far as they are read.

In: JSON of an API server. Out: frozen values and the descriptors a client needs. What a pool may say is in
`validation.py`; statuses are written by `controller/` alone.
"""

from __future__ import annotations

import msgspec

from bedplate.api import meta, resources
from bedplate.api.meta import field

__all__ = [
    "CIDRPOOLS",
    "GROUP",
    "IPPOOLS",
    "CIDRAllocation",
    "CIDRPool",
    "CIDRPoolSpec",
    "CIDRPoolStatus",
    "ExcludeIndexRange",
    "ExcludeRange",
    "IPAllocation",
    "IPPool",
    "IPPoolSpec",
    "IPPoolStatus",
    "NodeSelector",
    "NodeSelectorRequirement",
    "NodeSelectorTerm",
    "Route",
    "StaticAllocation",
    "cidrpool_key",
]

GROUP, VERSION = "nv-ipam.nvidia.com", "v1alpha1"


class ExcludeRange(meta.Model, frozen=True):
    """Addresses never given on their own account, both ends included."""

    start_ip: str = field("startIP")
    end_ip: str = field("endIP")


class ExcludeIndexRange(meta.Model, frozen=True):
    """The same by offsets in every block (IPPool: from its first address; CIDRPool: from the network address)."""

    start_index: int = 0
    end_index: int = 0


class Route(meta.Model, frozen=True):
    """A route through the gateway."""

    dst: str = ""


class NodeSelectorRequirement(meta.Model, frozen=True):
    """One condition on a label or a field."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(meta.Model, frozen=True):
    """Conditions that must all hold."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(meta.Model, frozen=True):
    """Terms, one of which must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class IPPoolSpec(meta.Model, frozen=True):
    """A subnet that is cut into blocks of `per_node_block_size` addresses."""

    subnet: str = ""
    per_node_block_size: int = 0
    gateway: str = ""
    exclusions: tuple[ExcludeRange, ...] = ()
    per_node_exclusions: tuple[ExcludeIndexRange, ...] = ()
    node_selector: NodeSelector | None = None
    default_gateway: bool = False
    routes: tuple[Route, ...] = ()


class IPAllocation(meta.Model, frozen=True):
    """The block of a node."""

    node_name: str = ""
    start_ip: str = field("startIP")
    end_ip: str = field("endIP")


class IPPoolStatus(meta.Model, frozen=True):
    """What the controller has given."""

    allocations: tuple[IPAllocation, ...] = ()


class IPPool(meta.Object, frozen=True):
    """One subnet for all nodes; every address keeps the subnet's mask."""

    spec: IPPoolSpec = msgspec.field(default_factory=IPPoolSpec)
    status: IPPoolStatus = msgspec.field(default_factory=IPPoolStatus)


class StaticAllocation(meta.Model, frozen=True):
    """A prefix reserved for one node, or for no node when `node_name` is empty."""

    node_name: str = ""
    gateway: str = ""
    prefix: str = ""


class CIDRPoolSpec(meta.Model, frozen=True):
    """A network that is cut into prefixes of `per_node_network_prefix`."""

    cidr: str = ""
    per_node_network_prefix: int = 0
    gateway_index: int | None = None
    exclusions: tuple[ExcludeRange, ...] = ()
    per_node_exclusions: tuple[ExcludeIndexRange, ...] = ()
    static_allocations: tuple[StaticAllocation, ...] = ()
    node_selector: NodeSelector | None = None
    default_gateway: bool = False
    routes: tuple[Route, ...] = ()


class CIDRAllocation(meta.Model, frozen=True):
    """The prefix of a node."""

    node_name: str = ""
    gateway: str = ""
    prefix: str = ""


class CIDRPoolStatus(meta.Model, frozen=True):
    """What the controller has given."""

    allocations: tuple[CIDRAllocation, ...] = ()


class CIDRPool(meta.Object, frozen=True):
    """One network, a prefix of it for each node, routed."""

    spec: CIDRPoolSpec = msgspec.field(default_factory=CIDRPoolSpec)
    status: CIDRPoolStatus = msgspec.field(default_factory=CIDRPoolStatus)


IPPOOLS = resources.custom(GROUP, VERSION, "ippools", "IPPool", True, IPPool)
CIDRPOOLS = resources.custom(GROUP, VERSION, "cidrpools", "CIDRPool", True, CIDRPool)


def cidrpool_key(name: str) -> str:
    """How a store and a daemon name a CIDRPool, which may have the name of an IPPool; an IPPool's key is its name."""
    return f"cidrpool/{name}"
