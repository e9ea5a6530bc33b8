"""Which addresses a Node gets: what the cloud offers, put in order by what the kubelet was told.

In: the cloud's addresses, the Node with its annotation and its present addresses. Out: the list to publish, or the
reason why the present one stays. Pure; asks nobody and writes nothing.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bedplate.api import core, names
from bedplate.cloud.interface import Address
from bedplate.core import errors

__all__ = [
    "Decision",
    "InvalidNodeIP",
    "check_node_ip",
    "decide",
    "parse_node_ips",
    "present",
    "provided_first",
]

INTERNAL_IP, HOSTNAME = "InternalIP", "Hostname"
IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class InvalidNodeIP(errors.Invalid):
    """The kubelet's `--node-ip` is malformed, or this machine has no such address in the cloud."""


@dataclass(frozen=True, slots=True)
class Decision:
    """`addresses` is None when nothing is to be written; `is_refusal`: the cloud's offer was not taken."""

    addresses: tuple[Address, ...] | None
    reason: str
    is_refusal: bool = False


def parse_node_ips(text: str) -> tuple[IPAddress, ...]:
    """The annotation's one address, or its pair of two families; anything else raises `InvalidNodeIP`."""
    parsed = tuple(ip for ip in map(_ip, text.split(",")) if ip is not None)
    if len(parsed) != text.count(",") + 1:
        raise InvalidNodeIP(f"the provided node IP {text!r} is not an IP address or a pair of them")
    if len(parsed) > 2:
        raise InvalidNodeIP(f"the provided node IP {text!r} has {len(parsed)} addresses; one or two are allowed")
    if len(parsed) == 2:
        if parsed[0].version == parsed[1].version:
            raise InvalidNodeIP(f"the provided node IPs {text!r} are both of IPv{parsed[0].version}")
        if any(ip.is_unspecified for ip in parsed):
            raise InvalidNodeIP(f"the provided node IPs {text!r} contain an unspecified address")
    return parsed


def provided_first(text: str, offered: Sequence[Address]) -> tuple[Address, ...]:
    """The addresses equal to the annotation's first; then those of types none of them had, as the cloud gave them."""
    chosen: list[Address] = []
    for node_ip in parse_node_ips(text):
        matches = [address for address in offered if _ip(address.address) == node_ip]
        if not matches:
            listed = ", ".join(f"{address.type} {address.address}" for address in offered) or "none"
            raise InvalidNodeIP(f"the provided node IP {node_ip} is not among the addresses the cloud offers: {listed}")
        chosen += matches
    claimed = {address.type for address in chosen}
    return (*chosen, *(address for address in offered if address.type not in claimed))


def check_node_ip(node: core.Node, offered: Sequence[Address]) -> None:
    """Raise `InvalidNodeIP` when the kubelet was told an address that the cloud does not offer."""
    text = node.metadata.annotations.get(names.ANNOTATION_PROVIDED_NODE_IP)
    if text is not None:
        provided_first(text, offered)


def decide(node: core.Node, offered: Sequence[Address]) -> Decision:
    """What to publish for an initialised node."""
    if not offered:
        return Decision(None, "the cloud reports no addresses: those of the node are kept", is_refusal=True)
    now = present(node)
    chosen = list(offered)
    if not any(address.type == HOSTNAME for address in chosen):
        chosen += [address for address in now if address.type == HOSTNAME]
    text = node.metadata.annotations.get(names.ANNOTATION_PROVIDED_NODE_IP)
    if text is not None:
        try:
            chosen = list(provided_first(text, chosen))
        except InvalidNodeIP as err:
            return Decision(None, f"{err.message}: the node's addresses are kept", is_refusal=True)
    # The same address twice says nothing more.
    unique = tuple(dict.fromkeys(chosen))
    if _has_internal(now) and not _has_internal(unique):
        return Decision(
            None, "the cloud no longer reports an InternalIP: the last valid addresses are kept", is_refusal=True
        )
    if unique == now:
        return Decision(None, "the node has the cloud's addresses already")
    return Decision(unique, f"the node's addresses become {_listed(unique)}")


def present(node: core.Node) -> tuple[Address, ...]:
    """The addresses in the Node's status."""
    return tuple(Address(address.type, address.address) for address in node.status.addresses)


def _ip(text: str) -> IPAddress | None:
    """The address, an IPv4 address in IPv6 clothes as what it is; None for anything else, such as one with a zone."""
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(parsed, ipaddress.IPv6Address):
        return None if parsed.scope_id else parsed.ipv4_mapped or parsed
    return parsed


def _has_internal(addresses: Iterable[Address]) -> bool:
    return any(address.type == INTERNAL_IP for address in addresses)


def _listed(addresses: Iterable[Address]) -> str:
    return ", ".join(f"{address.type} {address.address}" for address in addresses)
