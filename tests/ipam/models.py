"""The plans of IPPools and CIDRPools done naively: every block and every address is looked at, one after the other."""

from __future__ import annotations

import ipaddress
from typing import Any

from tests.ipam.generators import Net

Entry = dict[str, str]


def ippool(spec: dict[str, Any], names: list[str], before: list[Entry]) -> tuple[list[Entry], list[str]]:
    """The status of a valid IPPool, and the nodes without a block."""
    net: Net = ipaddress.ip_network(spec["subnet"], strict=False)
    size = spec["perNodeBlockSize"]
    base, top = int(net[0]), int(net[-1])
    first = base if net.num_addresses <= 2 else base + 1
    gateway = _number(net, spec.get("gateway", ""))
    blocks: dict[str, int] = {}
    taken: set[int] = set()

    def good(start: int) -> bool:
        if size == 1 and start == gateway:
            return False
        return not all(_excluded(net, spec, start, value) for value in range(start, start + size))

    for entry in before:
        start, end = _number(net, entry.get("startIP", "")), _number(net, entry.get("endIP", ""))
        if entry["nodeName"] not in names or start is None or end is None:
            continue
        if start < first or (start - first) % size or end - start != size - 1 or not good(start) or start in taken:
            continue
        blocks[entry["nodeName"]] = start
        taken.add(start)
    limit = top - 1 if net.version == 4 and net.num_addresses > 2 else top
    without = []
    for name in sorted(names):
        if name in blocks:
            continue
        for start in range(first, limit - size + 2, size):
            if start not in taken and good(start):
                blocks[name] = start
                taken.add(start)
                break
        else:
            without.append(name)
    found = [
        {"nodeName": name, "startIP": _text(net, blocks[name]), "endIP": _text(net, blocks[name] + size - 1)}
        for name in sorted(blocks)
    ]
    return found, without


def cidrpool(spec: dict[str, Any], names: list[str], before: list[Entry]) -> tuple[list[Entry], list[str]]:
    """The status of a valid CIDRPool, and the nodes without a prefix."""
    net: Net = ipaddress.ip_network(spec["cidr"])
    statics = spec.get("staticAllocations", [])
    spoken_for = {ipaddress.ip_network(one["prefix"]) for one in statics}
    given: dict[str, Entry] = {}
    for one in statics:
        if one.get("nodeName") in names:
            prefix = ipaddress.ip_network(one["prefix"])
            gateway = one.get("gateway") or _gateway(spec, prefix)
            given[one["nodeName"]] = _prefix_entry(one["nodeName"], one["prefix"], gateway)
    for entry in before:
        node, prefix = entry["nodeName"], _network(entry.get("prefix", ""))
        if node not in names or node in given or prefix is None or prefix in spoken_for:
            continue
        if prefix.version != net.version or not prefix.subnet_of(net):  # type: ignore[arg-type]
            continue
        if prefix.prefixlen != spec["perNodeNetworkPrefix"] or entry.get("gateway", "") != _gateway(spec, prefix):
            continue
        if sum(1 for other in before if _clash(entry, other)) > 1 or _gone(net, spec, prefix):
            continue
        given[node] = dict(entry)
    without = []
    for name in sorted(names):
        if name in given:
            continue
        held = {ipaddress.ip_network(entry["prefix"]) for entry in given.values()} | spoken_for
        for prefix in net.subnets(new_prefix=spec["perNodeNetworkPrefix"]):
            if prefix not in held and not _gone(net, spec, prefix):
                given[name] = _prefix_entry(name, str(prefix), _gateway(spec, prefix))
                break
        else:
            without.append(name)
    return [given[name] for name in sorted(given)], without


def _gone(net: Net, spec: dict[str, Any], prefix: Net) -> bool:
    last = int(prefix[-1])
    if prefix.version == 4 and prefix.num_addresses > 2:
        last -= 1
    return all(_excluded(net, spec, int(prefix[0]), value) for value in range(int(prefix[0]), last + 1))


def _excluded(net: Net, spec: dict[str, Any], start: int, value: int) -> bool:
    for one in spec.get("exclusions", []):
        low, high = _number(net, one["startIP"]), _number(net, one["endIP"])
        assert low is not None and high is not None
        if low <= value <= high:
            return True
    return any(one["startIndex"] <= value - start <= one["endIndex"] for one in spec.get("perNodeExclusions", []))


def _clash(one: Entry, other: Entry) -> bool:
    gateway = one.get("gateway", "")
    return (
        one["nodeName"] == other["nodeName"]
        or _network(one["prefix"]) == _network(other.get("prefix", ""))
        or (gateway != "" and gateway == other.get("gateway", ""))
    )


def _gateway(spec: dict[str, Any], prefix: Net) -> str:
    index = spec.get("gatewayIndex")
    return "" if index is None else str(prefix[0] + index)


def _prefix_entry(node: str, prefix: str, gateway: str) -> Entry:
    return {"nodeName": node, "prefix": prefix} | ({"gateway": gateway} if gateway else {})


def _number(net: Net, written: str) -> int | None:
    try:
        address = ipaddress.ip_address(written)
    except ValueError:
        return None
    return int(address) if address in net else None


def _network(written: str) -> Net | None:
    try:
        return ipaddress.ip_network(written)
    except ValueError:
        return None


def _text(net: Net, value: int) -> str:
    return str(type(net[0])(value))
