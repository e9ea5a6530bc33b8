"""Addresses on this machine's interfaces, through the kernel's own interface (rtnetlink) and ARP announcements.

In: an address to carry for some seconds. Out: it stands on the interface that reaches its network, as a /32 with a
label of ours, and the kernel takes it away by itself when the seconds are over: a process that hangs or is killed
cannot keep it. Announcing tells the neighbours where the address is now. Needs CAP_NET_ADMIN and CAP_NET_RAW. It does
not decide who carries what (`agent`), and touches no address without our label.
"""

from __future__ import annotations

import ipaddress
import itertools
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from bedplate.core import errors

__all__ = ["LABEL", "Found", "KernelWire", "Wire"]

LABEL = ":lycke"
Address = ipaddress.IPv4Address

_TIMEOUT_S = 5.0
_NEW, _DELETE, _GET = 20, 21, 22
_ERROR, _DONE = 2, 3
_REQUEST, _ACK, _REPLACE, _DUMP, _CREATE = 0x1, 0x4, 0x100, 0x300, 0x400
_IFA_ADDRESS, _IFA_LOCAL, _IFA_LABEL, _IFA_CACHEINFO = 1, 2, 3, 6
_HEADER = struct.Struct("=LHHLL")
_BODY = struct.Struct("=BBBBL")
_ATTRIBUTE = struct.Struct("=HH")
_ETHERTYPE_ARP = 0x0806
# An interface's name has 15 characters, and the label repeats its beginning.
_NAME_ROOM = 15 - len(LABEL)


class Wire(Protocol):
    """What an agent does to its machine."""

    def reaches(self, address: Address) -> bool:
        """Whether an interface stands in the network of this address."""

    def hold(self, address: Address, seconds: int) -> None:
        """Carry the address for so long from now on."""

    def announce(self, address: Address) -> None:
        """Tell the neighbours that the address is here."""

    def release(self, address: Address) -> None:
        """Stop carrying it; idempotent."""

    def held(self) -> set[Address]:
        """What this machine carries for us, from this process or an earlier one."""


@dataclass(frozen=True, slots=True)
class Found:
    """An IPv4 address on an interface."""

    index: int
    interface: ipaddress.IPv4Interface
    label: str


class KernelWire:
    """The network namespace this process runs in."""

    def __init__(self) -> None:
        self._sequence = itertools.count(1)

    def reaches(self, address: Address) -> bool:
        return self._home(address) is not None

    def hold(self, address: Address, seconds: int) -> None:
        home = self._home(address)
        if home is None:
            raise errors.NotFound(f"no interface of this machine is in the network of {address}")
        label = socket.if_indextoname(home)[:_NAME_ROOM] + LABEL
        # Preferred and valid time; the two stamps are the kernel's.
        lifetime = struct.pack("=LLLL", seconds, seconds, 0, 0)
        attributes = (
            _attribute(_IFA_LOCAL, address.packed)
            + _attribute(_IFA_ADDRESS, address.packed)
            + _attribute(_IFA_LABEL, label.encode() + b"\0")
            + _attribute(_IFA_CACHEINFO, lifetime)
        )
        self._change(_NEW, _CREATE | _REPLACE, home, attributes, f"carry {address}")

    def announce(self, address: Address) -> None:
        home = self._home(address)
        if home is None:
            return
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETHERTYPE_ARP)) as line:
            line.settimeout(_TIMEOUT_S)
            line.bind((socket.if_indextoname(home), _ETHERTYPE_ARP))
            line.send(_announcement(line.getsockname()[4], address))

    def release(self, address: Address) -> None:
        for entry in self._ours():
            if entry.interface.ip == address:
                attributes = _attribute(_IFA_LOCAL, address.packed) + _attribute(_IFA_ADDRESS, address.packed)
                self._change(_DELETE, 0, entry.index, attributes, f"release {address}")

    def held(self) -> set[Address]:
        return {entry.interface.ip for entry in self._ours()}

    def _ours(self) -> list[Found]:
        return [entry for entry in self._all() if entry.label.endswith(LABEL)]

    def _home(self, address: Address) -> int | None:
        """The interface whose network holds the address; the narrowest, if several do."""
        fitting = [
            entry
            for entry in self._all()
            if address in entry.interface.network and not entry.label.endswith(LABEL) and entry.interface.ip != address
        ]
        return max(fitting, key=lambda entry: entry.interface.network.prefixlen).index if fitting else None

    def _all(self) -> list[Found]:
        body = _BODY.pack(socket.AF_INET, 0, 0, 0, 0)
        entries = []
        for kind, content in self._ask(_GET, _DUMP, body):
            if kind == _NEW:
                _, prefix, _, _, index = _BODY.unpack_from(content)
                values = dict(_attributes(content[_BODY.size :]))
                packed = values.get(_IFA_LOCAL, values.get(_IFA_ADDRESS, b""))
                label = values.get(_IFA_LABEL, b"").rstrip(b"\0").decode()
                entries.append(Found(index, ipaddress.IPv4Interface((packed, prefix)), label))
        return entries

    def _change(self, kind: int, flags: int, index: int, attributes: bytes, what: str) -> None:
        body = _BODY.pack(socket.AF_INET, 32, 0, 0, index) + attributes
        try:
            for _ in self._ask(kind, flags | _ACK, body):
                pass
        except OSError as err:
            raise errors.Denied(
                f"could not {what}: {err.strerror}", hint="the agent needs CAP_NET_ADMIN on the machine's network"
            ) from err

    def _ask(self, kind: int, flags: int, body: bytes) -> Iterator[tuple[int, bytes]]:
        """Send one request and give the messages of its answer; raises OSError with the kernel's reason."""
        sequence = next(self._sequence)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as line:
            line.settimeout(_TIMEOUT_S)
            line.bind((0, 0))
            line.send(_HEADER.pack(_HEADER.size + len(body), kind, flags | _REQUEST, sequence, 0) + body)
            while True:
                for message, content in _messages(line.recv(1 << 16)):
                    if message == _DONE:
                        return
                    if message == _ERROR:
                        (code,) = struct.unpack_from("=l", content)
                        if code:
                            raise OSError(-code, os.strerror(-code))
                        return
                    yield message, content


def _attribute(kind: int, value: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + b"\0" * (-len(value) % 4)


def _attributes(content: bytes) -> Iterator[tuple[int, bytes]]:
    while len(content) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(content)
        yield kind, content[_ATTRIBUTE.size : length]
        content = content[(length + 3) & ~3 :]


def _messages(content: bytes) -> Iterator[tuple[int, bytes]]:
    while len(content) >= _HEADER.size:
        length, kind, _, _, _ = _HEADER.unpack_from(content)
        yield kind, content[_HEADER.size : length]
        content = content[(length + 3) & ~3 :]


def _announcement(hardware: bytes, address: Address) -> bytes:
    """An ARP request for the address that names its asker as the owner: neighbours correct what they remember."""
    ethernet = b"\xff" * 6 + hardware + struct.pack("!H", _ETHERTYPE_ARP)
    fixed = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1)
    return ethernet + fixed + hardware + address.packed + b"\0" * 6 + address.packed
