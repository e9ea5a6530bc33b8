"""What a lab will look like, decided before anything is made.

In: the options a person gave and the networks already in use. Out: a `Plan` with every name and address. Pure: no file,
process or interface is touched here, so that a wrong option is reported before the machine changes.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bedplate.core import errors
from bedplate.lab import versions

__all__ = [
    "CONTAINERDS",
    "CONTROL_PLANES",
    "MANAGED",
    "NETWORKS",
    "NodePlan",
    "Options",
    "Plan",
    "check_name",
    "interface_name",
    "make_plan",
]

CONTROL_PLANES = ("process", "kubeadm")
# Instead of a control plane: a head, and agents on bare nodes.
MANAGED = "managed"
# Who makes the pod network: the lab, with bridges and routes; or not the lab, so that its user can.
NETWORKS = ("lab", "none")
# Which containerd runs pods: the machine's, or the release that `versions` names, built like Kubernetes is.
CONTAINERDS = ("machine", "built")
SERVICE_CIDR = "10.96.0.0/16"
DNS_ADDRESS = "10.96.0.10"

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,28}[a-z0-9])?")
_LINK = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,14}")
_LABS = 50
_FIRST_NODE = 11

Network = ipaddress.IPv4Network


@dataclass(frozen=True, slots=True)
class Options:
    """What `lab up` was asked for. `nodes` counts all nodes; those in `named` have a given name and address.

    A kubelet argument is for every kubelet (`--v=4`) or for one (`node-1=--v=4`). A `managed` lab has a head and bare
    nodes with agents instead of Kubernetes; its packages are those of `kubernetes`, and of `next_kubernetes` to upgrade
    to.
    """

    name: str = "lab"
    nodes: int | None = None
    kubernetes: str = versions.DEFAULT
    control_plane: str = "process"
    named: tuple[str, ...] = ()
    subnet: str = ""
    kubelet_args: tuple[str, ...] = ()
    cloud_provider: str = ""
    links: tuple[str, ...] = ()
    timeout_s: float = 300.0
    network: str = "lab"
    managed: bool = False
    containerd: str = "machine"
    next_kubernetes: str = ""


@dataclass(frozen=True, slots=True)
class NodePlan:
    name: str
    address: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Names and addresses of a lab. The machine itself is `gateway`; the image registry answers at `registry`, and in a
    managed lab the head."""

    name: str
    kubernetes: str
    control_plane: str
    nodes: tuple[NodePlan, ...]
    subnet: str
    gateway: str
    registry: str
    pod_cidr: str
    kubelet_args: tuple[str, ...] = ()
    cloud_provider: str = ""
    links: tuple[str, ...] = ()
    service_cidr: str = SERVICE_CIDR
    dns: str = DNS_ADDRESS
    network: str = "lab"

    @property
    def is_managed(self) -> bool:
        """Whether the nodes are bare, and a head decides what they become."""
        return self.control_plane == MANAGED

    @property
    def has_network(self) -> bool:
        """Whether the lab makes the pod network."""
        return self.network == "lab" and not self.is_managed

    @property
    def ranges(self) -> tuple[Network, ...]:
        """The networks that are for this lab alone."""
        return tuple(Network(text) for text in (self.subnet, self.pod_cidr) if text)

    @property
    def interface(self) -> str:
        return interface_name(self.name)

    def check_has_kubernetes(self) -> None:
        """Raise `Invalid` for a lab without."""
        if self.is_managed:
            raise errors.Invalid(
                f"lab {self.name!r} is managed: it has no Kubernetes", hint="bedplate lab status shows what it has"
            )

    def kubelet_args_of(self, node: str) -> list[str]:
        """The further flags of one kubelet: those for all and its own."""
        return [text for owner, text in map(_split_argument, self.kubelet_args) if owner in ("", node)]

    def node(self, name: str) -> NodePlan:
        """The node of that name."""
        for node in self.nodes:
            if node.name == name:
                return node
        names = ", ".join(node.name for node in self.nodes)
        raise errors.NotFound(f"lab {self.name!r} has no node {name!r}", hint=f"nodes: {names}")

    @property
    def prefix_length(self) -> int:
        return Network(self.subnet).prefixlen

    @property
    def url(self) -> str:
        return f"https://{self.nodes[0].address}:6443"


def check_name(name: str) -> str:
    """The lab's name, if it can be part of a folder, a cgroup and an interface."""
    if not _NAME.fullmatch(name):
        raise errors.Invalid(f"{name!r} cannot name a lab", hint="use up to 30 of a-z, 0-9 and - (not first or last)")
    return name


def interface_name(lab: str) -> str:
    """The machine's interface into the lab; an interface name has at most 15 characters."""
    return f"bp-{lab}" if len(lab) <= 12 else "bp-" + hashlib.sha256(lab.encode()).hexdigest()[:10]


def make_plan(options: Options, in_use: Iterable[Network]) -> Plan:
    """All names and addresses, none of them in use; every problem of the options is reported at once."""
    problems: list[str] = []
    taken = list(in_use)
    check_name(options.name)
    if options.control_plane not in CONTROL_PLANES:
        problems.append(f"--control-plane {options.control_plane}: must be one of {', '.join(CONTROL_PLANES)}")
    if options.network not in NETWORKS:
        problems.append(f"--network {options.network}: must be one of {', '.join(NETWORKS)}")
    if options.containerd not in CONTAINERDS:
        problems.append(f"--containerd {options.containerd}: must be one of {', '.join(CONTAINERDS)}")
    if options.cloud_provider not in ("", "external"):
        problems.append(f"--cloud-provider {options.cloud_provider}: only 'external' exists in Kubernetes now")
    problems += [
        f"--link {link}: must be a free interface name of at most 15 characters"
        for link in options.links
        if not _LINK.fullmatch(link) or link in ("eth0", "lo", "cni0") or options.links.count(link) > 1
    ]
    if options.managed:
        problems += _not_for_managed(options)
    elif options.next_kubernetes:
        problems.append("--next-kubernetes: a lab that is not managed has one version")
    subnet, pods = _networks(options, taken, problems)
    nodes = _nodes(options, subnet, problems)
    known = {node.name for node in nodes}
    problems += [
        f"--kubelet-arg {text}: must begin with - or with NODE=- and the name of a node"
        for text in options.kubelet_args
        if not _split_argument(text)[1].startswith("-") or (nodes and _split_argument(text)[0] not in {"", *known})
    ]
    if problems:
        raise errors.Invalid("this lab cannot be created", problems=problems)
    return Plan(
        name=options.name,
        kubernetes="" if options.managed else versions.resolve(options.kubernetes),
        control_plane=MANAGED if options.managed else options.control_plane,
        nodes=nodes,
        subnet=str(subnet),
        gateway=str(subnet[1]),
        registry=str(subnet[2]),
        pod_cidr="" if options.managed else str(pods),
        kubelet_args=options.kubelet_args,
        cloud_provider=options.cloud_provider,
        links=options.links,
        network=options.network,
    )


def _not_for_managed(options: Options) -> list[str]:
    """What makes no sense where there is no Kubernetes."""
    default = Options()
    given = {
        "--control-plane": options.control_plane != default.control_plane,
        "--kubelet-arg": options.kubelet_args != default.kubelet_args,
        "--cloud-provider": options.cloud_provider != default.cloud_provider,
        "--network": options.network != default.network,
        "--containerd": options.containerd != default.containerd,
    }
    return [f"{name}: a managed lab has no Kubernetes" for name, is_given in given.items() if is_given]


def _split_argument(text: str) -> tuple[str, str]:
    """Whose argument it is (empty: everybody's), and the argument."""
    if text.startswith("-"):
        return "", text
    node, _, argument = text.partition("=")
    return node, argument


def _networks(options: Options, taken: Sequence[Network], problems: list[str]) -> tuple[Network, Network]:
    candidates = [Network(f"10.77.{number}.0/24") for number in range(_LABS)]
    if options.subnet:
        try:
            given = Network(options.subnet)
        except ValueError as err:
            problems.append(f"--subnet {options.subnet}: {err}")
            return candidates[0], Network("10.150.0.0/16")
        if given.num_addresses < 16:
            problems.append(f"--subnet {given}: too small, use a /28 or larger")
        if clash := [net for net in [*taken, Network(SERVICE_CIDR)] if net.overlaps(given)]:
            problems.append(f"--subnet {given}: overlaps {clash[0]}, which is in use")
        candidates = [given]
    subnet = next((net for net in candidates if not any(net.overlaps(other) for other in taken)), candidates[0])
    pods = (Network(f"10.{150 + number}.0.0/16") for number in range(_LABS))
    free = next((net for net in pods if not any(net.overlaps(other) for other in [*taken, subnet])), None)
    if free is None:
        problems.append("no free network is left for pods: remove another lab first")
    return subnet, free or Network("10.150.0.0/16")


def _nodes(options: Options, subnet: Network, problems: list[str]) -> tuple[NodePlan, ...]:
    count = options.nodes if options.nodes is not None else max(1, len(options.named))
    room = min(subnet.num_addresses - _FIRST_NODE - 1, 200)
    if not max(1, len(options.named)) <= count <= room:
        problems.append(f"--nodes {count}: must be {max(1, len(options.named))} to {room} here")
        return ()
    nodes: dict[str, str] = {}
    for text in options.named:
        name, _, address = text.partition("=")
        if fault := _fault_of(name, address, subnet, nodes):
            problems.append(f"--node {text}: {fault}")
        else:
            nodes[name] = str(ipaddress.IPv4Address(address))
    free_addresses = (str(subnet[number]) for number in range(_FIRST_NODE, subnet.num_addresses - 1))
    # As a head names its nodes, so that ranges like node[001-003] work in a shell.
    form = "node{:03}" if options.managed else "node-{}"
    free_names = (form.format(number) for number in range(1, count + len(nodes) + 1))
    while len(nodes) < count and not problems:
        name = next(each for each in free_names if each not in nodes)
        nodes[name] = next(each for each in free_addresses if each not in nodes.values())
    return tuple(NodePlan(name, address) for name, address in nodes.items())


def _fault_of(name: str, address: str, subnet: Network, nodes: dict[str, str]) -> str:
    if not _NAME.fullmatch(name):
        return "write NAME=ADDRESS with a name of a-z, 0-9 and -"
    try:
        parsed = ipaddress.IPv4Address(address)
    except ValueError:
        return f"{address!r} is not an IPv4 address"
    if parsed not in subnet or parsed in (subnet[0], subnet[1], subnet[2], subnet[-1]):
        return f"the address must be in {subnet}, from {subnet[3]} on"
    if name in nodes or str(parsed) in nodes.values():
        return "name or address is given twice"
    return ""
