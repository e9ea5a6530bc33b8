"""What a pool's spec may say.

In: a pool's name and spec. Out: problems, each with the path of its field; none when the spec is good. Pure.

The webhook, the controller on every pass and (for CIDRPools) the daemon ask here. Accepted and refused are the same
specs as by the original, and the paths are its paths; the sentences are ours. What is allowed but hardly meant is in
`warnings.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bedplate.api import names
from bedplate.ipam.addresses import Network, gateway_at, parse_address, parse_network, usable
from bedplate.ipam.pools import (
    CIDRPoolSpec,
    ExcludeIndexRange,
    ExcludeRange,
    IPPoolSpec,
    NodeSelector,
    NodeSelectorRequirement,
    Route,
    StaticAllocation,
)

__all__ = ["Kind", "Problem", "cidrpool_problems", "ippool_problems", "summary"]

INT32_MAX = (1 << 31) - 1
_NETWORK_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.\-]*")
_NOT_AN_ADDRESS = "must be an IP address"
_NOT_A_NETWORK = "must be a network in CIDR notation"


class Kind(StrEnum):
    """What sort of fault it is; the API's names for it."""

    INVALID = "invalid"
    REQUIRED = "required"
    FORBIDDEN = "forbidden"


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of a spec."""

    path: str
    kind: Kind
    value: str
    detail: str

    def __str__(self) -> str:
        match self.kind:
            case Kind.INVALID:
                return f"{self.path}: Invalid value: {self.value}: {self.detail}"
            case Kind.REQUIRED:
                return f"{self.path}: Required value: {self.detail}"
            case Kind.FORBIDDEN:
                return f"{self.path}: Forbidden: {self.detail}"


def summary(problems: Sequence[Problem]) -> str:
    """All problems in one line, as an API server puts them: one bare, several in brackets."""
    texts = list(dict.fromkeys(map(str, problems)))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]" if texts else ""


def ippool_problems(name: str, spec: IPPoolSpec) -> list[Problem]:
    """What is wrong with an IPPool."""
    problems = list(_name_problems(name))
    parsed = parse_network(spec.subnet)
    network = parsed[1] if parsed else None
    if network is None:
        problems.append(_invalid("spec.subnet", spec.subnet, _NOT_A_NETWORK))
    size = spec.per_node_block_size
    if size < 1:
        problems.append(_invalid("spec.perNodeBlockSize", size, "must be at least 1"))
    elif network is not None and size > usable(network):
        detail = f"is more than the {usable(network)} usable addresses of the subnet"
        problems.append(_invalid("spec.perNodeBlockSize", size, detail))
    if network is not None:
        problems.extend(_exclusion_problems(network, spec.exclusions))
    if size >= 1:
        problems.extend(_index_problems(min(size - 1, INT32_MAX), spec.per_node_exclusions))
    if spec.gateway:
        problems.extend(_gateway_problems("spec.gateway", spec.gateway, network))
    problems.extend(_selector_problems(spec.node_selector))
    if not spec.gateway:
        problems.extend(_needless_routes("spec.gateway", spec.default_gateway, spec.routes))
    problems.extend(_route_problems(spec.routes, network, spec.default_gateway))
    return problems


def cidrpool_problems(name: str, spec: CIDRPoolSpec) -> list[Problem]:
    """What is wrong with a CIDRPool."""
    problems = list(_name_problems(name))
    parsed = parse_network(spec.cidr)
    cidr = parsed[1] if parsed else None
    misfit = _cut_problem(spec)
    if misfit is not None:
        problems.append(misfit)
    elif cidr is not None:
        problems.extend(_prefix_problems(spec, cidr))
    problems.extend(_selector_problems(spec.node_selector))
    if spec.gateway_index is None:
        problems.extend(_needless_routes("spec.gatewayIndex", spec.default_gateway, spec.routes))
    problems.extend(_route_problems(spec.routes, cidr, spec.default_gateway))
    return problems


def _cut_problem(spec: CIDRPoolSpec) -> Problem | None:
    """The first reason why the network cannot be cut into prefixes; nothing else about them is then worth saying."""
    parsed = parse_network(spec.cidr)
    if parsed is None:
        return _invalid("spec.cidr", spec.cidr, _NOT_A_NETWORK)
    address, cidr = parsed
    if (address.bits, address.value) != (cidr.bits, cidr.base):
        return _invalid("spec.cidr", spec.cidr, f"has host bits set; its network is {cidr}")
    if spec.gateway_index is not None and spec.gateway_index < 0:
        return _invalid("spec.gatewayIndex", spec.gateway_index, "must not be negative")
    length = spec.per_node_network_prefix
    if length < 0:
        return _invalid("spec.perNodeNetworkPrefix", length, "must not be negative")
    if length == 0 or not cidr.length <= length <= cidr.bits:
        detail = f"must be from {max(cidr.length, 1)} to {cidr.bits} for this cidr"
        return _invalid("spec.perNodeNetworkPrefix", length, detail)
    return None


def _prefix_problems(spec: CIDRPoolSpec, cidr: Network) -> Iterable[Problem]:
    length = spec.per_node_network_prefix
    first = Network(cidr.bits, cidr.base, length)
    index = spec.gateway_index
    # API servers do not enforce a field's int32, and a client that decodes it as one could not read the pool.
    if index is not None and (index > INT32_MAX or gateway_at(first, index) is None):
        yield _invalid("spec.gatewayIndex", index, f"is not the index of a usable address in a /{length} prefix")
    yield from _exclusion_problems(cidr, spec.exclusions)
    yield from _index_problems(min((1 << (cidr.bits - length)) - 1, INT32_MAX), spec.per_node_exclusions)
    yield from _static_problems(spec.static_allocations, cidr, length)


def _static_problems(entries: Sequence[StaticAllocation], cidr: Network, length: int) -> Iterable[Problem]:
    prefixes: list[Network] = []
    for at, entry in enumerate(entries):
        path = f"spec.staticAllocations[{at}]"
        parsed = parse_network(entry.prefix)
        if parsed is None:
            yield _invalid(f"{path}.prefix", entry.prefix, _NOT_A_NETWORK)
            continue
        address, prefix = parsed
        if (address.bits, address.value) != (prefix.bits, prefix.base):
            yield _invalid(f"{path}.prefix", entry.prefix, f"has host bits set; its network is {prefix}")
            continue
        prefixes.append(prefix)
        if prefix.bits != cidr.bits or not cidr.base <= prefix.base <= cidr.top:
            yield _invalid(f"{path}.prefix", entry.prefix, f"is not part of {cidr}")
        elif prefix.length != length:
            yield _invalid(f"{path}.prefix", entry.prefix, f"must be a /{length}, as set by perNodeNetworkPrefix")
        elif entry.gateway:
            yield from _gateway_problems(f"{path}.gateway", entry.gateway, prefix)
    for node in _repeated(entry.node_name for entry in entries if entry.node_name):
        yield _invalid("spec.staticAllocations", node, "has several entries for this node")
    for network in _repeated(prefixes):
        yield _invalid("spec.staticAllocations", network, "has several entries for this prefix")


def _gateway_problems(path: str, gateway: str, network: Network | None) -> Iterable[Problem]:
    address = parse_address(gateway)
    if address is None:
        yield _invalid(path, gateway, _NOT_AN_ADDRESS)
    elif network is not None and not network.holds(address):
        yield _invalid(path, gateway, f"is not part of {network}")


def _exclusion_problems(network: Network, exclusions: Sequence[ExcludeRange]) -> Iterable[Problem]:
    for at, entry in enumerate(exclusions):
        path = f"spec.exclusions[{at}]"
        start, end = parse_address(entry.start_ip), parse_address(entry.end_ip)
        for key, written, address in (("startIP", entry.start_ip, start), ("endIP", entry.end_ip, end)):
            if address is None:
                yield _invalid(f"{path}.{key}", written, _NOT_AN_ADDRESS)
            elif not network.holds(address):
                yield _invalid(f"{path}.{key}", written, f"is not part of {network}")
        if start is not None and end is not None and (start.bits != end.bits or end.value < start.value):
            yield _invalid(path, f"{entry.start_ip}-{entry.end_ip}", "endIP must not be before startIP")


def _index_problems(highest: int, exclusions: Sequence[ExcludeIndexRange]) -> Iterable[Problem]:
    for at, entry in enumerate(exclusions):
        path = f"spec.perNodeExclusions[{at}]"
        for key, index in (("startIndex", entry.start_index), ("endIndex", entry.end_index)):
            if index < 0:
                yield _invalid(f"{path}.{key}", index, "must not be negative")
            elif index > highest:
                yield _invalid(
                    f"{path}.{key}", index, f"is beyond the last address of a node, which has index {highest}"
                )
        if entry.end_index < entry.start_index:
            yield _invalid(path, f"{entry.start_index}-{entry.end_index}", "endIndex must not be before startIndex")


def _needless_routes(gateway: str, default_gateway: bool, routes: Sequence[Route]) -> Iterable[Problem]:
    if default_gateway:
        yield _invalid("spec.defaultGateway", "true", f"cannot be true without {gateway}")
    if routes:
        yield _invalid("spec.routes", ", ".join(route.dst for route in routes), f"cannot be given without {gateway}")


def _route_problems(routes: Sequence[Route], network: Network | None, default_gateway: bool) -> Iterable[Problem]:
    for at, route in enumerate(routes):
        path = f"spec.routes[{at}].dst"
        parsed = parse_network(route.dst)
        if parsed is None:
            yield _invalid(path, route.dst, _NOT_A_NETWORK)
            continue
        destination = parsed[1]
        if network is not None and destination.bits != network.bits:
            yield _invalid(path, route.dst, "is of another address family than the pool")
        if default_gateway and destination.base == 0 and destination.length == 0:
            yield _invalid(path, route.dst, "is the default route, which defaultGateway already adds")


def _selector_problems(selector: NodeSelector | None) -> Iterable[Problem]:
    if selector is None:
        return
    path = "spec.nodeSelectorTerms"
    if not selector.node_selector_terms:
        yield Problem(path, Kind.REQUIRED, "", "a node selector needs at least one term")
    for at, term in enumerate(selector.node_selector_terms):
        for index, requirement in enumerate(term.match_expressions):
            yield from _expression_problems(f"{path}[{at}].matchExpressions[{index}]", requirement)
        for index, requirement in enumerate(term.match_fields):
            yield from _field_problems(f"{path}[{at}].matchFields[{index}]", requirement)


def _expression_problems(path: str, requirement: NodeSelectorRequirement) -> Iterable[Problem]:
    given = len(requirement.values)
    match requirement.operator:
        case "In" | "NotIn":
            if not given:
                yield Problem(f"{path}.values", Kind.REQUIRED, "", "In and NotIn need at least one value")
        case "Exists" | "DoesNotExist":
            if given:
                yield Problem(f"{path}.values", Kind.FORBIDDEN, "", "Exists and DoesNotExist take no value")
        case "Gt" | "Lt":
            if given != 1:
                yield Problem(f"{path}.values", Kind.REQUIRED, "", "Gt and Lt need exactly one value")
        case other:
            yield _invalid(f"{path}.operator", other, "must be an operator of a node selector")
    for detail in names.label_key_problems(requirement.key):
        yield _invalid(f"{path}.key", requirement.key, detail)


def _field_problems(path: str, requirement: NodeSelectorRequirement) -> Iterable[Problem]:
    if requirement.operator not in {"In", "NotIn"}:
        yield _invalid(f"{path}.operator", requirement.operator, "a field supports only In and NotIn")
    elif len(requirement.values) != 1:
        yield Problem(f"{path}.values", Kind.REQUIRED, "", "a field needs exactly one value")
    if requirement.key != "metadata.name":
        yield _invalid(f"{path}.key", requirement.key, "metadata.name is the only field that can be selected by")
        return
    for at, value in enumerate(requirement.values):
        for detail in names.dns_subdomain_problems(value):
            yield _invalid(f"{path}.values[{at}]", value, detail)


def _name_problems(name: str) -> Iterable[Problem]:
    if not _NETWORK_NAME.fullmatch(name):
        detail = "must be letters, digits, '_', '.' and '-' and begin with a letter or digit, as for CNI network names"
        yield _invalid("metadata.name", name, detail)


def _repeated(values: Iterable[Hashable]) -> list[str]:
    return [str(value) for value, times in Counter(values).items() if times > 1]


def _invalid(path: str, value: str | int, detail: str) -> Problem:
    return Problem(path, Kind.INVALID, str(value) if isinstance(value, int) else f'"{value}"', detail)
