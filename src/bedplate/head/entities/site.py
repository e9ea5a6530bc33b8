"""What a site has besides nodes and clusters: networks, health checks, users of the head."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from bedplate.head.entities.base import Named
from bedplate.head.objects import Obj
from bedplate.head.schema.entity import Field, Group, Look
from bedplate.head.schema.kinds import Address, Bool, Choice, Duration, Integer, Text, TokenText

__all__ = ["CHECK_ROLES", "HealthCheck", "Network", "User"]

CHECK_ROLES = {
    "Docker": "Docker::Host",
    "KubernetesChildNode": "kubelet",
    "KubernetesComponentsStatus": "kubelet",
    "KubernetesNodesStatus": "kubelet",
    "KubernetesPodsStatus": "kubelet",
}
"""The checks that only mean something on nodes with a role; all others run on every node."""


class Network(Named):
    """A range of addresses with a domain."""

    noun = "network"
    columns = ("type", "base_address", "netmask_bits", "domain_name")

    base_address = Field("Base address", Address(), doc="first address of the range")
    netmask_bits = Field("Netmask bits", Integer(0, 128), 16, doc="prefix length")
    domain_name = Field("Domain name", Text(), doc="domain of the hosts in it")
    type = Field("Type", Choice(("Internal", "External", "Global")), "Internal", doc="what the network is for")

    @classmethod
    def range(cls, obj: Obj) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
        """The range; None while no base address is set, or when address and bits do not fit."""
        try:
            return ipaddress.ip_network(f"{cls.base_address.value(obj)}/{cls.netmask_bits.value(obj)}")
        except ValueError:
            return None

    @classmethod
    def problems(cls, obj: Obj, look: Look) -> Sequence[str]:
        base, bits = cls.base_address.value(obj), cls.netmask_bits.value(obj)
        if base and cls.range(obj) is None:
            return [f"baseaddress: {base} is not the first address of a network with {bits} netmask bits"]
        return []


class HealthCheck(Named):
    """A check that returns PASS or FAIL."""

    noun = "health check"
    columns = ("enabled", "interval", "description")

    enabled = Field("Enabled", Bool(), True, doc="run the check")
    interval = Field("Interval", Duration(), 120.0, doc="time between two runs")
    description = Field("Description", Text(), doc="when it passes")


class User(Named):
    """A user of the head: an admin can change everything, an operator everything except users, secrets and what reaches
    head nodes, an auditor can read."""

    noun = "user"
    columns = ("role", "enabled")
    groups = (
        Group("Identity", ("name", "role", "enabled")),
        Group("Credentials", ("token", "certificate")),
    )

    role = Field("Role", Choice(("admin", "operator", "auditor")), "auditor", doc="what the user may do")
    enabled = Field("Enabled", Bool(), True, doc="whether the user may sign in")
    token = Field("Token", TokenText(), doc="bearer token of at least 128 random bits")
    certificate = Field(
        "Certificate",
        Text(r"[0-9a-f]{64}", "a SHA-256 fingerprint in hexadecimal"),
        doc="SHA-256 fingerprint of the client certificate",
        unique=True,
    )
