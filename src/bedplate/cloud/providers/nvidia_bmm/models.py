"""What we read of the answers of the BMM REST API; fields as the published document names them, nothing else.

In: decoded JSON. Out: frozen Structs. An answer that does not fit is a `Protocol` error of the caller's making.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

__all__ = [
    "InfiniBandInterface",
    "Instance",
    "InstanceType",
    "Interface",
    "Location",
    "Machine",
    "NVLinkInterface",
    "Site",
    "Tenant",
    "read",
]

T = TypeVar("T")


class Interface(msgspec.Struct, frozen=True, rename="camel"):
    """A network interface of an instance."""

    is_physical: bool | None = None
    ip_addresses: tuple[str, ...] | None = None
    status: str | None = None


class InfiniBandInterface(msgspec.Struct, frozen=True, rename="camel"):
    """An InfiniBand port; it has no IP address."""

    partition_id: str | None = None
    status: str | None = None


class NVLinkInterface(msgspec.Struct, frozen=True, rename="camel"):
    """A GPU's place in an NVLink domain."""

    nv_link_domain_id: str | None = None
    status: str | None = None


class Instance(msgspec.Struct, frozen=True, rename="camel"):
    """A machine that was given to a tenant."""

    id: str
    name: str | None = None
    tenant_id: str | None = None
    site_id: str | None = None
    instance_type_id: str | None = None
    vpc_id: str | None = None
    machine_id: str | None = None
    status: str | None = None
    labels: dict[str, str] | None = None
    interfaces: tuple[Interface, ...] | None = None
    infiniband_interfaces: tuple[InfiniBandInterface, ...] | None = None
    nv_link_interfaces: tuple[NVLinkInterface, ...] | None = None

    @property
    def key(self) -> str:
        """The ID as provider IDs and caches have it."""
        return self.id.lower()


class InstanceType(msgspec.Struct, frozen=True):
    """A kind of machine."""

    id: str
    name: str | None = None


class Location(msgspec.Struct, frozen=True):
    """Where a site stands."""

    city: str | None = None
    state: str | None = None
    country: str | None = None


class Site(msgspec.Struct, frozen=True, rename="camel"):
    """A data centre."""

    id: str
    name: str | None = None
    location: Location | None = None
    is_online: bool | None = None
    status: str | None = None


class Tenant(msgspec.Struct, frozen=True):
    """Who the token speaks for."""

    id: str
    org: str | None = None


class Machine(msgspec.Struct, frozen=True, rename="camel"):
    """The server under an instance."""

    id: str
    vendor: str | None = None
    product_name: str | None = None


def read(kind: type[T], data: Any) -> T | str:
    """The value, or what is wrong with it."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as err:
        return str(err)
