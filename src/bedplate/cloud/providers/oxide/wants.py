"""What a Service asks of its load balancer: annotations and spec in, floating IPs wanted out. Pure.

One `Slot` is one floating IP. A Service has one, or one per family when it is dual stack. Every contradiction is an
error (`Invalid`) that names the annotations.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bedplate.api import core
from bedplate.cloud.providers.oxide import models, names, ownership, providerid
from bedplate.core import errors

__all__ = [
    "ADDRESS",
    "HIDE_INTERNAL",
    "NAME",
    "POOL",
    "RETAIN",
    "VERSION",
    "Ask",
    "Slot",
    "is_named",
    "must_retain",
    "read",
    "slots",
    "source_ranges",
]

ADDRESS = "oxide.computer/floating-ip"
"""An explicit address; excludes the pool and the version."""
POOL = "oxide.computer/floating-ip-pool"
"""The pool (name or id) to take an address from; excludes the version."""
VERSION = "oxide.computer/floating-ip-version"
"""`v4` or `v6`: take an address from the default pool of that family."""
NAME = "oxide.computer/floating-ip-name"
"""Name (or id) of a floating IP made beforehand, or two of them with a comma for a dual-stack Service."""
RETAIN = "oxide.computer/floating-ip-retain"
"""`true`: keep the floating IP when the Service goes."""
HIDE_INTERNAL = "oxide.computer/hide-internal-ips"
"""`true`: publish the floating IP alone, without the node's private addresses."""
SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
_FAMILIES = {"IPv4": "v4", "IPv6": "v6"}
_EVERYBODY = frozenset({"0.0.0.0/0", "::/0"})
TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
FALSE = frozenset({"", "0", "f", "F", "FALSE", "false", "False"})


@dataclass(frozen=True, slots=True)
class Ask:
    """What annotations and spec say, checked."""

    ip: str = ""
    pool: str = ""
    version: str = ""
    adopt: tuple[str, ...] = ()
    is_retained: bool = False
    hides_internal: bool = False


@dataclass(frozen=True, slots=True)
class Slot:
    """One floating IP that a Service should have.

    `family` is what it must be of (empty: any, `preferred` first); `adopt` names one that a user made;
    `allocators` are tried in turn. `takes_any`: whatever the Service has is right, nothing is to be changed.
    """

    names: names.Names
    family: str = ""
    preferred: str = "v4"
    ip: str = ""
    pool_id: str = ""
    adopt: str = ""
    allocators: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    is_required: bool = True
    takes_any: bool = False

    def matches(self, ip: models.FloatingIp) -> bool:
        """Whether this floating IP of the Service is what the slot asks for."""
        if self.family and ip.family != self.family:
            return False
        if self.takes_any:
            return True
        if self.adopt:
            return is_named(ip, self.adopt)
        record = ownership.parse(ip.description)
        if record is not None and record.role == "adopted":
            return False
        if self.ip:
            return _same_address(ip.ip, self.ip)
        return not self.pool_id or providerid.same(ip.ip_pool_id, self.pool_id)


def is_named(ip: models.FloatingIp, name: str) -> bool:
    """Whether a name or id means this floating IP."""
    return ip.name == name or providerid.same(ip.id, name)


def read(service: core.Service) -> Ask:
    """What the Service asks for; raises `Invalid` for values that contradict each other or mean nothing."""
    notes = service.metadata.annotations
    ip, pool, version = (notes.get(key, "").strip() for key in (ADDRESS, POOL, VERSION))
    adopt = tuple(part.strip() for part in notes.get(NAME, "").split(",") if part.strip())
    if ip and (pool or version):
        raise errors.Invalid(f"annotation {ADDRESS} is mutually exclusive with {POOL} and {VERSION}")
    if pool and version:
        raise errors.Invalid(f"annotation {POOL} is mutually exclusive with {VERSION}")
    if adopt and (ip or pool or version):
        raise errors.Invalid(f"annotation {NAME} is mutually exclusive with {ADDRESS}, {POOL} and {VERSION}")
    if version not in ("", "v4", "v6"):
        raise errors.Invalid(f'invalid {VERSION} value "{version}", must be "v4" or "v6"')
    if len(adopt) > 2:
        raise errors.Invalid(f"annotation {NAME} takes one name, or two for a dual-stack Service")
    if not (ip or pool or version or adopt):
        ip = service.spec.load_balancer_ip
    if ip and _address(ip) is None:
        raise errors.Invalid(f'invalid {ADDRESS} value "{ip}", must be an IP address')
    return Ask(ip, pool, version, adopt, _is_true(notes, RETAIN), _is_true(notes, HIDE_INTERNAL))


def slots(
    ask: Ask,
    service: core.Service,
    cluster_name: str,
    owner: ownership.Owner,
    pool: models.Pool | None,
    adopted: Mapping[str, models.FloatingIp],
) -> tuple[Slot, ...]:
    """The floating IPs wanted, the primary family first.

    `pool` is the pool that the annotation names, `adopted` the floating IPs that the annotation names, as they are now.
    """
    families = _families(service, ask)
    first, second = names.names_of(cluster_name, owner), names.names_of(cluster_name, owner, "v6")
    if len(families) == 1:
        return (_single(ask, families[0], first, pool),)
    by_family = {adopted[name].family: name for name in ask.adopt}
    if len(by_family) < len(ask.adopt):
        raise errors.Invalid(f"annotation {NAME} must name floating IPs of different families")
    is_strict = service.spec.ip_family_policy == "RequireDualStack"
    slots_ = []
    for position, family in enumerate(families):
        given = Slot(second if family == "v6" else first, family, family, is_required=is_strict or position == 0)
        slots_.append(_fill(given, ask, pool, by_family.get(family, "")))
    return tuple(slots_)


def _families(service: core.Service, ask: Ask) -> tuple[str, ...]:
    spec = service.spec
    families = tuple(_FAMILIES[name] for name in spec.ip_families if name in _FAMILIES) or ("v4",)
    if ask.version:
        if spec.ip_family_policy == "RequireDualStack":
            raise errors.Invalid(f"annotation {VERSION} contradicts ipFamilyPolicy RequireDualStack")
        return (ask.version,)
    return families[:2]


def _single(ask: Ask, family: str, given: names.Names, pool: models.Pool | None) -> Slot:
    if ask.adopt:
        if len(ask.adopt) > 1:
            raise errors.Invalid(f"annotation {NAME} names two floating IPs for a Service of one family")
        return Slot(given, preferred=family, adopt=ask.adopt[0])
    if ask.ip:
        return Slot(given, preferred=models.family_of(ask.ip), ip=ask.ip, allocators=(_explicit(ask.ip),))
    if pool is not None:
        return Slot(given, preferred=family, pool_id=pool.id, allocators=(_from_pool(ask.pool),))
    if ask.version or family == "v6":
        return Slot(given, family, family, allocators=(_of_family(family),))
    # Plain `auto` is what the original sends; a silo with default pools of both families wants the family as well.
    return Slot(given, preferred="v4", allocators=({"type": "auto"}, _of_family("v4")))


def _fill(slot: Slot, ask: Ask, pool: models.Pool | None, adopt: str) -> Slot:
    if adopt:
        return replace(slot, adopt=adopt)
    if ask.ip and models.family_of(ask.ip) == slot.family:
        return replace(slot, ip=ask.ip, allocators=(_explicit(ask.ip),))
    if pool is not None and pool.ip_version == slot.family:
        return replace(slot, pool_id=pool.id, allocators=(_from_pool(ask.pool),))
    return replace(slot, allocators=(_of_family(slot.family),))


def must_retain(service: core.Service) -> bool:
    """Whether the floating IP outlives the Service; in doubt (a value that means nothing) it does."""
    return service.metadata.annotations.get(RETAIN, "") not in FALSE


def source_ranges(service: core.Service) -> tuple[str, ...]:
    """The ranges that a Service wants to be reached from, when that is not everybody."""
    given = service.spec.load_balancer_source_ranges
    if not given:
        given = tuple(service.metadata.annotations.get(SOURCE_RANGES, "").split(","))
    ranges = tuple(sorted({part.strip() for part in given} - {""}))
    return () if _EVERYBODY.intersection(ranges) else ranges


def _explicit(ip: str) -> dict[str, Any]:
    return {"type": "explicit", "ip": ip}


def _from_pool(pool: str) -> dict[str, Any]:
    return {"type": "auto", "pool_selector": {"type": "explicit", "pool": pool}}


def _of_family(family: str) -> dict[str, Any]:
    return {"type": "auto", "pool_selector": {"type": "auto", "ip_version": family}}


def _is_true(notes: Mapping[str, str], key: str) -> bool:
    value = notes.get(key, "")
    if value in TRUE:
        return True
    if value in FALSE:
        return False
    raise errors.Invalid(f'invalid {key} value "{value}", must be "true" or "false"')


def _address(text: str) -> str | None:
    try:
        return models.family_of(text)
    except ValueError:
        return None


def _same_address(left: str, other: str) -> bool:
    return ipaddress.ip_address(left) == ipaddress.ip_address(other)
