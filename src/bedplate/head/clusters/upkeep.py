"""What the head does for clusters without being asked: snapshots of etcd in time, certificates renewed before they end.

In: the tree, what agents report, requests that were made, snapshots that are there, the time. Out: requests to nodes.
`snapshots_due` and `renewals_due` decide, both pure. A node whose agent does not report is asked for nothing; what did
not succeed is asked for again, a snapshot after a tenth of its interval, a renewal after a day, and one control plane
node of a cluster is asked at a time. A cluster that is being restored or upgraded is left alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from bedplate.api.headapi import Care, ErrandState
from bedplate.core import errors
from bedplate.core.clock import Clock, parse_rfc3339, rfc3339
from bedplate.core.logging import get_logger
from bedplate.head import care
from bedplate.head.clusters.membership import is_paused
from bedplate.head.clusters.snapshots import Snapshot, Snapshots, name_at
from bedplate.head.entities.kubernetes import EtcdCluster, KubeCluster
from bedplate.head.errands import Errands
from bedplate.head.health import Health
from bedplate.head.service import Head
from bedplate.head.tree import Tree

__all__ = ["CERTIFICATES", "Plan", "Upkeep", "plan_of", "renewals_due", "snapshots_due"]

_LOG = get_logger("head.clusters")
CERTIFICATES: Final = "KubernetesCertificates"
_BY = "the head"
_LOOK_S = 10.0
_LASTS_S = 600.0
_RENEW_EVERY = timedelta(days=1)


class Plan(NamedTuple):
    """How often a snapshot of a cluster's etcd is taken, and how many are kept; 0: none is."""

    every_s: float
    keep: int


def plan_of(tree: Tree, cluster: str) -> Plan:
    """As the cluster's etcd says; a cluster without one of the head's has none."""
    obj = tree.find("kubernetes", cluster)
    ensemble = tree.find("etcd", str(KubeCluster.etcd_cluster.value(obj))) if obj is not None else None
    if ensemble is None:
        return Plan(0.0, 0)
    every, keep = EtcdCluster.snapshot_interval.value(ensemble), EtcdCluster.snapshots_kept.value(ensemble)
    assert isinstance(every, float | int) and isinstance(keep, int)
    return Plan(float(every), keep)


def snapshots_due(
    plan: Plan, since: str, known: Sequence[Snapshot], asked: Iterable[ErrandState], now: datetime
) -> bool:
    """Whether a snapshot is to be asked for: the last one, or the cluster, is older than the interval, and nobody is
    at it. One that failed is asked for again after a tenth of that. Pure."""
    if plan.every_s <= 0 or plan.keep <= 0:
        return False
    every = timedelta(seconds=plan.every_s)
    last = max([each.taken for each in known if each.taken] + ([since] if since else []), default="")
    if last and now - parse_rfc3339(last) < every:
        return False
    return all(
        errand.state not in ("waiting", "accepted") and now - parse_rfc3339(errand.asked) >= every / 10
        for errand in asked
        if errand.care == "snapshot"
    )


def renewals_due(planes: Iterable[tuple[str, bool]], asked: Sequence[ErrandState], now: datetime) -> str:
    """The control plane node that is to renew its certificates, or none: `planes` says of each whether they end soon.
    Pure."""
    mine = [errand for errand in asked if errand.care == "renew"]
    if any(errand.state in ("waiting", "accepted") for errand in mine):
        return ""
    late = {errand.node for errand in mine if now - parse_rfc3339(errand.asked) < _RENEW_EVERY}
    return next((node for node, is_soon in planes if is_soon and node not in late), "")


class Upkeep:
    """For all clusters of the tree, while this head is the active one. `run` until cancelled."""

    def __init__(self, head: Head, health: Health, errands: Errands, snapshots: Snapshots, clock: Clock) -> None:
        self._head = head
        self._health = health
        self._errands = errands
        self._snapshots = snapshots
        self._clock = clock
        self._seen: dict[str, str] = {}

    async def run(self) -> None:
        """Look again and again."""
        while True:
            if self._head.standing.is_active:
                await self.look()
            await self._clock.sleep(_LOOK_S)

    async def look(self) -> None:
        """Ask for what is due. What cannot be asked for now is told in the log, and looked at again."""
        for cluster in list(self._head.tree.mode("kubernetes")):
            if is_paused(self._head.tree, cluster):
                continue
            for ask in (self._snapshot, self._renew):
                await self._guarded(ask, cluster)
        for cluster in [name for name in self._seen if self._head.tree.find("kubernetes", name) is None]:
            del self._seen[cluster]

    async def _guarded(self, ask: Callable[[str], Awaitable[None]], cluster: str) -> None:
        try:
            await ask(cluster)
        except errors.BedplateError as err:
            _LOG.warning("head.clusters.not_kept_up", cluster=cluster, error=errors.describe(err))

    def _up(self, nodes: Iterable[str]) -> list[str]:
        return [node for node in nodes if self._health.state(node) == "UP"]

    async def _snapshot(self, cluster: str) -> None:
        tree, now = self._head.tree, self._clock.now()
        plan = plan_of(tree, cluster)
        if plan.every_s <= 0:
            return
        since = self._seen.setdefault(cluster, rfc3339(now))
        asked = [errand for errand in self._errands.list() if errand.cluster == cluster]
        known = self._snapshots.list(cluster)
        if len(known) > plan.keep > 0:
            gone = self._snapshots.prune(cluster, plan.keep)
            _LOG.info("head.clusters.snapshots_pruned", cluster=cluster, names=", ".join(gone))
        # A head that was just started waits one interval for clusters without a snapshot, not for others.
        if not snapshots_due(plan, "" if known else since, known, asked, now):
            return
        nodes = self._up(care.members(tree, cluster))
        if nodes:
            await self._ask([nodes[0]], Care(action="snapshot", cluster=cluster, snapshot=name_at(now)))

    async def _renew(self, cluster: str) -> None:
        tree = self._head.tree
        nodes = self._up(care.planes(tree, cluster))
        if not any(self._is_soon(node) for node in nodes):
            return
        asked = [errand for errand in self._errands.list() if errand.cluster == cluster]
        node = renewals_due([(node, self._is_soon(node)) for node in nodes], asked, self._clock.now())
        if node:
            await self._ask([node], Care(action="renew", cluster=cluster))

    def _is_soon(self, node: str) -> bool:
        condition = self._health.of(node)
        verdict = condition.checks.get(CERTIFICATES) if condition is not None else None
        return verdict is not None and verdict.last.status == "FAIL"

    async def _ask(self, nodes: Sequence[str], request: Care) -> None:
        work = care.work(self._head.tree, nodes, request)
        await self._errands.ask(nodes, "care", by=_BY, lasts_s=_LASTS_S, work=work)
