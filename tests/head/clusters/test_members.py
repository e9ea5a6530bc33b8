"""Nodes that leave are held at what they were, asked to reset themselves, and let go; whoever of the heads ends."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.head.clusters import kubesites
from tests.head.clusters.kubesites import PLANES, WORKERS
from tests.head.committing import commit, commit_session
from tests.ui.rest.serving import KEY

from bedplate.api.headapi import ErrandState, ErrandTold
from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.head.clusters.joining import ClusterNodes
from bedplate.head.clusters.membership import LIFECYCLE, MANAGED, PAUSED, Membership
from bedplate.head.clusters.snapshots import Snapshots
from bedplate.head.clusters.upkeep import Upkeep
from bedplate.head.entities import SCHEMA
from bedplate.head.fleet import Fleet
from bedplate.head.health import Health
from bedplate.head.notices import Notices
from bedplate.head.policy import Identity
from bedplate.head.service import Head
from bedplate.head.session import Edit, Session
from bedplate.head.tokens import Tokens
from bedplate.head.vault import Vault
from bedplate.store.sqlite import SqliteStore

NODES = ("node001", "node002", "node003")


@dataclasses.dataclass
class Site:
    store: SqliteStore
    head: Head
    health: Health
    notices: Notices
    fleet: Fleet
    clock: ManualClock

    def state(self, node: str) -> str:
        known = self.fleet.members.book.get(node)
        return known.state if known is not None else ""

    def revision_of(self, node: str) -> int:
        """The revision whose tree counts for a node."""
        return self.fleet.wants.tree(node)[1]

    async def report(self, *nodes: str) -> None:
        for node in nodes:
            await self.health.record(node, applied=self.revision_of(node), digest=self.fleet.wants.digest(node))

    async def kubeadm(self, node: str, action: str, state: str = "done") -> None:
        """A node carries out what it was asked for."""
        waiting = [
            item for item in self.fleet.errands.list([node]) if item.state == "waiting" and item.action == action
        ]
        if not waiting:
            work = {node: {"action": action, "cluster": "default"}}
            waiting = list(await self.fleet.errands.ask([node], "kubeadm", by="test", lasts_s=60.0, work=work))
        for item in waiting:
            await self.fleet.errands.told(node, [ErrandTold(id=item.id, state="accepted")])
            await self.fleet.errands.told(node, [ErrandTold(id=item.id, state=state)])  # type: ignore[arg-type]

    def asked(self, node: str) -> list[ErrandState]:
        return [item for item in self.fleet.errands.list([node]) if item.state == "waiting"]

    async def overlay(self, name: str, *nodes: str) -> None:
        session = Session(self.head.tree)
        session.set(("configurationoverlay", name), "nodes", ",".join(nodes))
        await commit_session(self.head, session)


@contextlib.asynccontextmanager
async def opened(folder: pathlib.Path, clock: ManualClock) -> AsyncIterator[Site]:
    async with (
        SqliteStore(folder / "x.db", history_s=None) as store,
        Head(store, SCHEMA, Vault(KEY), clock=clock) as head,
        Notices(store, clock=clock) as notices,
        Health(store, clock=clock) as health,
    ):
        if not head.revision:
            tree = kubesites.tree()
            await commit(head, [Edit(mode, obj.key, None, obj) for mode, obj in tree.objects()])
        fleet = Fleet(store, head, Tokens(store, clock=clock), notices, health, clock=clock)
        await fleet.open()
        yield Site(store, head, health, notices, fleet, clock)


@pytest.fixture
async def site(tmp_path: pathlib.Path) -> AsyncIterator[Site]:
    async with opened(tmp_path, ManualClock()) as made:
        for node in NODES:
            await made.kubeadm(node, "init" if node == "node001" else "join")
        await made.report(*NODES)
        yield made


async def test_who_joined_is_known_from_the_end_of_kubeadm(site: Site) -> None:
    assert [site.state(node) for node in NODES] == ["joined"] * 3
    await site.kubeadm("node004", "join", "failed")
    assert site.state("node004") == ""
    await site.kubeadm("node003", "reset")
    assert site.state("node003") == ""


async def test_item_110_a_node_that_loses_its_role_keeps_its_files_until_it_was_reset(site: Site) -> None:
    before, digest = site.head.revision, site.fleet.wants.digest("node003")
    await site.overlay(WORKERS, "node002")
    assert (site.state("node003"), site.revision_of("node003")) == ("draining", before)
    assert site.fleet.wants.digest("node003") == digest
    assert site.revision_of("node002") == site.head.revision
    (late,) = (await site.fleet.progress.of(site.head.revision)).nodes
    assert (late.node, late.state, late.text) == ("node003", "held", "is draining")
    await site.fleet.members.look()
    assert site.asked("node003") == []
    # The cluster's part is done: it is drained.
    members = site.fleet.members
    await members.move("node003", Membership("default", "resetting", before, uid="u", since="2026-01-01T00:00:00Z"))
    await members.look()
    (errand,) = site.asked("node003")
    assert (errand.kind, errand.action, errand.cluster) == ("kubeadm", "reset", "default")
    freed: list[str] = []
    members.listeners.append(freed.extend)
    await site.kubeadm("node003", "reset")
    await members.look()
    assert (site.state("node003"), freed) == ("deleting", ["node003"])
    assert site.revision_of("node003") == site.head.revision
    assert site.fleet.wants.digest("node003") != digest


async def test_a_reset_that_fails_is_tried_again_after_a_while(site: Site) -> None:
    await site.overlay(WORKERS, "node002")
    known = site.fleet.members.book.get("node003")
    assert known is not None
    await site.fleet.members.move("node003", Membership("default", "resetting", known.base, since=known.since))
    await site.fleet.members.look()
    await site.kubeadm("node003", "reset", "failed")
    await site.fleet.members.look()
    assert site.asked("node003") == []
    site.clock.jump(61.0)
    await site.report("node003")
    await site.fleet.members.look()
    assert len(site.asked("node003")) == 1


async def test_a_commit_that_would_destroy_the_cluster_is_refused_and_nothing_is_held(site: Site) -> None:
    before = site.head.revision
    with pytest.raises(errors.Invalid) as caught:
        await site.overlay(PLANES)
    assert "the last control plane node" in str(caught.value.problems)
    assert (site.head.revision, site.state("node001")) == (before, "joined")
    session = Session(site.head.tree)
    session.remove(("device", "node003"))
    session.set(("configurationoverlay", WORKERS), "nodes", "node002")
    with pytest.raises(errors.Invalid, match="Kubernetes cluster is in the way"):
        await site.head.check_as(Identity.local("test"), session.edits())


class _Untouched:
    """A client of a cluster that must not be asked."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"the cluster was asked: {name}")


async def _set_lifecycle(site: Site, value: str) -> None:
    session = Session(site.head.tree)
    session.set_extra(("kubernetes", "default"), LIFECYCLE, value)
    await commit_session(site.head, session)


async def test_nobody_joins_or_leaves_while_a_cluster_is_restored_or_upgraded(
    site: Site, tmp_path: pathlib.Path
) -> None:
    cluster = ClusterNodes("default", site.head, site.fleet.members, site.fleet.progress, site.clock)
    upkeep = Upkeep(site.head, site.health, site.fleet.errands, Snapshots(tmp_path), site.clock)
    client: Any = _Untouched()
    await upkeep.look()
    await _set_lifecycle(site, PAUSED)
    await site.overlay(WORKERS, "node002", "node004")
    known = site.fleet.members.book.get("node003")
    assert known is not None and known.state == "draining"
    await cluster.look(client)
    await site.fleet.members.move("node003", Membership("default", "resetting", known.base, since=known.since))
    site.clock.jump(100_000.0)
    await site.report(*NODES, "node004")
    await site.fleet.members.look()
    await upkeep.look()
    assert [site.asked(node) for node in (*NODES, "node004")] == [[]] * 4
    told = site.fleet.members.book.get("node003")
    assert told is not None and "is being restored or upgraded" in told.text
    await _set_lifecycle(site, MANAGED)
    with pytest.raises(AssertionError, match="the cluster was asked"):
        await cluster.look(client)
    await site.fleet.members.look()
    await upkeep.look()
    assert [item.action for item in site.asked("node003")] == ["reset"]
    assert [item.care for item in site.asked("node001")] == ["snapshot"]


def _removed(head: Head, mode: str, key: str) -> Edit:
    return Edit(mode, key, head.tree.get((mode, key)), None)


async def test_a_removed_clusters_node_that_was_down_is_reset_when_it_is_back(site: Site) -> None:
    session = Session(site.head.tree)
    session.set_extra(("kubernetes", "default"), LIFECYCLE, None)
    await commit_session(site.head, session)
    for node in ("node001", "node002"):
        await site.kubeadm(node, "reset")
    await site.clock.advance(3600.0)
    await site.report("node001", "node002")
    base = site.head.revision
    for overlay in (PLANES, WORKERS, kubesites.ETCD):
        await commit(site.head, [_removed(site.head, "configurationoverlay", overlay)])
    await commit(site.head, [_removed(site.head, "kubernetes", "default")])
    await site.fleet.members.look()
    assert (site.state("node003"), site.revision_of("node003")) == ("resetting", base + 1)
    assert site.asked("node003") == []
    progress = await site.fleet.progress.of(base + 2)
    assert [(node.node, node.state) for node in progress.nodes if node.node == "node003"] == [("node003", "DOWN")]
    assert progress.is_settled or all(node.node != "node003" for node in progress.nodes if node.state == "held")
    told = [notice.text for notice in site.notices.latest(host="node003")]
    assert any("it is down; it is reset when it is back" in text for text in told)
    await site.report("node003")
    await site.fleet.members.look()
    assert [item.action for item in site.asked("node003")] == ["reset"]
    await site.kubeadm("node003", "reset")
    await site.fleet.members.look()
    assert (site.state("node003"), site.revision_of("node003")) == ("", site.head.revision)


async def test_another_head_holds_whom_this_one_held(site: Site) -> None:
    before = site.head.revision
    await site.overlay(WORKERS, "node002")
    fleet = Fleet(
        site.store, site.head, Tokens(site.store, clock=site.clock), site.notices, site.health, clock=site.clock
    )
    await fleet.open()
    assert fleet.wants.tree("node003")[1] == before


async def test_a_commit_that_was_never_written_lets_the_node_go(site: Site) -> None:
    async def refuse(before: object, after: object, revision: int) -> None:
        raise errors.Unavailable("the store is away")

    site.head.holders.append(refuse)
    with pytest.raises(errors.Unavailable):
        await site.overlay(WORKERS, "node002")
    site.head.holders.remove(refuse)
    await site.fleet.members.look()
    assert site.state("node003") == "draining"
    site.clock.jump(31.0)
    await site.fleet.members.look()
    assert site.state("node003") == "returning"
    assert site.revision_of("node003") == site.head.revision


async def test_a_role_that_was_lost_while_no_head_served_is_noticed(site: Site) -> None:
    before = site.head.revision
    site.head.holders.clear()
    await site.overlay(WORKERS, "node002")
    await site.overlay(WORKERS, "node002", "node005")
    await site.fleet.members.look()
    assert (site.state("node003"), site.revision_of("node003")) == ("draining", before)
