"""From a pool and this node's entry in its status to what can be allocated from.

In: a spec, the node's entry. Out: a `PoolConfig`, or `BadPool` saying why there is none. Pure.

The document keeps exclusions as the original writes them, overlapping ones too; choosing uses them merged. An
exclusion that covers a node's whole prefix with both ends outside stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bedplate.ipam import addresses
from bedplate.ipam.addresses import Address, Network, parse_address, parse_network
from bedplate.ipam.node import poolconfig
from bedplate.ipam.node.poolconfig import BadPool, PoolConfig
from bedplate.ipam.pools import (
    CIDRAllocation,
    CIDRPoolSpec,
    ExcludeIndexRange,
    ExcludeRange,
    IPAllocation,
    IPPoolSpec,
    cidrpool_key,
    ippool_key,
)
from bedplate.ipam.validation import cidrpool_problems, summary

__all__ = ["cidrpool_config", "ippool_config"]

Texts = tuple[str, str]


def ippool_config(name: str, spec: IPPoolSpec, own: IPAllocation) -> PoolConfig:
    """What an IPPool is on this node. Its spec is taken as it is, as long as it can be used."""
    exclusions = [(exclusion.start_ip, exclusion.end_ip) for exclusion in spec.exclusions]
    start, end = parse_address(own.start_ip), parse_address(own.end_ip)
    if start is not None and end is not None:
        exclusions += _by_index(spec.per_node_exclusions, start, end.value)
    return poolconfig.make(
        ippool_key(name),
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
    return poolconfig.make(
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
        first, last = parse_address(exclusion.start_ip), parse_address(exclusion.end_ip)
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
    parsed = parse_network(own.prefix)
    if parsed is None or parsed[0].value != parsed[1].base:
        raise BadPool(f"pool {key}: this node's prefix {own.prefix!r} must be a network in CIDR notation")
    prefix = parsed[1]
    computed = addresses.gateway_at(prefix, spec.gateway_index) if spec.gateway_index is not None else None
    expected = str(computed) if computed is not None else ""
    for static in spec.static_allocations:
        reserved = parse_network(static.prefix)
        is_same = reserved is not None and reserved[1] == prefix
        if static.node_name == own.node_name:
            if not is_same or own.gateway != (static.gateway or expected):
                raise BadPool(f"pool {key}: this node's entry is not the static allocation {static.prefix}")
            return prefix
        if is_same:
            raise BadPool(f"pool {key}: this node's prefix {own.prefix} is reserved for {static.node_name or 'nobody'}")
    cidr = parse_network(spec.cidr)
    assert cidr is not None, "the spec was validated"
    if not cidr[1].holds_network(prefix) or prefix.length != spec.per_node_network_prefix:
        raise BadPool(
            f"pool {key}: this node's prefix {own.prefix} is no /{spec.per_node_network_prefix} of {spec.cidr}"
        )
    if own.gateway != expected:
        raise BadPool(f"pool {key}: this node's gateway is {own.gateway or 'empty'} instead of {expected or 'empty'}")
    return prefix
