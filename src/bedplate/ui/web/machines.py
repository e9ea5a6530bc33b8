"""How the machines are, for the overview, the list of devices and the page of health; and who belongs to a cluster.

In: a tree and what nodes reported. Out: one `Machine` per device, counts, clusters with their sizes. Roles are counted
by who gives them, without resolving every node, so that the overview of a large site costs little.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bedplate.api import states
from bedplate.api.headapi import CheckState
from bedplate.api.states import STATES, State, Status
from bedplate.head import Health, Obj, Tree
from bedplate.head.entities.roles import KubeletRole
from bedplate.head.schema.ranges import natural
from bedplate.ui.web import links

__all__ = ["Cluster", "Giver", "Machine", "by_category", "clusters", "givers", "machine", "machines", "tally"]


HEAD_NODES = "head node"
"""What stands in place of the category of a head node."""


class Machine(NamedTuple):
    """A device as the page shows it: `state` and `health` are words of `api.states`, `tone` is the class of the style
    sheet that goes with both, `words` says both and which checks fail."""

    name: str
    way: str
    category: str
    state: State
    health: Status
    failing: tuple[str, ...]
    checks: Mapping[str, CheckState]
    heard: str
    applied: int
    tone: str
    words: str


class Cluster(NamedTuple):
    """A Kubernetes cluster with how many nodes it is given."""

    name: str
    way: str
    version: str
    etcd: str
    control_plane: int
    workers: int
    down: int
    app_groups: int


class Giver(NamedTuple):
    """An object that gives a role, and the nodes it gives it to."""

    mode: str
    key: str
    role: Obj
    nodes: frozenset[str]


def machines(tree: Tree, health: Health, names: Iterable[str] | None = None) -> list[Machine]:
    """The devices in natural order."""
    devices = tree.mode("device")
    return [machine(devices[name], health) for name in sorted(devices if names is None else names, key=natural)]


def machine(obj: Obj, health: Health) -> Machine:
    """A device as the page shows it."""
    known = health.node_state(obj.key)
    failing = tuple(check.check for check in known.checks if check.status == "FAIL")
    return Machine(
        obj.key,
        links.show(("device", obj.key)),
        str(obj.values.get("category", "")) or (HEAD_NODES if obj.type == "HeadNode" else ""),
        known.state,
        known.health,
        failing,
        {check.check: check for check in known.checks},
        known.heard,
        known.applied,
        states.tone(known.state, known.health),
        f"{known.state}, {known.health}: {', '.join(failing)}" if failing else known.state,
    )


def tally(shown: Sequence[Machine]) -> list[tuple[str, int]]:
    """How many machines are in which state, and for how many of them a check fails; as the shell counts them."""
    counts = Counter[str](member.state for member in shown)
    failing = sum(member.health == "FAIL" for member in shown)
    return [*((state, counts[state]) for state in STATES), ("FAIL", failing)]


def by_category(tree: Tree, shown: Iterable[Machine]) -> list[tuple[str, str, list[Machine]]]:
    """Machines by category, each with its page, in natural order; head nodes first, those without a category last."""
    groups: dict[str, list[Machine]] = {}
    for member in shown:
        groups.setdefault(member.category, []).append(member)
    order = sorted(groups, key=lambda name: (name != HEAD_NODES, not name, natural(name)))
    return [
        (
            name or "without a category",
            links.show(("category", name)) if tree.find("category", name) is not None else "",
            groups[name],
        )
        for name in order
    ]


def givers(tree: Tree) -> list[Giver]:
    """Every role with who gives it: categories, overlays, nodes; sorted by role."""
    entries: list[Giver] = []
    for mode in ("category", "configurationoverlay", "device"):
        for key, obj in tree.mode(mode).items():
            if obj.below("roles"):
                nodes = frozenset(_members(tree, mode, obj))
                entries.extend(Giver(mode, key, role, nodes) for role in obj.below("roles").values())
    return sorted(entries, key=lambda giver: (giver.role.key, giver.mode, natural(giver.key)))


def _members(tree: Tree, mode: str, obj: Obj) -> set[str]:
    if mode == "device":
        return {obj.key}
    categories, names = {obj.key}, set[str]()
    if mode == "configurationoverlay":
        named, listed = obj.values.get("categories", ()), obj.values.get("nodes", ())
        assert isinstance(named, tuple)
        assert isinstance(listed, tuple)
        categories, names = set(named), set(listed)
        if obj.values.get("all_head_nodes"):
            names.update(key for key, device in tree.mode("device").items() if device.type == "HeadNode")
    for category in categories:
        referrers = tree.referrers("category", category, "device")
        names.update(name for name, ways in referrers.items() if "category" in ways)
    return names


def clusters(tree: Tree, health: Health) -> list[Cluster]:
    """The Kubernetes clusters, by name."""
    masters: dict[str, set[str]] = {}
    workers: dict[str, set[str]] = {}
    for giver in givers(tree):
        if giver.role.type == "KubeletRole":
            cluster = str(KubeletRole.kubernetes_cluster.value(giver.role))
            target = masters if KubeletRole.control_plane.value(giver.role) else workers
            target.setdefault(cluster, set()).update(giver.nodes)
    entries = []
    for name, obj in sorted(tree.mode("kubernetes").items()):
        control, others = masters.get(name, set()), workers.get(name, set()) - masters.get(name, set())
        down = sum(health.state(node) == "DOWN" for node in control | others)
        etcd, version = str(obj.values.get("etcd_cluster", "")), str(obj.values.get("version", ""))
        groups = len(obj.below("app_groups"))
        way = links.show(("kubernetes", name))
        entries.append(Cluster(name, way, version, etcd, len(control), len(others), down, groups))
    return entries
