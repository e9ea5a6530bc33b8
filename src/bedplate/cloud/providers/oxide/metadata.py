"""What a Node shows of an Oxide instance: addresses, instance type, labels. Pure.

Order of addresses: the host name, private ones (the primary interface first), then external ones. Left out: source NAT
addresses, which nobody can reach, and floating IPs that serve a Service, which move from node to node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bedplate.cloud.interface import Address
from bedplate.cloud.providers.oxide import models, ownership

__all__ = ["LABELS", "instance_type", "labels", "node_addresses"]

_GIB = 2**30
LABELS = {"project-id": "oxide.computer/project-id", "cpu-platform": "oxide.computer/cpu-platform"}
"""Labels a configuration may ask for, by the short name it uses."""


def node_addresses(
    instance: models.Instance,
    interfaces: Iterable[models.NetworkInterface],
    external: Iterable[models.ExternalIp],
) -> tuple[Address, ...]:
    """All addresses of the instance, in the order a Node shows them, each once."""
    listed = [Address("Hostname", instance.hostname)] if instance.hostname else []
    # By name, which is unique within an instance: lists come in different orders, and a Node must not change for that.
    for interface in sorted(interfaces, key=lambda item: (not item.primary, item.name)):
        listed += [Address("InternalIP", address) for address in interface.addresses]
    for item in external:
        if item.kind == "ephemeral" or (item.kind == "floating" and not ownership.is_managed_address(item.description)):
            listed.append(Address("ExternalIP", item.ip))
    return tuple(dict.fromkeys(listed))


def instance_type(instance: models.Instance) -> str:
    """CPUs and whole GiB of memory, such as `4-16`."""
    return f"{instance.ncpus}-{instance.memory // _GIB}"


def labels(instance: models.Instance, keys: Sequence[str]) -> dict[str, str]:
    """The labels asked for, those that the instance has a value for."""
    values = {"project-id": instance.project_id, "cpu-platform": instance.cpu_platform or ""}
    return {LABELS[name]: values[name] for name in keys if values.get(name)}
