"""The objects of the Oxide Region API, as plain trees, and its rule for names.

In: what a caller says of an instance, an interface, an address. Out: trees with every required field.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["NAME", "STATES", "UUID", "family", "floating_ip", "instance", "interface", "ip_stack", "pool", "project"]

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
NAME = re.compile(r"[a-z]([a-zA-Z0-9-]*[a-zA-Z0-9])?")
STATES = (
    "creating",
    "starting",
    "running",
    "stopping",
    "stopped",
    "rebooting",
    "migrating",
    "repairing",
    "failed",
    "destroyed",
)


def family(address: str) -> str:
    """`v4` or `v6`."""
    return f"v{ipaddress.ip_address(address).version}"


def _identity(identifier: str, name: str, description: str, now: str) -> dict[str, Any]:
    return {
        "id": identifier,
        "name": name,
        "description": description,
        "time_created": now,
        "time_modified": now,
    }


def instance(
    identifier: str, name: str, project_id: str, now: str, *, ncpus: int, memory: int, state: str, hostname: str
) -> dict[str, Any]:
    """An Instance; `memory` in bytes."""
    return {
        **_identity(identifier, name, "simulated", now),
        "project_id": project_id,
        "hostname": hostname,
        "ncpus": ncpus,
        "memory": memory,
        "boot_disk_id": None,
        "cpu_platform": None,
        "enable_jumbo_frames": False,
        "auto_restart_enabled": True,
        "auto_restart_policy": None,
        "run_state": state,
        "time_run_state_updated": now,
    }


def ip_stack(addresses: Sequence[str]) -> dict[str, Any]:
    """The private addresses of one interface: one per family at most."""
    by_family = {family(address): {"ip": address, "transit_ips": []} for address in addresses}
    if len(by_family) == 2:
        return {"type": "dual_stack", "value": {"v4": by_family["v4"], "v6": by_family["v6"]}}
    version, value = next(iter(by_family.items()))
    return {"type": version, "value": value}


def interface(
    identifier: str, name: str, instance_id: str, network: Mapping[str, str], stack: Mapping[str, Any], now: str
) -> dict[str, Any]:
    """An InstanceNetworkInterface; `network` holds vpc_id and subnet_id. Not primary unless changed."""
    digits = identifier.replace("-", "")
    return {
        **_identity(identifier, name, "simulated", now),
        "instance_id": instance_id,
        **network,
        "mac": ":".join(["a8", "40", "25", *(digits[start : start + 2] for start in range(0, 6, 2))]).upper(),
        "primary": False,
        "ip_stack": stack,
    }


def floating_ip(
    identifier: str, name: str, description: str, project_id: str, address: str, pool_id: str, now: str
) -> dict[str, Any]:
    """A FloatingIp, attached to nothing."""
    return {
        **_identity(identifier, name, description, now),
        "ip": address,
        "ip_pool_id": pool_id,
        "project_id": project_id,
        "instance_id": None,
    }


def pool(identifier: str, name: str, version: str, is_default: bool, now: str) -> dict[str, Any]:
    """A SiloIpPool."""
    return {
        **_identity(identifier, name, "simulated", now),
        "ip_version": version,
        "is_default": is_default,
        "pool_type": "unicast",
    }


def project(identifier: str, name: str, now: str) -> dict[str, Any]:
    """A Project, or anything else that is nothing but an identity."""
    return _identity(identifier, name, "simulated", now)
