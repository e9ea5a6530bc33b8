"""Random pools, nodes and statuses, as JSON values, for comparisons with a model or with the original's programs.

Everything comes from the `random.Random` that is passed in, so a seed names a case. `wild` makes specs that are mostly
wrong in one or two places; without it they are valid.
"""

from __future__ import annotations

import ipaddress
import random
from typing import Any

Spec = dict[str, Any]

LABELS = {"tier": ["gold", "silver", "iron", ""], "rank": ["1", "2", "10", "-3", "high", "+5", "007"], "off": ["1"]}
OPERATORS = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
BASES_V4 = ["10.0.0.0", "192.168.64.0", "255.255.255.0", "0.0.0.0", "172.16.8.128"]
BASES_V6 = ["fd52:2eb5:44::", "2001:db8::", "fd00:0:0:1::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00"]
ODD_ADDRESSES = [
    *("", "x", "10.0.0", "10.0.0.256", "10.0.0.01", "::ffff:10.0.0.5", "fd52:2eb5:44::5%eth0", "1::2::3"),
    *("fd52:2eb5:0044:0000::1", " 10.0.0.1", "10.0.0.1 ", "0x0a.0.0.1", "::", "0.0.0.0", "::10.0.0.1", ":1::"),
    *("1:2:3:4:5:6:7:8::", "00001::", "::ffff:010.0.0.1", "::1.2.3", "٣.1.1.1", "10.0.0.1\n", "1:2:3:4:5:6:1.2.3.4"),
    *("::g", "FD52:2EB5:44::A", "1:2:3:4:5:6:7::"),
]
ODD_NETWORKS = [
    *("", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "/24", "10.0.0.0/024", "10.0.0.0/+8", "10.0.0.0/8/8"),
    *("::ffff:10.0.0.0/120", "::ffff:10.0.0.0/90", "fd52:2eb5:44::1/48", "0.0.0.0/0", "::/0", "::ffff:0:0/96", "::/00"),
    *("10.0.0.0/9999999999999999999999", "10.1.2.3/24", "fe80::%eth0/64", "10.0.0.0/ 8", "10.0.0.0/８", "::/129"),
]
NAMES = ["p", "pool-1", "A_b.c-", "0", "-p", "", "a b", "p\n", "é", ".p", "_p", "p/q", "9.9"]
KEYS = ["tier", "rank", "a/b", "", "-x", "x" * 64, "a/b/c", "EXAMPLE.com/x", "/x", "example.com/", "x y", "a..b/c"]
BOUNDS = ["2", "-1", "+4", "x", "", "99999999999999999999"]
INDEX_ENDS = [(-1, 3), (3, -1), (5, 2), (0, 1 << 20), (1 << 20, 1 << 30), (0, (1 << 31) - 1), (-5, -7)]
Net = ipaddress.IPv4Network | ipaddress.IPv6Network


def network(rng: random.Random, *, host_bits: tuple[int, int] = (0, 9)) -> Net:
    """A network with few addresses, IPv4 or IPv6."""
    base = ipaddress.ip_address(rng.choice(BASES_V4 if rng.random() < 0.6 else BASES_V6))
    length = base.max_prefixlen - rng.randint(*host_bits)
    return ipaddress.ip_network((int(base) >> (base.max_prefixlen - length) << (base.max_prefixlen - length), length))


def address_in(rng: random.Random, net: Net) -> str:
    """An address of the network, its ends more often than others."""
    place = rng.choice([0, 1, net.num_addresses - 1, net.num_addresses - 2, rng.randrange(net.num_addresses)])
    return str(net.network_address + min(max(place, 0), net.num_addresses - 1))


def exclusions(rng: random.Random, net: Net) -> list[dict[str, str]]:
    """Some ranges of the network; often they overlap or touch."""
    found = []
    for _ in range(rng.choice([0, 0, 1, 2, 3, 6])):
        start = rng.randrange(net.num_addresses)
        end = min(start + rng.choice([0, 1, 7, 15, 16, 31, rng.randrange(net.num_addresses)]), net.num_addresses - 1)
        found.append({"startIP": str(net.network_address + start), "endIP": str(net.network_address + end)})
    return found


def index_exclusions(rng: random.Random, size: int) -> list[dict[str, int]]:
    """Some ranges of offsets; now and then they cover everything."""
    found = []
    for _ in range(rng.choice([0, 0, 0, 1, 2, 4])):
        start = rng.randrange(min(size, 1 << 20))
        end = min(start + rng.choice([0, 1, 3, size]), size - 1)
        found.append({"startIndex": start, "endIndex": min(end, (1 << 31) - 1)})
    return found


def selector(rng: random.Random) -> Spec:
    """A valid node selector; some of its terms speak for no node."""
    return {"nodeSelectorTerms": [_term(rng) for _ in range(rng.choice([1, 1, 2, 3]))]}


def _term(rng: random.Random) -> Spec:
    term: Spec = {}
    if rng.random() < 0.85:
        term["matchExpressions"] = [_requirement(rng) for _ in range(rng.choice([1, 1, 2]))]
    if rng.random() < 0.15:
        value = f"n{rng.randrange(12):02d}"
        term["matchFields"] = [{"key": "metadata.name", "operator": rng.choice(["In", "NotIn"]), "values": [value]}]
    return term


def _requirement(rng: random.Random) -> Spec:
    key, operator = rng.choice(list(LABELS)), rng.choice(OPERATORS)
    if operator in {"Exists", "DoesNotExist"}:
        return {"key": key, "operator": operator}
    if operator in {"Gt", "Lt"}:
        return {
            "key": key,
            "operator": operator,
            "values": [rng.choice(BOUNDS)],
        }
    values = rng.sample([*LABELS[key], "not a value"], rng.randint(1, 2) if len(LABELS[key]) > 1 else 1)
    return {"key": key, "operator": operator, "values": values}


def nodes(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Nodes with labels, in random order."""
    names = [f"n{at:02d}" if rng.random() < 0.7 else f"n{at}.x-{at}" for at in rng.sample(range(count * 2), count)]
    return [
        {"name": name, "labels": {key: rng.choice(known) for key, known in LABELS.items() if rng.random() < 0.5}}
        for name in names
    ]


def ippool_spec(rng: random.Random) -> Spec:
    """A valid spec of an IPPool."""
    net = network(rng)
    usable = usable_of(net)
    size = min(rng.choice([1, 1, 2, 3, 5, 16, 24, 64, usable, rng.randint(1, usable)]), usable)
    spec: Spec = {"subnet": str(net), "perNodeBlockSize": size}
    if rng.random() < 0.6:
        spec["gateway"] = address_in(rng, net)
    _common(rng, spec, net, size, has_gateway="gateway" in spec)
    return spec


def cidrpool_spec(rng: random.Random) -> Spec:
    """A valid spec of a CIDRPool."""
    net = network(rng, host_bits=(0, 11))
    length = min(max(net.prefixlen + rng.choice([0, 1, 2, 3, 4, 5]), 1), net.max_prefixlen)
    size = 1 << (net.max_prefixlen - length)
    spec: Spec = {"cidr": str(net), "perNodeNetworkPrefix": length}
    if rng.random() < 0.6:
        small = size <= 2
        highest = size - 1 if small or net.version == 6 else size - 2
        spec["gatewayIndex"] = rng.randint(0 if small else 1, highest)
    if rng.random() < 0.5:
        spec["staticAllocations"] = _statics(rng, net, length)
    _common(rng, spec, net, size, has_gateway="gatewayIndex" in spec)
    return spec


def usable_of(net: Net) -> int:
    """How many addresses hosts may have."""
    if net.num_addresses <= 2:
        return net.num_addresses
    return net.num_addresses - (2 if net.version == 4 else 1)


def _statics(rng: random.Random, net: Net, length: int) -> list[Spec]:
    count = 1 << (length - net.prefixlen)
    found = []
    for at in rng.sample(range(count), min(count, rng.randint(1, 3))):
        prefix = ipaddress.ip_network((int(net.network_address) + (at << (net.max_prefixlen - length)), length))
        entry: Spec = {"prefix": str(prefix)}
        if rng.random() < 0.7:
            entry["nodeName"] = f"n{len(found) * 3 + rng.randrange(3):02d}"
        if rng.random() < 0.3:
            entry["gateway"] = address_in(rng, prefix)
        found.append(entry)
    return found


def _common(rng: random.Random, spec: Spec, net: Net, size: int, *, has_gateway: bool) -> None:
    if found := exclusions(rng, net):
        spec["exclusions"] = found
    if indexes := index_exclusions(rng, size):
        spec["perNodeExclusions"] = indexes
    if rng.random() < 0.4:
        spec["nodeSelector"] = selector(rng)
    if has_gateway and rng.random() < 0.4:
        spec["defaultGateway"] = rng.random() < 0.5
        spec["routes"] = [{"dst": "5.5.0.0/16" if net.version == 4 else "fd99::/64"}]


def damaged(rng: random.Random, allocations: list[Spec]) -> list[Spec]:
    """A status that another client has written into."""
    found = [dict(entry) for entry in allocations]
    rng.shuffle(found)
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        if not found:
            break
        entry, other = rng.choice(found), rng.choice(found)
        key = rng.choice([*entry, "nodeName"])
        match rng.randrange(6):
            case 0:
                entry[key] = rng.choice(["", "x", "10.0.0.7", "fd52:2eb5:44::7", "10.0.0.3/30", "n01"])
            case 1:
                entry[key] = other.get(key, "")
            case 2:
                entry[key], other[key] = other.get(key, ""), entry.get(key, "")
            case 3:
                found.append(dict(entry))
            case 4:
                found.append({**entry, "nodeName": "n03"})
            case _:
                found.remove(entry)
    return found


def wild(rng: random.Random, kind: str) -> tuple[str, Spec]:
    """A name and a spec, mostly with something wrong."""
    spec = ippool_spec(rng) if kind == "IPPool" else cidrpool_spec(rng)
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        _spoil(rng, kind, spec)
    return rng.choice(NAMES) if rng.random() < 0.1 else "pool", spec


def _spoil(rng: random.Random, kind: str, spec: Spec) -> None:
    net_key, size_key = ("subnet", "perNodeBlockSize") if kind == "IPPool" else ("cidr", "perNodeNetworkPrefix")
    some_address = rng.choice(ODD_ADDRESSES) if rng.random() < 0.6 else address_in(rng, network(rng))
    some_network = rng.choice(ODD_NETWORKS) if rng.random() < 0.6 else str(network(rng, host_bits=(0, 32)))
    match rng.randrange(12):
        case 0:
            spec[net_key] = some_network
        case 1:
            spec[size_key] = rng.choice([0, -1, 1, 2, 24, 31, 32, 33, 64, 127, 128, 129, 255, 65536, (1 << 31) - 1])
        case 2 if kind == "IPPool":
            spec["gateway"] = some_address
        case 2:
            spec["gatewayIndex"] = rng.choice([-1, 0, 1, 2, 254, 255, 256, (1 << 31) - 1])
        case 3:
            spec.setdefault("exclusions", []).append({"startIP": some_address, "endIP": rng.choice(ODD_ADDRESSES)})
        case 4:
            ends = rng.choice(INDEX_ENDS)
            spec.setdefault("perNodeExclusions", []).append({"startIndex": ends[0], "endIndex": ends[1]})
        case 5:
            spec["routes"] = [{"dst": some_network}, {"dst": rng.choice(ODD_NETWORKS)}]
        case 6:
            spec["defaultGateway"] = True
        case 7:
            spec.pop("gateway", None)
            spec.pop("gatewayIndex", None)
        case 8 | 9:
            spec["nodeSelector"] = _wild_selector(rng)
        case _:
            statics = spec.setdefault("staticAllocations", []) if kind == "CIDRPool" else []
            entry = dict(rng.choice(statics)) if statics else {"prefix": some_network}
            entry[rng.choice(["prefix", "gateway"])] = rng.choice([some_network, some_address])
            statics.append(entry)


def _wild_selector(rng: random.Random) -> Spec:
    terms = []
    for _ in range(rng.randrange(3)):
        values = rng.sample(["a", "b c", "x" * 64, "2", "", "N01", "n01", "a.b"], rng.randrange(3))
        requirement = {"key": rng.choice(KEYS), "operator": rng.choice([*OPERATORS, "", "in", "Eq"]), "values": values}
        key = rng.choice(["matchExpressions", "matchFields"])
        if key == "matchFields" and rng.random() < 0.7:
            requirement["key"] = "metadata.name"
        terms.append({key: [requirement]} if rng.random() < 0.9 else {})
    return {"nodeSelectorTerms": terms}
