"""What an instance means for its Node: addresses, type, zone, region, labels, whether it is switched off.

In: models of the API and the configuration. Out: values for the Node. Pure.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping

from bedplate.api import names
from bedplate.cloud.interface import Address
from bedplate.cloud.providers.nvidia_bmm.config import Config, Network
from bedplate.cloud.providers.nvidia_bmm.models import Instance, Interface, Location, Machine

__all__ = [
    "LEGACY_TYPE",
    "addresses",
    "instance_ips",
    "is_shutdown",
    "is_terminated",
    "label_value",
    "labels",
    "location_region",
    "needs_location",
    "parse_ip",
    "region",
    "zone",
]

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
LEGACY_TYPE = "nvidia-bmm-instance"
_OFF = frozenset({"Terminating", "Terminated", "Error"})
_TERMINATED = "Terminated"
_READY, _DELETING = "Ready", "Deleting"


def is_shutdown(instance: Instance) -> bool:
    """Whether the machine counts as switched off; an unknown or missing status does not."""
    return instance.status in _OFF


def is_terminated(instance: Instance) -> bool:
    """Whether the instance is over, and is only listed still."""
    return instance.status == _TERMINATED


def label_value(text: str) -> str:
    """The text as a label value: other characters become `-`, at most 63, beginning and ending as Kubernetes wants."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-")[:63].rstrip("._-")


def instance_ips(instance: Instance) -> list[IPAddress]:
    """Every IP of its interfaces in the order a Node should have them: physical first, ready first, each once."""
    ips: dict[IPAddress, None] = {}
    usable = [candidate for candidate in instance.interfaces or () if candidate.status != _DELETING]
    for interface in sorted(usable, key=_rank):
        for text in interface.ip_addresses or ():
            if (parsed := parse_ip(text)) is not None:
                ips.setdefault(parsed)
    return list(ips)


def _rank(interface: Interface) -> tuple[bool, bool]:
    return (interface.is_physical is not True, interface.status != _READY)


def parse_ip(text: str) -> IPAddress | None:
    """The address in `text`, which may carry a prefix length; None when it is none that another machine can reach."""
    try:
        parsed = ipaddress.ip_address(text.partition("/")[0].strip())
    except ValueError:
        return None
    return None if parsed.is_unspecified or parsed.is_loopback or parsed.is_link_local else parsed


def addresses(ips: Iterable[IPAddress], node_name: str, config: Config) -> tuple[Address, ...]:
    """The Node's addresses; empty when there is no IP among them."""
    listed = []
    for ip in ips:
        if _is_in(ip, config.external_cidrs):
            listed.append(Address("ExternalIP", str(ip)))
        elif not config.internal_cidrs or _is_in(ip, config.internal_cidrs):
            listed.append(Address("InternalIP", str(ip)))
    return (*listed, Address("Hostname", node_name)) if listed else ()


def _is_in(ip: IPAddress, networks: Iterable[Network]) -> bool:
    return any(ip in network for network in networks)


def zone(site_id: str, config: Config) -> str:
    """The site's zone: the mapping, else the override, else the default the original's users know."""
    return _mapped(site_id, config.zone_mapping) or config.zone or label_value(f"nvidia-bmm-zone-{site_id}")


def region(site_id: str, config: Config, by_location: str = "") -> str:
    """The site's region: the mapping, else the override, else what its location says, else the default."""
    legacy = label_value(f"nvidia-bmm-region-{site_id.partition('-')[0]}")
    return _mapped(site_id, config.region_mapping) or config.region or by_location or legacy


def needs_location(site_id: str, config: Config) -> bool:
    """Whether the region depends on where the site stands."""
    return config.region_source == "location" and not (_mapped(site_id, config.region_mapping) or config.region)


def location_region(location: Location | None) -> str:
    """Country, state and city as one word; empty when nothing is known."""
    if location is None:
        return ""
    parts = (location.country, location.state, location.city)
    words = [re.sub(r"[^a-z0-9]+", "-", (part or "").lower()).strip("-") for part in parts]
    return label_value("-".join(word for word in words if word))


def _mapped(site_id: str, mapping: Mapping[str, str]) -> str:
    return mapping.get(site_id) or mapping.get(site_id.lower(), "")


def labels(instance: Instance, machine: Machine | None, config: Config) -> dict[str, str]:
    """The additional labels that `labels.include` asks for; what the API does not say is left out."""
    facts: dict[str, str | None] = {}
    if "tenant-labels" in config.labels:
        # First, so that a tenant's label never hides one of ours.
        facts |= instance.labels or {}
    single = {
        "vpc": instance.vpc_id,
        "machine-id": instance.machine_id,
        "nvlink-domain": _only(
            interface.nv_link_domain_id
            for interface in instance.nv_link_interfaces or ()
            if interface.status != _DELETING
        ),
        "infiniband": _only(
            interface.partition_id
            for interface in instance.infiniband_interfaces or ()
            if interface.status != _DELETING
        ),
        "vendor": machine.vendor if machine is not None else None,
        "product-name": machine.product_name if machine is not None else None,
    }
    facts |= {name: value for name, value in single.items() if name in config.labels}
    values = {f"{config.label_prefix}{name}": label_value(value) for name, value in facts.items() if value}
    return {key: value for key, value in values.items() if value and not names.label_key_problems(key)}


def _only(values: Iterable[str | None]) -> str | None:
    """The one value all interfaces have; None when they differ, since a label has room for one."""
    distinct = {value for value in values if value}
    return distinct.pop() if len(distinct) == 1 else None
