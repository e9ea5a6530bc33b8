"""Which nodes a change can mean something to.

In: the tree before and after, and the top-level objects that differ. Out: names of nodes; those not named resolve and
render the same in both trees. The answer may name a node too many, never one too few. Its cost grows with the answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from bedplate.head import resolve
from bedplate.head.entities.nodes import ConfigurationOverlay
from bedplate.head.entities.roles import EtcdHostRole, KubeletRole
from bedplate.head.entities.site import CHECK_ROLES
from bedplate.head.objects import Obj
from bedplate.head.tree import Address, Tree

__all__ = ["affected", "members"]

_OVERLAY = "configurationoverlay"
_MEMBERSHIP = ("nodes", "categories", "all_head_nodes")


def members(tree: Tree, overlay: Obj) -> set[str]:
    """The nodes of an overlay."""
    named, categories = ConfigurationOverlay.nodes.value(overlay), ConfigurationOverlay.categories.value(overlay)
    assert isinstance(named, tuple)
    assert isinstance(categories, tuple)
    nodes = {name for name in named if tree.find("device", name) is not None}
    for category in categories:
        nodes |= _in_category(tree, category)
    if ConfigurationOverlay.all_head_nodes.value(overlay):
        nodes |= {name for name, device in tree.mode("device").items() if device.type == "HeadNode"}
    return nodes


def _in_category(tree: Tree, category: str) -> set[str]:
    return set(tree.referrers("category", category, "device"))


def affected(before: Tree, after: Tree, touched: Iterable[Address]) -> set[str]:
    """The nodes for which something may differ."""
    return _Search(before, after).run(touched)


class _Search:
    def __init__(self, before: Tree, after: Tree) -> None:
        self._before = before
        self._after = after
        self._trees = (before, after)
        self._nodes: set[str] = set()
        self._checked: set[str] = set()
        self._seen: set[Address] = set()
        self._stack: list[Address] = []

    def run(self, touched: Iterable[Address]) -> set[str]:
        for mode, key in touched:
            if mode == _OVERLAY:
                self._overlay(key)  # not yet seen: a cluster it refers to may still mean all of its members
            else:
                self._stack.append((mode, key))
        while self._stack:
            place = self._stack.pop()
            if place not in self._seen:
                self._seen.add(place)
                self._spread(*place)
        return self._nodes | self._checked

    def _overlay(self, key: str) -> None:
        """A change of members alone means something to those who came and went; any other to all."""
        old, new = self._before.find(_OVERLAY, key), self._after.find(_OVERLAY, key)
        was = members(self._before, old) if old is not None else set()
        now = members(self._after, new) if new is not None else set()
        same = old is not None and new is not None and _without_members(old) == _without_members(new)
        self._take(was ^ now if same else was | now)

    def _spread(self, mode: str, key: str) -> None:
        for tree in self._trees:
            obj = tree.find(mode, key)
            if mode == "device":
                self._take({key} if obj is not None else set())
            elif mode == "category":
                self._take(_in_category(tree, key))
            elif mode == "healthcheck":
                self._checked |= _checked(tree, key)
            elif mode == _OVERLAY:
                self._take(members(tree, obj) if obj is not None else set())
            else:
                for by in tree.schema.modes:
                    self._stack.extend((by, name) for name in tree.referrers(mode, key, by))

    def _take(self, names: set[str]) -> None:
        """Nodes, and where what one is for a cluster differs, whoever has to do with that cluster."""
        for name in names - self._nodes:
            self._nodes.add(name)
            was, now = (_serves(tree, name) for tree in self._trees)
            self._stack.extend(place for place in {*was, *now} if was.get(place) != now.get(place))


def _checked(tree: Tree, check: str) -> set[str]:
    """The nodes a check may run on; no file of another node knows about it."""
    role = CHECK_ROLES.get(check)
    devices = tree.mode("device")
    if role is None:
        return set(devices)
    nodes = {name for name, device in devices.items() if role in device.below("roles")}
    for category, obj in tree.mode("category").items():
        if role in obj.below("roles"):
            nodes |= _in_category(tree, category)
    for overlay in tree.mode(_OVERLAY).values():
        if role in overlay.below("roles"):
            nodes |= members(tree, overlay)
    return nodes


def _without_members(overlay: Obj) -> Obj:
    return replace(overlay, values={name: v for name, v in overlay.values.items() if name not in _MEMBERSHIP})


def _serves(tree: Tree, name: str) -> dict[Address, object]:
    """The clusters whose other nodes must know this one, each with all that stands in their files about it."""
    node = tree.find("device", name)
    if node is None:
        return {}
    roles = resolve.roles_of(tree, node)
    clusters: dict[Address, object] = {}
    if "kubelet" in roles and KubeletRole.control_plane.value(roles["kubelet"].role):
        cluster = str(KubeletRole.kubernetes_cluster.value(roles["kubelet"].role))
        clusters["kubernetes", cluster] = (node.values.get("ip"),)
    if "Etcd::Host" in roles:
        role = roles["Etcd::Host"].role
        clusters["etcd", str(EtcdHostRole.etcd_cluster.value(role))] = (
            role.values.get("member_name"),
            role.values.get("advertise_peers_urls"),
        )
    return clusters
