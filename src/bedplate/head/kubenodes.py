"""Labels and taints of Kubernetes nodes: what label sets and roles say, written into clusters that the head reaches.

In: the tree that counts for each node, and a kubeconfig for a cluster (`kubernetes/NAME.kubeconfig` in the data
folder). Out: the labels by server-side apply under a field manager of the head's own; taints beside those of others, as
Kubernetes takes the list of taints whole. An annotation names what is ours. What somebody else changes of it is put
right at once, and looked at every minute; what is no longer assigned is taken away, also from a node that left the
tree. Nodes are never created here, and nothing is written while another head is the active one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from bedplate.api import core
from bedplate.api.desired import Taint
from bedplate.core import errors
from bedplate.core.clock import Clock, rfc3339
from bedplate.core.logging import get_logger
from bedplate.head import resolve
from bedplate.head.affected import affected
from bedplate.head.entities.roles import KubeletRole
from bedplate.head.kubeclusters import FOLDER, KubeClusters, file_of, until_served
from bedplate.head.plan import touched_between
from bedplate.head.service import Head
from bedplate.head.wants import Wants

if TYPE_CHECKING:
    from bedplate.kube.client import Client
    from bedplate.runtime.cache import Cache
    from bedplate.runtime.controller import Controller

__all__ = ["ANNOTATION", "FOLDER", "MANAGER", "KubeNodes", "Wish", "file_of", "plan"]

_LOG = get_logger("head.kubernetes")
MANAGER = "bedplate-head"
ANNOTATION = "bedplate.dev/head"
_RESYNC_S = 60.0
_WORKERS = 4
_QPS = 100.0


class Wish(NamedTuple):
    """What a node of Kubernetes should have because of the head."""

    labels: Mapping[str, str] = {}
    taints: Sequence[Taint] = ()


class Ours(msgspec.Struct, frozen=True, omit_defaults=True):
    """The annotation: which labels and taints are the head's."""

    labels: list[str] = []
    taints: list[str] = []


class Plan(NamedTuple):
    """The writes that bring a node to a wish, in this order; None where there is nothing to write. Taints are in the
    annotation before they are on the node and until they are gone, so that whoever goes on later knows whose they are.
    """

    first: Mapping[str, Any] | None
    taints: Sequence[Mapping[str, str]] | None
    last: Mapping[str, Any] | None


def plan(node: core.Node, wish: Wish) -> Plan | None:
    """What to write; None when the node is as it should be. Pure."""
    ours = _ours(node)
    assigned = {_name(taint.key, taint.effect): taint for taint in wish.taints}
    final = Ours(sorted(wish.labels), sorted(assigned))
    others = [taint for taint in node.spec.taints if _name(taint.key, taint.effect) not in {*ours.taints, *assigned}]
    mine = [taint for taint in node.spec.taints if _name(taint.key, taint.effect) in {*ours.taints, *assigned}]
    has_taints = {_name(taint.key, taint.effect): taint.value for taint in mine} == {
        name: taint.value for name, taint in assigned.items()
    }
    has_labels = all(node.metadata.labels.get(name) == value for name, value in wish.labels.items())
    if ours == final and has_labels and has_taints:
        return None
    both = Ours(final.labels, sorted({*final.taints, *ours.taints}))
    first = None if has_labels and ours == both else _body(wish, both)
    if has_taints:
        return Plan(_body(wish, final), None, None)
    kept = [_of(taint) for taint in others]
    added = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in assigned.values()]
    return Plan(first, [*kept, *added], _body(wish, final) if both != final else None)


def _body(wish: Wish, ours: Ours) -> dict[str, Any]:
    """What is applied; without anything of ours the annotation goes as well."""
    notes = {ANNOTATION: msgspec.json.encode(ours).decode()} if ours.labels or ours.taints else {}
    return {"metadata": {"labels": dict(wish.labels), "annotations": notes}}


def _ours(node: core.Node) -> Ours:
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(node.metadata.annotations.get(ANNOTATION, "{}"), type=Ours)
    return Ours()


def _name(key: str, effect: str) -> str:
    return f"{key}:{effect}"


def _of(taint: core.Taint) -> dict[str, str]:
    fields = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    if taint.time_added is not None:
        fields["timeAdded"] = rfc3339(taint.time_added)
    return {name: text for name, text in fields.items() if text}


class KubeNodes:
    """All clusters with a kubeconfig. `run` until cancelled."""

    def __init__(self, head: Head, wants: Wants, folder: Path, *, clock: Clock) -> None:
        self._clusters = KubeClusters(head, folder, lambda name: _Cluster(name, head, wants, clock), clock=clock)

    def rouse(self, nodes: Iterable[str]) -> None:
        """Look at nodes again: another tree counts for them."""
        names = list(nodes)
        for cluster in self._clusters:
            cluster.look(names)

    async def run(self) -> None:
        """Follow the kubeconfigs that come, change and go."""
        await self._clusters.run()


class _Cluster:
    """One cluster, while its kubeconfig stays the same."""

    def __init__(self, name: str, head: Head, wants: Wants, clock: Clock) -> None:
        self._name = name
        self._head = head
        self._wants = wants
        self._clock = clock
        self._controller: Controller | None = None
        self._nodes: Cache[core.Node] | None = None
        self._wishes: dict[str, tuple[str, Wish]] = {}

    def look(self, names: Iterable[str]) -> None:
        if self._controller is not None and self._nodes is not None:
            for name in names:
                if name in self._nodes:
                    self._controller.queue.add(name)

    async def run(self, file: Path) -> None:
        # A head without clusters does not carry the client.
        from bedplate.api.resources import NODES
        from bedplate.kube import Client, config
        from bedplate.runtime.controller import Controller
        from bedplate.runtime.manager import Manager

        settings = config.load(file, environ={}).with_user_agent(MANAGER).with_rate(_QPS, 2 * round(_QPS))
        async with Client(settings) as client:
            await until_served(client, self._clock)
            manager = Manager(client, time=self._clock)
            self._nodes = nodes = manager.cache(NODES)

            async def reconcile(name: str) -> None:
                await self._reconcile(client, name)

            self._controller = Controller("head-nodes", reconcile, workers=_WORKERS, time=self._clock).watches(nodes)
            manager.add(self._controller)
            manager.serve(self._follow)
            manager.serve(self._again)
            _LOG.info("head.kubernetes.connected", cluster=self._name, url=settings.server)
            await manager.run()

    async def _follow(self) -> None:
        tree = self._head.tree
        async for revision in self._head.revisions(self._head.revision):
            if revision.number >= self._head.revision:
                before, tree = tree, self._head.tree
                self.look(affected(before, tree, touched_between(before, tree)))

    async def _again(self) -> None:
        while True:
            await self._clock.sleep(_RESYNC_S)
            if self._nodes is not None:
                self._nodes.resync()

    def wish(self, name: str) -> Wish:
        """What the head wants of a node in this cluster: nothing unless it is a member."""
        tree, _ = self._wants.tree(name)
        device = tree.find("device", name)
        if device is None:
            return Wish()
        kubelet = resolve.roles_of(tree, device).get("kubelet")
        if kubelet is None or str(KubeletRole.kubernetes_cluster.value(kubelet.role)) != self._name:
            return Wish()
        digest = self._wants.digest(name)
        known = self._wishes.get(name)
        if known is None or known[0] != digest:
            state = self._wants.state(name)
            known = self._wishes[name] = digest, Wish(state.labels, state.taints)
        return known[1]

    async def _reconcile(self, client: Client, name: str) -> None:
        from bedplate.api.resources import NODES
        from bedplate.kube.options import PatchType

        node = self._nodes.get(name) if self._nodes is not None else None
        if node is None or node.metadata.is_deleting or not self._head.standing.is_active:
            return
        steps = plan(node, self.wish(name))
        if steps is None:
            return

        async def apply(body: Mapping[str, Any] | None) -> None:
            if body is not None:
                # With its UID it is this very node, which is never created again.
                whole = {"metadata": {**body["metadata"], "uid": node.metadata.uid}}
                await client.patch(NODES, name, whole, type=PatchType.APPLY, field_manager=MANAGER, force=True)

        try:
            await apply(steps.first)
            if steps.taints is not None:
                await self._taint(client, name, node, steps.taints)
            await apply(steps.last)
        except errors.NotFound:
            return
        _LOG.v(1).info("head.kubernetes.node", cluster=self._name, node=name)

    async def _taint(self, client: Client, name: str, node: core.Node, taints: Sequence[Mapping[str, str]]) -> None:
        """Replace the list unless somebody else has written the node's taints since they were read."""
        from bedplate.api.resources import NODES

        current = await client.get(NODES, name)
        if current.metadata.uid != node.metadata.uid or current.spec.taints != node.spec.taints:
            raise errors.Conflict(
                f"the taints of {name} have changed meanwhile", hint="the head looks again in a moment"
            )
        metadata = {"uid": current.metadata.uid, "resourceVersion": current.metadata.resource_version}
        body = {"metadata": metadata, "spec": {"taints": list(taints)}}
        await client.patch(NODES, name, body, field_manager=MANAGER)
