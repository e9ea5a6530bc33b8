"""What a node knows of a pool: the block, the gateway, what is left out, and the text of it all.

In: the texts of a pool and its status, as `poolview.py` finds them, or the text kept in a store. Out: a `PoolConfig`
that can be allocated from, or `BadPool` saying what is wrong with it. Pure.

Exclusions are merged and cut to the block here, so that they may overlap; `document` keeps them as written.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from bedplate.core import errors
from bedplate.ipam import addresses
from bedplate.ipam.addresses import Address, Network
from bedplate.ipam.node import gojson

__all__ = ["BadPool", "PoolConfig", "Span", "document_of", "make", "merge", "read"]

Span = tuple[int, int]
"""First and last number, both included."""


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
    exclusions: tuple[Span, ...]
    """Inside the block, sorted, neither overlapping nor touching."""
    routes: tuple[str, ...]
    """Destinations as written."""
    default_gateway: bool
    document: str
    """The JSON that is stored with every reservation."""

    @property
    def bits(self) -> int:
        """32 or 128: the family."""
        return self.network.bits

    def in_block(self, address: Address) -> bool:
        """The address is one of this node's block."""
        return address.bits == self.network.bits and self.start <= address.value <= self.end


def document_of(
    subnet: str,
    start: str,
    end: str,
    gateway: str,
    exclusions: Iterable[tuple[str, str]],
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


def merge(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same numbers in as few spans as possible, sorted."""
    merged: list[Span] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def make(
    key: str,
    *,
    subnet: str,
    start: str,
    end: str,
    gateway: str = "",
    exclusions: Sequence[tuple[str, str]] = (),
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
        exclusions=_cut(key, exclusions, network[1].bits, first, last),
        routes=tuple(routes),
        default_gateway=default_gateway,
        document=document_of(subnet, start, end, gateway, exclusions, routes, default_gateway=default_gateway),
    )


def _in_network(key: str, field: str, written: str, network: Network) -> int:
    address = addresses.parse_address(written)
    if address is None or not network.holds(address):
        raise BadPool(f"pool {key}: {field} {written!r} must be an address of {network}")
    return address.value


def _cut(key: str, exclusions: Sequence[tuple[str, str]], bits: int, start: int, end: int) -> tuple[Span, ...]:
    spans = []
    for written in exclusions:
        first, last = (addresses.parse_address(text) for text in written)
        if first is None or last is None or (first.bits, last.bits) != (bits, bits):
            raise BadPool(f"pool {key}: exclusion {'-'.join(written)} must be a range of the pool's address family")
        if max(first.value, start) <= min(last.value, end):
            spans.append((max(first.value, start), min(last.value, end)))
    return merge(spans)


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
