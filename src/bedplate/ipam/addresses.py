"""Addresses and networks as numbers: reading and writing their texts, and the arithmetic of blocks.

In: text. Out: `Address` and `Network` values; None where a text means nothing. Pure.

Texts mean what they mean to Go: an IPv4-mapped IPv6 address is an IPv4 address; a zone is refused, and so are leading
zeros of an IPv4 address. `text` writes the form of RFC 5952. Two values of different families are never equal, and no
order between them is asked for.
"""

from __future__ import annotations

import socket
from functools import lru_cache
from typing import NamedTuple

__all__ = [
    "Address",
    "Network",
    "first_usable",
    "gateway_at",
    "has_broadcast",
    "is_small",
    "last_usable",
    "parse_address",
    "parse_network",
    "text",
    "usable",
]

V4, V6 = 32, 128
REMEMBERED = 1 << 15
"""How many texts are remembered: a controller reads and writes the same ones on every pass."""
_MAPPED = 0xFFFF
"""What stands before the 32 bits of an IPv4 address that is written as IPv6."""
_DOTTED = (0, _MAPPED)
"""The same for addresses whose last part the C library writes with dots."""


class Address(NamedTuple):
    """One address. `bits` is 32 or 128 and tells the family."""

    bits: int
    value: int

    def __str__(self) -> str:
        return text(self.bits, self.value)


class Network(NamedTuple):
    """A network: `base` has no host bits."""

    bits: int
    base: int
    length: int

    @property
    def top(self) -> int:
        """The last address, all host bits set."""
        return self.base | ((1 << (self.bits - self.length)) - 1)

    def holds(self, address: Address) -> bool:
        """The address is of this family and inside."""
        return address.bits == self.bits and self.base <= address.value <= self.top

    def holds_network(self, other: Network) -> bool:
        """The other network is of this family and wholly inside."""
        return other.bits == self.bits and other.length >= self.length and self.base <= other.base <= self.top

    def overlaps(self, other: Network) -> bool:
        """Some address is in both."""
        return self.holds_network(other) or other.holds_network(self)

    def __str__(self) -> str:
        return f"{text(self.bits, self.base)}/{self.length}"


@lru_cache(REMEMBERED)
def parse_address(written: str) -> Address | None:
    """An address, or None."""
    try:
        if ":" not in written:
            return Address(V4, int.from_bytes(socket.inet_pton(socket.AF_INET, written), "big"))
        value = int.from_bytes(socket.inet_pton(socket.AF_INET6, written), "big")
    except (OSError, ValueError):
        return None
    return Address(V4, value & 0xFFFFFFFF) if value >> V4 == _MAPPED else Address(V6, value)


@lru_cache(REMEMBERED)
def parse_network(written: str) -> tuple[Address, Network] | None:
    """The address as it was written, and its network; None when the text is not a CIDR.

    The length of an IPv4-mapped network counts from its IPv4 part (`::ffff:10.0.0.0/104` is `10.0.0.0/8`). A shorter
    one has no IPv4 form: it is an IPv6 network, and the address always has host bits in it.
    """
    head, slash, tail = written.partition("/")
    address = parse_address(head)
    digits = tail.lstrip("0")
    if address is None or not slash or not tail.isascii() or not tail.isdigit() or len(digits) > 3:
        return None
    length = int(digits or "0")
    bits, value = address
    if bits == V4 and ":" in head:
        bits, value = (V6, value | _MAPPED << V4) if length < V6 - V4 else (V4, value)
        length -= V6 - V4 if bits == V4 else 0
    if length > bits:
        return None
    host = bits - length
    return address, Network(bits, value >> host << host, length)


@lru_cache(REMEMBERED)
def text(bits: int, value: int) -> str:
    """An address as Go prints it."""
    if bits == V4:
        return socket.inet_ntop(socket.AF_INET, value.to_bytes(4, "big"))
    if value >> V4 in _DOTTED:
        import ipaddress

        return str(ipaddress.IPv6Address(value))
    return socket.inet_ntop(socket.AF_INET6, value.to_bytes(16, "big"))


def is_small(network: Network) -> bool:
    """One or two addresses: every one of them is used, the network's own too."""
    return network.bits - network.length <= 1


def has_broadcast(network: Network) -> bool:
    """The last address belongs to nobody: IPv4, larger than /31."""
    return network.bits == V4 and not is_small(network)


def usable(network: Network) -> int:
    """How many addresses hosts may have; a network's own address is none of them unless it is small."""
    host = network.bits - network.length
    if host <= 1:
        return 1 << host
    return (1 << host) - (2 if network.bits == V4 else 1)


def first_usable(network: Network) -> int:
    """The lowest address that a host may have."""
    return network.base if is_small(network) else network.base + 1


def last_usable(network: Network) -> int:
    """The highest address that a host may have."""
    return network.top - 1 if has_broadcast(network) else network.top


def gateway_at(network: Network, index: int) -> Address | None:
    """The gateway with this offset; None for index 0 of a larger network, and for what lies outside."""
    lowest = 0 if is_small(network) else 1
    highest = usable(network) - 1 if is_small(network) else usable(network)
    return Address(network.bits, network.base + index) if lowest <= index <= highest else None
