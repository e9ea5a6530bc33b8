"""Which address of the pool a Service gets. Pure.

In: the pool, the Services and Nodes that are known, the Service that asks. Out: its address, or an error that says why
there is none. The same question has the same answer in every process: a Service that has an address keeps it, a new
one starts to look at a place its namespace and name determine, so that a Service created again gets its old address
when nobody took it meanwhile.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from bedplate.api import core
from bedplate.cloud.errors import CloudError
from bedplate.core import errors

__all__ = ["choose", "holders", "published"]

Address = ipaddress.IPv4Address
Network = ipaddress.IPv4Network
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def published(service: core.Service, pool: Network) -> Address | None:
    """The address of the pool that stands in a Service's status."""
    if service.spec.type != "LoadBalancer":
        return None
    return next((address for each in service.status.load_balancer.ingress if (address := _within(each.ip, pool))), None)


def holders(services: Iterable[core.Service], nodes: Iterable[core.Node], pool: Network) -> dict[Address, str]:
    """Who has which address of the pool: the UID of a Service (of two, the older one has it) or the name of a node."""
    holders_: dict[Address, str] = {}
    for service in sorted(
        services, key=lambda each: (each.metadata.creation_timestamp or _LONG_AGO, each.metadata.uid)
    ):
        address = published(service, pool)
        if address is not None:
            holders_.setdefault(address, service.metadata.uid)
    for node in nodes:
        for each in node.status.addresses:
            address = _within(each.address, pool)
            if address is not None:
                holders_[address] = f"node {node.name}"
    return holders_


def choose(service: core.Service, taken: Mapping[Address, str], pool: Network) -> Address:
    """The address for a Service. `taken` says who has which; this Service itself is there by its UID."""
    own = service.metadata.uid
    if service.spec.ip_families and "IPv4" not in service.spec.ip_families:
        raise errors.Invalid(f"Cloudlycke's load balancers have IPv4 addresses only (pool {pool})")
    if service.spec.ip_family_policy == "RequireDualStack":
        raise errors.Invalid(
            f"Cloudlycke's load balancers have IPv4 addresses only (pool {pool})", hint="use PreferDualStack"
        )
    if service.spec.load_balancer_ip:
        return _asked_for(service.spec.load_balancer_ip, taken, own, pool)
    kept = next((address for address, holder in taken.items() if holder == own), None)
    if kept is not None:
        return kept
    size = pool.num_addresses
    seed = hashlib.sha256(f"{service.namespace}/{service.name}".encode()).digest()
    start = int.from_bytes(seed[:8]) % size
    for step in range(size):
        address = pool[(start + step) % size]
        if address not in taken:
            return address
    raise CloudError(
        f"all {size} addresses of the pool {pool} are taken",
        hint="delete a load balancer or enlarge loadBalancer.pool",
    )


def _asked_for(text: str, taken: Mapping[Address, str], own: str, pool: Network) -> Address:
    address = _within(text, pool)
    if address is None:
        raise errors.Invalid(f"spec.loadBalancerIP {text} is not in the pool {pool}")
    if taken.get(address, own) != own:
        raise CloudError(f"spec.loadBalancerIP {text} is taken by another Service or node")
    return address


def _within(text: str, pool: Network) -> Address | None:
    try:
        address = Address(text)
    except ValueError:
        return None
    return address if address in pool else None
