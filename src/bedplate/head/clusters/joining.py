"""Nodes of one cluster come and go: what the head does in the cluster itself when roles say so.

In: the tree, the records of who is part of the cluster, a kubeconfig. Out: for a node with the role and no record its
range of pod addresses, its Node and a bootstrap token, then a request to join; for one that leaves cordon, evictions,
and after its reset no Node and no range. Other nodes get nothing but the new route. Nothing is listed but the pods of
nodes that leave, so that a node's coming costs the same in any cluster.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from bedplate.api import names
from bedplate.api.resources import NODES, SECRETS
from bedplate.core import errors
from bedplate.core.clock import Clock, rfc3339
from bedplate.core.logging import get_logger
from bedplate.head.clusters import draining
from bedplate.head.clusters.members import Members
from bedplate.head.clusters.membership import Membership, allocate, is_managed, is_paused
from bedplate.head.entities.kubernetes import KubeCluster
from bedplate.head.entities.site import Network
from bedplate.head.objects import Obj, Secret
from bedplate.head.policy import Identity
from bedplate.head.progress import Progress
from bedplate.head.render.clusters import kubelets
from bedplate.head.render.kubeadm import POD_RANGES, bootstrap_token, pod_ranges, pod_ranges_text
from bedplate.head.service import Head
from bedplate.head.session import Edit, Session
from bedplate.head.tree import Tree
from bedplate.kube import Client, config
from bedplate.kube.options import PatchType

__all__ = ["UNINITIALIZED", "ClusterNodes", "make_nodes", "missing"]

_LOG = get_logger("head.clusters")
MANAGER = "bedplate-head"
UNINITIALIZED = {"key": names.TAINT_UNINITIALIZED, "value": "true", "effect": "NoSchedule"}
"""What a node of a cloud has until the cloud controller manager has given it addresses and labels."""
_LOOK_S = 0.5
_TOKEN_LIFE = timedelta(hours=1)
_TOKEN_GROUP = "system:bootstrappers:kubeadm:default-node-token"


def missing(tree: Tree, cluster: str, records: Mapping[str, Membership]) -> list[str]:
    """The nodes whose role makes them part of the cluster, and which are not, in natural order. Pure."""
    if not is_managed(tree, cluster):
        return []
    return [
        member.node.key
        for member in kubelets(tree, cluster)
        if (known := records.get(member.node.key)) is None or known.state == "joining"
    ]


def with_ranges(tree: Tree, cluster: str, *, come: Iterable[str] = (), gone: Iterable[str] = ()) -> Sequence[Edit]:
    """The edit by which nodes have ranges of pod addresses, and others no longer; none where nothing changes, or where
    the head does not make the pod network. Pure. Raises `Invalid`."""
    obj = tree.get(("kubernetes", cluster))
    known = pod_ranges(obj)
    network = tree.find("network", str(KubeCluster.pod_network.value(obj)))
    pods = Network.range(network) if network is not None else None
    if not known or not isinstance(pods, ipaddress.IPv4Network):
        return []
    kept = {node: range_ for node, range_ in known.items() if node not in set(gone)}
    mask = KubeCluster.pod_network_node_mask.value(obj)
    assert isinstance(mask, int)
    ranges = allocate(pods, mask, list(dict.fromkeys([*kept, *come])), kept)
    session = Session(tree)
    session.set_extra(("kubernetes", cluster), POD_RANGES, pod_ranges_text(ranges))
    return session.edits()


async def make_nodes(
    client: Client,
    ranges: Mapping[str, ipaddress.IPv4Network],
    nodes: Iterable[str],
    taints: Sequence[Mapping[str, str]] = (),
) -> None:
    """Nodes with their ranges of pod addresses and taints, before their kubelets start; for one that is there its
    range."""
    for name in nodes:
        range_ = ranges.get(name)
        spec: dict[str, Any] = {"podCIDR": str(range_), "podCIDRs": [str(range_)]} if range_ is not None else {}
        new = {**spec, "taints": [dict(taint) for taint in taints]} if taints else spec
        try:
            await client.create(NODES, {"metadata": {"name": name}, "spec": new}, field_manager=MANAGER)
        except errors.AlreadyExists:
            present = await client.get(NODES, name)
            if spec and not present.spec.pod_cidr:
                await client.patch(NODES, name, {"spec": spec}, field_manager=MANAGER)


def _taints(cluster: Obj) -> list[dict[str, str]]:
    """Those of new nodes of a cluster."""
    return [UNINITIALIZED] if cluster.extras.get("cloud_provider") == "external" else []


class ClusterNodes:
    """One cluster, while its kubeconfig stays the same."""

    def __init__(self, name: str, head: Head, members: Members, progress: Progress, clock: Clock) -> None:
        self._name = name
        self._head = head
        self._members = members
        self._progress = progress
        self._clock = clock
        self._signed_until = clock.now()

    async def run(self, file: Path) -> None:
        """Look until cancelled."""
        settings = config.load(file, environ={}).with_user_agent(MANAGER)
        async with Client(settings) as client:
            while True:
                try:
                    await self.look(client)
                except errors.BedplateError as err:
                    _LOG.warning("head.clusters.nodes_not_looked_at", cluster=self._name, error=str(err))
                await self._clock.sleep(_LOOK_S)

    async def look(self, client: Client) -> None:
        """Do what is due."""
        if not self._head.standing.is_active or not is_managed(self._head.tree, self._name):
            return
        if is_paused(self._head.tree, self._name):
            # A restore may take the token away that nodes join with.
            self._signed_until = self._clock.now()
            return
        for node, known in self._members.of(self._name).items():
            if not self._members.is_settled(known):
                continue
            if known.state == "draining":
                await self._drain(client, node, known)
            elif known.state == "returning":
                await draining.uncordon(client, node)
                await self._members.move(node, msgspec.structs.replace(known, state="joined", text="", uid=""))
            elif known.state == "deleting":
                await self._delete(client, node, known)
        await self._join(client)

    # Coming

    async def _join(self, client: Client) -> None:
        records = self._members.of(self._name)
        come = missing(self._head.tree, self._name, self._members.book.items())
        if not come:
            return
        try:
            await self._allocate(come=come)
        except errors.Invalid as err:
            for node in come:
                known = records.get(node) or Membership(self._name, "joining", since=rfc3339(self._clock.now()))
                await self._members.tell(node, known, str(err), is_bad=True)
            return
        cluster = self._head.tree.get(("kubernetes", self._name))
        ranges, taints = pod_ranges(cluster), _taints(cluster)
        for node in come:
            if node not in records:
                now = rfc3339(self._clock.now())
                await self._members.move(node, Membership(self._name, "joining", since=now))
                await make_nodes(client, ranges, [node], taints)
            if self._members.may_ask(node, "join") and self._progress.has_applied(node):
                await make_nodes(client, ranges, [node], taints)
                if await self._sign(client):
                    await self._members.ask(node, "join", self._name)

    async def _allocate(self, *, come: Iterable[str] = (), gone: Iterable[str] = ()) -> None:
        come, gone = list(come), list(gone)
        if not with_ranges(self._head.tree, self._name, come=come, gone=gone):
            return

        async def edits(tree: Tree) -> Sequence[Edit]:
            return with_ranges(tree, self._name, come=come, gone=gone)

        words = [f"for {', '.join(come)}" if come else "", f"without {', '.join(gone)}" if gone else ""]
        message = f"ranges of pod addresses of {self._name} {' '.join(filter(None, words))}"
        await self._head.commit_as(Identity.local("bedplate head"), edits, message)

    async def _sign(self, client: Client) -> bool:
        """See to it that the token of joining nodes counts for a while; whether it does. Nobody has to wait for the
        cluster's signature: nodes know its authority."""
        obj = self._head.tree.get(("kubernetes", self._name))
        key = KubeCluster.kubeadm_cert_key.value(obj)
        if not isinstance(key, Secret):
            return False
        id_, _, secret = bootstrap_token(key.reveal(), self._name).partition(".")
        now = self._clock.now()
        if now >= self._signed_until:
            content = {
                "token-id": id_,
                "token-secret": secret,
                "expiration": rfc3339(now + _TOKEN_LIFE),
                "usage-bootstrap-authentication": "true",
                "usage-bootstrap-signing": "true",
                "auth-extra-groups": _TOKEN_GROUP,
            }
            data = {name: base64.b64encode(text.encode()).decode() for name, text in content.items()}
            body = {"type": "bootstrap.kubernetes.io/token", "data": data}
            await client.patch(
                SECRETS,
                f"bootstrap-token-{id_}",
                body,
                "kube-system",
                type=PatchType.APPLY,
                field_manager=MANAGER,
                force=True,
            )
            self._signed_until = now + _TOKEN_LIFE / 2
        return True

    # Going

    async def _drain(self, client: Client, node: str, known: Membership) -> None:
        uid = await draining.cordon(client, node)
        if uid and known.uid != uid:
            known = msgspec.structs.replace(known, uid=uid)
            await self._members.move(node, known)
        waits = await draining.drain(client, node) if uid else None
        if waits is not None:
            await self._members.tell(node, known, waits.text, is_bad=waits.is_stopped)
            return
        await self._members.move(node, msgspec.structs.replace(known, state="resetting", others=(), text=""))

    async def _delete(self, client: Client, node: str, known: Membership) -> None:
        try:
            present = await client.get(NODES, node)
            if known.uid in ("", present.metadata.uid):
                await client.delete(NODES, node, uid=present.metadata.uid)
        except (errors.NotFound, errors.Conflict):
            pass
        await self._allocate(gone=[node])
        await self._members.move(node, None)
        _LOG.info("head.clusters.node_left", cluster=self._name, node=node)
