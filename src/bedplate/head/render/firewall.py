"""The role `firewall`: open ports as shorewall's rules file, or as a table of nftables.

In: a tree, a resolved node and the role. Out: the file of the chosen back end. Both say the same: `fw` is the node,
`nat` the networks it belongs to, `net` everything else, `all` both. Shorewall's file is the site's own but for a block;
the table of nftables is ours alone, and what other tables decide is left to them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bedplate.api.desired import File
from bedplate.head.entities.kubernetes import KubeCluster
from bedplate.head.entities.roles import FirewallRole, KubeletRole, OpenPort
from bedplate.head.entities.site import Network
from bedplate.head.objects import Obj
from bedplate.head.render.text import one_line
from bedplate.head.render.values import Part
from bedplate.head.resolve import Resolved, RoleGiven
from bedplate.head.tree import Tree

__all__ = ["NFTABLES", "SHOREWALL", "Rule", "nftables_table", "render", "rules_of", "shorewall_rules"]

_CHAINS = ("from_net", "from_nat", "forward", "output", "prerouting")
_ZONE_CHAINS = {"net": ("from_net",), "nat": ("from_nat",), "all": ("from_net", "from_nat")}
_FAMILY = {4: "ip", 6: "ip6"}
SHOREWALL = "/etc/shorewall/rules"
NFTABLES = "/etc/nftables.conf"
_Range = ipaddress.IPv4Network | ipaddress.IPv6Network


class Rule(NamedTuple):
    """One open port. `host` and `host_port` are where it goes when that is not the zone as a whole."""

    action: str
    source: str
    port: str
    zone: str
    host: str
    host_port: str
    protocol: str
    address: str
    description: str

    @property
    def everybody(self) -> bool:
        return self.address in ("", "0.0.0.0/0", "::/0")


def render(tree: Tree, resolved: Resolved, given: RoleGiven) -> Part:
    """What the role means for a node."""
    rules = rules_of(given.role)
    if FirewallRole.backend.value(given.role) == "shorewall":
        file = File(
            path=SHOREWALL,
            content=shorewall_rules(rules),
            block=True,
            services=("shorewall",),
            action="RESTART",
        )
        return Part(files=[file], packages=["shorewall"])
    networks = _networks(tree, resolved)
    table = nftables_table(rules, networks)
    warnings = [f"firewall on {resolved.node.key}: {text}" for text in _warnings(rules, networks)]
    file = File(
        path=NFTABLES,
        content=table,
        mode="0755",
        services=("nftables",),
        action="RELOAD",
        test=("nft", "-c", "-f", "{}"),
    )
    return Part(files=[file], packages=["nftables"], warnings=warnings)


def rules_of(role: Obj) -> list[Rule]:
    """The open ports of a role, in order."""
    rules = []
    for _, port in sorted(role.below("open_ports").items(), key=lambda item: int(item[0])):
        zone, _, target = str(OpenPort.destination.value(port)).partition(":")
        host, _, host_port = target.partition(":")
        rules.append(
            Rule(
                action=str(OpenPort.action.value(port)),
                source=str(OpenPort.network.value(port)),
                port=str(OpenPort.port.value(port) or ""),
                zone=zone,
                host=host,
                host_port=host_port,
                protocol=str(OpenPort.protocol.value(port)).lower(),
                address=str(OpenPort.address.value(port)),
                description=one_line(str(OpenPort.description.value(port))),
            )
        )
    return rules


# Shorewall


def shorewall_rules(rules: Iterable[Rule]) -> str:
    """The lines of `/etc/shorewall/rules`: action, source, destination, protocol, port."""
    lines = ["#ACTION\tSOURCE\tDEST\tPROTO\tDPORT"]
    for rule in rules:
        if rule.description:
            lines.append(f"# {rule.description}")
        source = rule.source if rule.everybody else f"{rule.source}:{rule.address}"
        target = ":".join(part for part in (rule.zone, rule.host, rule.host_port) if part)
        words = [rule.action, source, target, rule.protocol, rule.port.replace("-", ":")]
        lines.append("\t".join(words).rstrip())
    return "\n".join(lines) + "\n"


# nftables

_TABLE = """\
#!/usr/sbin/nft -f
# The open ports of the role firewall. Other tables are left as they are.
table inet bedplate
delete table inet bedplate
table inet bedplate {{
{sets}    chain from_net {{
{from_net}        meta l4proto {{ icmp, ipv6-icmp }} accept
        drop
    }}

    chain from_nat {{
{from_nat}        accept
    }}

    chain input {{
        type filter hook input priority filter; policy accept;
        ct state established,related accept
        iifname "lo" accept
{jumps}        jump from_net
    }}

    chain forward {{
        type filter hook forward priority filter; policy accept;
        ct state established,related accept
{forward}    }}

    chain output {{
        type filter hook output priority filter; policy accept;
{output}    }}

    chain prerouting {{
        type nat hook prerouting priority dstnat; policy accept;
{prerouting}    }}
}}
"""


def nftables_table(rules: Sequence[Rule], networks: Mapping[str, _Range]) -> str:
    """The table; `networks` are those the node belongs to, by name."""
    trusted = {version: [net for net in networks.values() if net.version == version] for version in (4, 6)}
    chains: dict[str, list[str]] = {name: [] for name in _CHAINS}
    for rule in rules:
        for chain, line in _lines(rule, networks, bool(trusted[4])):
            chains[chain].append(f"        {line}\n")
    texts = {chain: "".join(lines) for chain, lines in chains.items()}
    return _TABLE.format(
        sets="".join(_set(version, nets) for version, nets in trusted.items() if nets),
        jumps="".join(
            f"        {_FAMILY[version]} saddr @nat{version} jump from_nat\n"
            for version, nets in trusted.items()
            if nets
        ),
        **texts,
    )


def _set(version: int, networks: Iterable[_Range]) -> str:
    elements = ", ".join(str(network) for network in sorted(networks, key=str))
    return (
        f"    set nat{version} {{\n        type ipv{version}_addr\n        flags interval\n        auto-merge\n"
        f"        elements = {{ {elements} }}\n    }}\n\n"
    )


def _lines(rule: Rule, networks: Mapping[str, _Range], trusted: bool) -> list[tuple[str, str]]:
    """Where a rule goes, and how it reads there; nothing for what nftables cannot be told."""
    if rule.action == "DNAT":
        words = [*_from(rule, networks, trusted), *_traffic(rule), f"dnat ip to {_target(rule)}"]
        return [("prerouting", _line(words, rule))] if _is_address(rule.host) and not _fault(rule, networks) else []
    if _fault(rule, networks):
        return []
    verdict = rule.action.lower()
    if rule.source == "fw":
        return [("output", _line([*_to(rule, trusted), *_traffic(rule), verdict], rule))]
    lines = []
    if rule.zone in ("fw", "all"):
        near = [*_own(rule, networks), *_traffic(rule), verdict]
        lines += [(chain, _line(near, rule)) for chain in _ZONE_CHAINS.get(rule.source, ("from_nat",))]
    if rule.zone != "fw":
        words = [*_from(rule, networks, trusted), *_to(rule, trusted), *_traffic(rule), verdict]
        lines.append(("forward", _line(words, rule)))
    return lines


def _line(words: Iterable[str], rule: Rule) -> str:
    text = " ".join(word for word in words if word)
    comment = rule.description.replace('"', "'").replace("\\", "/")[:100]
    return f'{text} comment "{comment}"' if comment else text


def _from(rule: Rule, networks: Mapping[str, _Range], trusted: bool) -> list[str]:
    """The zone a packet comes from, where no chain has told it yet."""
    zone = {"net": "ip saddr != @nat4", "nat": "ip saddr @nat4"}.get(rule.source, "") if trusted else ""
    return [zone, *_own(rule, networks)]


def _own(rule: Rule, networks: Mapping[str, _Range]) -> list[str]:
    """The addresses a packet comes from: those of the rule, and of a network when the rule names one."""
    matches = []
    if rule.source in networks:
        matches.append(_match("saddr", networks[rule.source]))
    if not rule.everybody:
        matches.append(_match("saddr", ipaddress.ip_network(rule.address, strict=False)))
    return matches


def _to(rule: Rule, trusted: bool) -> list[str]:
    if rule.host:
        return [_match("daddr", ipaddress.ip_network(rule.host))]
    zone = {"net": "ip daddr != @nat4", "nat": "ip daddr @nat4"}.get(rule.zone, "")
    return [zone] if zone and trusted else []


def _match(side: str, network: _Range) -> str:
    return f"{_FAMILY[network.version]} {side} {network}"


def _traffic(rule: Rule) -> list[str]:
    if rule.protocol == "icmp":
        return ["meta l4proto icmp"]
    return [f"{rule.protocol} dport {rule.port.replace(':', '-')}"]


def _target(rule: Rule) -> str:
    return f"{rule.host}:{rule.host_port.replace(':', '-')}" if rule.host_port else rule.host


def _is_address(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def _fault(rule: Rule, networks: Mapping[str, _Range]) -> str:
    """Why nftables cannot be told a rule."""
    if rule.source not in ("net", "nat", "fw", "all") and rule.source not in networks:
        return f"there is no zone {rule.source}"
    if rule.zone not in ("net", "nat", "fw", "all") and rule.action != "DNAT":
        return f"there is no zone {rule.zone}"
    if rule.host and not _is_address(rule.host):
        return f"{rule.host} is not an IPv4 address"
    return ""


def _warnings(rules: Sequence[Rule], networks: Mapping[str, _Range]) -> list[str]:
    faults = [(rule, _fault(rule, networks)) for rule in rules]
    warnings = [f"{rule.action} {rule.source} {rule.port} is ignored: {fault}" for rule, fault in faults if fault]
    if not any(rule.action == "ACCEPT" and rule.source in ("net", "all") and _opens(rule, 22) for rule in rules):
        warnings.append("no rule allows SSH (port 22) from net")
    return warnings


def _opens(rule: Rule, port: int) -> bool:
    first, _, last = rule.port.replace(":", "-").partition("-")
    return rule.protocol == "tcp" and first.isdecimal() and int(first) <= port <= int(last or first)


def _networks(tree: Tree, resolved: Resolved) -> dict[str, _Range]:
    """The networks a node belongs to: its own, and those of its Kubernetes cluster."""
    names = [str(resolved.node.values.get("network", ""))]
    given = resolved.roles.get("kubelet")
    cluster = tree.find("kubernetes", str(KubeletRole.kubernetes_cluster.value(given.role))) if given else None
    if cluster is not None:
        fields = (KubeCluster.internal_network, KubeCluster.pod_network, KubeCluster.service_network)
        names += [str(field.value(cluster)) for field in fields]
    networks = {name: tree.find("network", name) for name in names}
    ranges = {name: Network.range(obj) for name, obj in networks.items() if obj is not None}
    return {name: reach for name, reach in sorted(ranges.items()) if reach is not None and reach.prefixlen > 0}
