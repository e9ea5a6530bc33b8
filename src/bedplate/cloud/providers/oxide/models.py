"""What Oxide's Region API answers: the fields that this provider reads, in the API's own words.

In: decoded JSON. Out: frozen values; an answer that lacks a field or has one of another type is refused
(`msgspec.ValidationError`), because a half-read answer must never be taken for a state.
"""

from __future__ import annotations

import ipaddress
from typing import Generic, TypeVar

import msgspec

__all__ = [
    "ExternalIp",
    "FloatingIp",
    "Instance",
    "IpStack",
    "NetworkInterface",
    "Page",
    "Pool",
    "Project",
    "Subnet",
    "User",
    "Vpc",
    "family_of",
]

T = TypeVar("T")


class Answered(msgspec.Struct, frozen=True, gc=False):
    """Base of all of them; unknown fields are skipped."""


class Page(Answered, Generic[T], frozen=True):
    """One page of a list; `next_page` is the token of the next one, None at the end."""

    items: list[T]
    next_page: str | None = None


class Instance(Answered, frozen=True):
    """A virtual machine."""

    id: str
    name: str
    hostname: str
    ncpus: int
    memory: int
    run_state: str
    time_modified: str
    project_id: str = ""
    auto_restart_enabled: bool = True
    cpu_platform: str | None = None


class _Address(Answered, frozen=True):
    ip: str


class _Both(Answered, frozen=True):
    v4: _Address
    v6: _Address


class _V4(Answered, frozen=True, tag="v4", tag_field="type"):
    value: _Address


class _V6(Answered, frozen=True, tag="v6", tag_field="type"):
    value: _Address


class _DualStack(Answered, frozen=True, tag="dual_stack", tag_field="type"):
    value: _Both


IpStack = _V4 | _V6 | _DualStack


class NetworkInterface(Answered, frozen=True):
    """A network interface of an instance."""

    id: str
    name: str
    instance_id: str
    ip_stack: IpStack
    primary: bool = False

    @property
    def addresses(self) -> tuple[str, ...]:
        """Its private addresses, IPv4 first."""
        if isinstance(self.ip_stack, _DualStack):
            return (self.ip_stack.value.v4.ip, self.ip_stack.value.v6.ip)
        return (self.ip_stack.value.ip,)


class ExternalIp(Answered, frozen=True):
    """An address under which an instance is reached (`ephemeral`, `floating`) or goes out (`snat`)."""

    kind: str
    ip: str
    description: str = ""


class FloatingIp(Answered, frozen=True):
    """An address of the project that can be attached to one instance at a time."""

    id: str
    name: str
    description: str
    ip: str
    ip_pool_id: str
    instance_id: str | None = None

    @property
    def family(self) -> str:
        return family_of(self.ip)


class Pool(Answered, frozen=True):
    """A pool of addresses that this silo may use."""

    id: str
    name: str
    ip_version: str


class Vpc(Answered, frozen=True):
    """A virtual network."""

    id: str


class Subnet(Answered, frozen=True):
    """A part of a virtual network."""

    id: str


class Project(Answered, frozen=True):
    """The project that holds the cluster's instances."""

    id: str
    name: str


class User(Answered, frozen=True):
    """Who the token belongs to."""

    id: str
    silo_name: str = ""


def family_of(address: str) -> str:
    """`v4` or `v6`; raises ValueError when the text is not an address."""
    return f"v{ipaddress.ip_address(address).version}"
