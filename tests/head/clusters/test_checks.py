"""The checks of a cluster against API servers: at their intervals, with history, and gone with the cluster."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import pathlib
from collections.abc import AsyncIterator

import pytest
from tests import servers
from tests.head import sites
from tests.head.committing import commit, commit_session
from tests.ui.rest.serving import KEY
from tests.waiting import until

from bedplate.api.headapi import Result
from bedplate.api.resources import LEASES, NODES, PODS, SERVICE_ACCOUNTS
from bedplate.core import errors
from bedplate.core.clock import ManualClock, SystemClock
from bedplate.head.clusters import judging
from bedplate.head.clusters.checks import ClusterChecks, due, host_of
from bedplate.head.clusters.service import Clusters
from bedplate.head.entities import SCHEMA
from bedplate.head.health import Health
from bedplate.head.kubeclusters import file_of
from bedplate.head.notices import Notices
from bedplate.head.objects import Obj
from bedplate.head.service import Head
from bedplate.head.session import Edit
from bedplate.head.vault import Vault
from bedplate.kube import Client
from bedplate.store.sqlite import SqliteStore


@dataclasses.dataclass
class Site:
    store: SqliteStore
    head: Head
    health: Health
    notices: Notices
    clock: ManualClock
    checks: ClusterChecks

    def status(self, check: str) -> str:
        condition = self.health.of(host_of("default"))
        return condition.checks[check].last.status if condition is not None and check in condition.checks else ""

    def info(self, check: str) -> str:
        condition = self.health.of(host_of("default"))
        assert condition is not None
        return condition.checks[check].last.info


@pytest.fixture
async def site(tmp_path: pathlib.Path) -> AsyncIterator[Site]:
    clock = ManualClock()
    async with (
        SqliteStore(tmp_path / "x.db", history_s=None) as store,
        Head(store, SCHEMA, Vault(KEY), clock=clock) as head,
        Notices(store, clock=clock) as notices,
        Health(store, clock=clock) as health,
    ):
        await commit(head, [Edit(mode, obj.key, None, obj) for mode, obj in sites.manual().objects()])
        checks = ClusterChecks("default", head, health, notices, clock)
        yield Site(store, head, health, notices, clock, checks)


@pytest.fixture
def server(own_server: servers.Server) -> servers.Server:
    """Checks look at all nodes and pods of a cluster, so that it must be this module's own."""
    return own_server


async def again(site: Site, client: Client) -> None:
    """The next round of checks."""
    await site.clock.advance(120.0)
    await site.checks.look(client)


async def ready(client: Client, name: str, status: str) -> None:
    condition = {"type": "Ready", "status": status, "reason": "KubeletNotReady"}
    await client.patch(NODES, name, {"status": {"conditions": [condition]}}, subresource="status")


async def test_item_158_the_check_fails_while_a_node_is_not_ready_and_recovers(site: Site, client: Client) -> None:
    await client.create(NODES.raw(), {"metadata": {"name": "checked"}})
    try:
        await ready(client, "checked", "False")
        await site.checks.look(client)
        assert site.status(judging.NODES) == "FAIL" and "checked (KubeletNotReady)" in site.info(judging.NODES)
        assert any(notice.host == "default" and judging.NODES in notice.text for notice in site.notices.latest())
        await ready(client, "checked", "True")
        await site.checks.look(client)
        assert site.status(judging.NODES) == "FAIL", "before its interval is over nothing is asked"
        await again(site, client)
        assert site.status(judging.NODES) == "PASS"
    finally:
        await client.delete(NODES, "checked")


async def test_item_159_the_check_fails_for_a_failed_pod_and_no_other(
    site: Site, client: Client, namespace: str
) -> None:
    spec = {"containers": [{"name": "c", "image": "x"}], "automountServiceAccountToken": False}
    with contextlib.suppress(errors.AlreadyExists):
        await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, namespace)
    for name, phase in (("a", "Failed"), ("b", "Pending"), ("c", "Succeeded")):
        await client.create(PODS.raw(), {"metadata": {"name": name}, "spec": spec}, namespace)
        await client.patch(PODS, name, {"status": {"phase": phase}}, namespace, subresource="status")
    await site.checks.look(client)
    assert (site.status(judging.PODS), site.info(judging.PODS)) == ("FAIL", f"{namespace}/a (Failed)")
    await client.delete(PODS, "a", namespace, grace_period_s=0)
    await again(site, client)
    assert site.status(judging.PODS) == "PASS"


async def test_item_160_the_check_fails_when_the_scheduler_no_longer_renews(site: Site, client: Client) -> None:
    lease = {"metadata": {"name": "kube-scheduler"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}
    await client.create(LEASES, lease, "kube-system")
    try:
        await site.checks.look(client)
        assert site.status(judging.COMPONENTS) == "PASS", site.info(judging.COMPONENTS)
        await again(site, client)
        assert site.status(judging.COMPONENTS) == "FAIL"
        assert "kube-scheduler has stopped" in site.info(judging.COMPONENTS)
        await client.patch(LEASES, "kube-scheduler", {"spec": {"holderIdentity": "b"}}, "kube-system")
        await again(site, client)
        # The controller manager of a real server renews by another clock than this test's.
        assert "kube-scheduler" not in site.info(judging.COMPONENTS)
    finally:
        await client.delete(LEASES, "kube-scheduler", "kube-system")


async def test_item_161_a_service_that_is_down_on_an_active_node_fails_the_check(site: Site, client: Client) -> None:
    down = Result(check=judging.CHILDREN, status="FAIL", info="containerd is not running")
    await site.health.record("node004", [down])
    await client.create(NODES.raw(), {"metadata": {"name": "node004"}})
    try:
        await site.checks.look(client)
        assert site.info(judging.CHILDREN) == "node004: containerd is not running"
        site.health.left("node004")
        await again(site, client)
        assert site.status(judging.CHILDREN) == "PASS"
    finally:
        await client.delete(NODES, "node004")


async def test_a_cluster_that_does_not_answer_fails_its_components_and_says_nothing_of_the_rest(
    site: Site, client: Client
) -> None:
    async with Client(dataclasses.replace(client.config, server="https://127.0.0.1:1")) as away:
        await site.checks.look(away)
    assert [site.status(name) for name in (judging.COMPONENTS, judging.NODES, judging.PODS)] == [
        "FAIL",
        "UNKNOWN",
        "UNKNOWN",
    ]
    assert "does not answer" in site.info(judging.COMPONENTS)


async def test_item_162_results_are_kept_with_their_times(site: Site, client: Client) -> None:
    for _ in range(3):
        await again(site, client)
    history = await site.health.history(host_of("default"), judging.NODES)
    assert len(history[judging.NODES]) == 3
    assert len({sample.time for sample in history[judging.NODES]}) == 3


async def test_item_157_a_check_that_is_disabled_is_forgotten_and_others_have_their_intervals(
    site: Site, client: Client
) -> None:
    await site.checks.look(client)
    assert set(due(site.head.tree)) == set(judging.NAMES)
    edits = [
        Edit("healthcheck", judging.PODS, None, Obj("HealthCheck", judging.PODS, {"enabled": False})),
        Edit("healthcheck", judging.NODES, None, Obj("HealthCheck", judging.NODES, {"interval": 600.0})),
    ]
    await commit(site.head, edits)
    assert due(site.head.tree) == {judging.CHILDREN: 120.0, judging.COMPONENTS: 120.0, judging.NODES: 600.0}
    await again(site, client)
    condition = site.health.of(host_of("default"))
    assert condition is not None and judging.PODS not in condition.checks
    counts = {name: verdict.last.count for name, verdict in condition.checks.items()}
    assert counts == {judging.CHILDREN: 1, judging.COMPONENTS: 1, judging.NODES: 0}


async def test_item_157_the_checks_come_with_a_kubeconfig_and_go_with_the_cluster(
    tmp_path: pathlib.Path, server: servers.Server
) -> None:
    file = file_of(tmp_path, "default")
    file.parent.mkdir()
    async with (
        SqliteStore(tmp_path / "y.db", history_s=None) as store,
        Head(store, SCHEMA, Vault(KEY)) as head,
        Notices(store) as notices,
        Health(store) as health,
    ):
        await commit(head, [Edit(mode, obj.key, None, obj) for mode, obj in sites.manual().objects()])
        clusters = await Clusters(store, head, notices, health, tmp_path, clock=SystemClock()).open()
        assert clusters.state("default").checks == [] and not clusters.state("default").reached
        file.write_bytes(pathlib.Path(server.kubeconfig).read_bytes())
        running = asyncio.create_task(clusters.run())
        try:
            await until(lambda: len(clusters.state("default").checks) == 4)
            assert {check.check for check in clusters.state("default").checks} == set(judging.NAMES)
            session = head.session()
            for name in ("kube-default-master", "kube-default-worker"):
                session.put(("configurationoverlay", name), None)
            session.put(("kubernetes", "default"), None)
            await commit_session(head, session)
            await until(lambda: health.of(host_of("default")) is None)
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
        with pytest.raises(errors.NotFound):
            clusters.state("default")
