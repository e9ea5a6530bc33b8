"""What a node knows of a pool: the block, the gateway, what is left out, and the text of it all.

In: a pool's spec and this node's entry in its status, as `poolview.py` finds them, or the text kept in a store. Out: a
`PoolConfig` that can be allocated from, or `BadPool` saying what is wrong with it. Pure.

Exclusions are merged and cut to the block here, so that they may overlap; `document` keeps them as the original writes
them. One that covers a node's whole prefix with both ends outside stays.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from bedplate.core import errors
from bedplate.ipam import addresses
from bedplate.ipam.addresses import Address, Network
from bedplate.ipam.node import gojson
from bedplate.ipam.pools import (
    CIDRAllocation,
    CIDRPoolSpec,
    ExcludeIndexRange,
    ExcludeRange,
    IPAllocation,
    IPPoolSpec,
    cidrpool_key,
)
from bedplate.ipam.ranges import Range, RangeSet
from bedplate.ipam.validation import cidrpool_problems, summary

__all__ = [
    "BadPool",
    "PoolConfig",
    "cidrpool_config",
    "document_of",
    "ippool_config",
    "make",
    "read",
]

Texts = tuple[str, str]


class BadPool(errors.Terminal):
    """The pool's configuration on this node cannot be used."""


class PoolConfig(msgspec.Struct, frozen=True, gc=False):
    """The configuration of a pool on this node. Equal documents mean equal configurations."""

    key: str
    subnet: str
    """As written in the pool; `network` is what it means."""
    network: Network
    start: int
    end: int
    gateway: Address | None
    exclusions: tuple[Range, ...]
    """Inside the block, sorted, neither overlapping nor touching."""
    routes: tuple[str, ...]
    """Destinations as written."""
    default_gateway: bool
    document: str
    """The JSON that is stored with every reservation."""

    def in_block(self, address: Address) -> bool:
        """The address is one of this node's block."""
        return address.bits == self.network.bits and self.start <= address.value <= self.end


def document_of(
    subnet: str,
    start: str,
    end: str,
    gateway: str,
    exclusions: Iterable[Texts],
    routes: Iterable[str],
    *,
    default_gateway: bool,
) -> str:
    """The JSON text of the pool, byte for byte as the original writes it."""
    quote = gojson.quote
    left_out = ",".join(f'{{"startIP":{quote(first)},"endIP":{quote(last)}}}' for first, last in exclusions)
    ways = ",".join(f'{{"dst":{quote(route)}}}' for route in routes)
    return (
        f'{{"subnet":{quote(subnet)},"startIP":{quote(start)},"endIP":{quote(end)},"gateway":{quote(gateway)},'
        f'"exclusions":[{left_out}],"routes":[{ways}],"defaultGateway":{"true" if default_gateway else "false"}}}'
    )


def make(
    key: str,
    *,
    subnet: str,
    start: str,
    end: str,
    gateway: str = "",
    exclusions: Sequence[Texts] = (),
    routes: Sequence[str] = (),
    default_gateway: bool = False,
) -> PoolConfig:
    """The configuration that these texts mean."""
    network = addresses.parse_network(subnet)
    if network is None:
        raise BadPool(f"pool {key}: subnet {subnet!r} must be a network in CIDR notation")
    first, last = _in_network(key, "startIP", start, network[1]), _in_network(key, "endIP", end, network[1])
    if last < first:
        raise BadPool(f"pool {key}: the block ends ({end}) before it begins ({start})")
    return PoolConfig(
        key=key,
        subnet=subnet,
        network=network[1],
        start=first,
        end=last,
        gateway=addresses.parse_address(gateway),
        exclusions=_cut(key, exclusions, network[1].bits, Range(first, last)),
        routes=tuple(routes),
        default_gateway=default_gateway,
        document=document_of(subnet, start, end, gateway, exclusions, routes, default_gateway=default_gateway),
    )


def _in_network(key: str, field: str, written: str, network: Network) -> int:
    address = addresses.parse_address(written)
    if address is None or not network.holds(address):
        raise BadPool(f"pool {key}: {field} {written!r} must be an address of {network}")
    return address.value


def _cut(key: str, exclusions: Sequence[Texts], bits: int, block: Range) -> tuple[Range, ...]:
    ranges = []
    for written in exclusions:
        first, last = (addresses.parse_address(text) for text in written)
        if first is None or last is None or (first.bits, last.bits) != (bits, bits):
            raise BadPool(f"pool {key}: exclusion {'-'.join(written)} must be a range of the pool's address family")
        ranges.append(Range(first.value, last.value))
    return tuple(RangeSet(ranges).within(block))


class _Exclusion(msgspec.Struct):
    startIP: str
    endIP: str


class _Route(msgspec.Struct):
    dst: str


class _Document(msgspec.Struct):
    subnet: str
    startIP: str
    endIP: str
    gateway: str = ""
    exclusions: list[_Exclusion] | None = None
    routes: list[_Route] | None = None
    defaultGateway: bool = False


@functools.lru_cache(maxsize=256)
def read(key: str, document: str) -> PoolConfig | None:
    """The configuration a store remembers; None when its text says nothing that can be used."""
    try:
        pool: Any = msgspec.json.decode(document, type=_Document)
        return make(
            key,
            subnet=pool.subnet,
            start=pool.startIP,
            end=pool.endIP,
            gateway=pool.gateway,
            exclusions=[(exclusion.startIP, exclusion.endIP) for exclusion in pool.exclusions or ()],
            routes=[route.dst for route in pool.routes or ()],
            default_gateway=pool.defaultGateway,
        )
    except (msgspec.MsgspecError, UnicodeError, BadPool):
        return None


# From a pool and this node's entry in its status


def ippool_config(name: str, spec: IPPoolSpec, own: IPAllocation) -> PoolConfig:
    """What an IPPool is on this node. Its spec is taken as it is, as long as it can be used."""
    exclusions = [(exclusion.start_ip, exclusion.end_ip) for exclusion in spec.exclusions]
    start, end = addresses.parse_address(own.start_ip), addresses.parse_address(own.end_ip)
    if start is not None and end is not None:
        exclusions += _by_index(spec.per_node_exclusions, start, end.value)
    return make(
        name,
        subnet=spec.subnet,
        start=own.start_ip,
        end=own.end_ip,
        gateway=spec.gateway,
        exclusions=exclusions,
        routes=[route.dst for route in spec.routes],
        default_gateway=spec.default_gateway,
    )


def cidrpool_config(name: str, spec: CIDRPoolSpec, own: CIDRAllocation) -> PoolConfig:
    """What a CIDRPool is on this node; spec and entry have to be right."""
    key = cidrpool_key(name)
    problems = cidrpool_problems(name, spec)
    if problems:
        raise BadPool(f"pool {key}: {summary(problems)}")
    prefix = _prefix(key, spec, own)
    first, last = addresses.first_usable(prefix), addresses.last_usable(prefix)
    start, end = addresses.text(prefix.bits, first), addresses.text(prefix.bits, last)
    exclusions = list(_inside(spec.exclusions, prefix, (start, end)))
    exclusions += _by_index(spec.per_node_exclusions, Address(prefix.bits, prefix.base), last)
    return make(
        key,
        subnet=own.prefix,
        start=start,
        end=end,
        gateway=own.gateway,
        exclusions=exclusions,
        routes=[route.dst for route in spec.routes],
        default_gateway=spec.default_gateway,
    )


def _by_index(exclusions: Sequence[ExcludeIndexRange], base: Address, end: int) -> list[Texts]:
    """Offsets as addresses, cut to what begins at `base` and ends at `end`."""
    spans = []
    for exclusion in exclusions:
        first, last = base.value + max(0, exclusion.start_index), min(base.value + exclusion.end_index, end)
        if first <= last:
            spans.append((addresses.text(base.bits, first), addresses.text(base.bits, last)))
    return spans


def _inside(exclusions: Iterable[ExcludeRange], prefix: Network, block: Texts) -> Iterator[Texts]:
    """What touches the prefix; an end that lies outside becomes the block's."""
    for exclusion in exclusions:
        first, last = addresses.parse_address(exclusion.start_ip), addresses.parse_address(exclusion.end_ip)
        if first is None or last is None or first.bits != prefix.bits or last.bits != prefix.bits:
            continue
        if last.value < prefix.base or first.value > prefix.top:
            continue
        yield (
            exclusion.start_ip if prefix.holds(first) else block[0],
            exclusion.end_ip if prefix.holds(last) else block[1],
        )


def _prefix(key: str, spec: CIDRPoolSpec, own: CIDRAllocation) -> Network:
    """The node's prefix, if the entry fits the spec. Networks are compared, not their texts."""
    parsed = addresses.parse_network(own.prefix)
    if parsed is None or parsed[0].value != parsed[1].base:
        raise BadPool(f"pool {key}: this node's prefix {own.prefix!r} must be a network in CIDR notation")
    prefix = parsed[1]
    computed = addresses.gateway_at(prefix, spec.gateway_index) if spec.gateway_index is not None else None
    expected = str(computed) if computed is not None else ""
    for static in spec.static_allocations:
        reserved = addresses.parse_network(static.prefix)
        is_same = reserved is not None and reserved[1] == prefix
        if static.node_name == own.node_name:
            if not is_same or own.gateway != (static.gateway or expected):
                raise BadPool(f"pool {key}: this node's entry is not the static allocation {static.prefix}")
            return prefix
        if is_same:
            raise BadPool(f"pool {key}: this node's prefix {own.prefix} is reserved for {static.node_name or 'nobody'}")
    cidr = addresses.parse_network(spec.cidr)
    assert cidr is not None, "the spec was validated"
    if not cidr[1].holds_network(prefix) or prefix.length != spec.per_node_network_prefix:
        raise BadPool(
            f"pool {key}: this node's prefix {own.prefix} is not a /{spec.per_node_network_prefix} of {spec.cidr}"
        )
    if own.gateway != expected:
        raise BadPool(f"pool {key}: this node's gateway is {own.gateway or 'empty'} instead of {expected or 'empty'}")
    return prefix
