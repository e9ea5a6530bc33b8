"""The cloud node lifecycle controller on both API servers: deletion, the brake on mass deletion, taints of stopped
machines, foreign nodes, and what the last check before a deletion prevents."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.cloud.controllers.nodecluster import TAINT, NodeCluster
from tests.cloud.scripted import FAULTS, ScriptedProvider
from tests.waiting import until

from bedplate.api import core
from bedplate.api.resources import NODES
from bedplate.cloud.labels import LABEL_EXCLUDE_FROM_LIFECYCLE

SHUTDOWN = ("node.cloudprovider.kubernetes.io/shutdown", "", "NoSchedule")
OUT_OF_SERVICE = ("node.kubernetes.io/out-of-service", "nodeshutdown", "NoExecute")


def shown(node: core.Node) -> list[tuple[str, str, str]]:
    return [(taint.key, taint.value, taint.effect) for taint in node.spec.taints]


async def fill(cluster: NodeCluster, count: int, *, scheme: str = "fake") -> None:
    """Ready nodes, so that one absent node among them does not trip the brake."""
    await asyncio.gather(
        *(
            cluster.join(f"full{number}", taints=(), spec={"providerID": f"{scheme}://full{number}"})
            for number in range(count)
        )
    )


async def asked(cluster: NodeCluster, short: str, times: int) -> None:
    """Wait until the cloud was asked that often more whether a node exists."""
    wanted = cluster.cloud.asked("exists", cluster.name(short)) + times
    await until(lambda: cluster.cloud.asked("exists", cluster.name(short)) >= wanted)


def gone(cluster: NodeCluster, short: str) -> Callable[[], Awaitable[bool]]:
    async def is_gone() -> bool:
        return not await cluster.exists(short)

    return is_gone


async def test_not_ready_and_absent_twice_is_deleted_with_its_uid(cluster: NodeCluster) -> None:
    await fill(cluster, 4)
    node = await cluster.join("a", taints=(), ready="False", spec={"providerID": "fake://a"})
    async with cluster.lifecycle():
        await until(gone(cluster, "a"))
        (event,) = await until(lambda: cluster.events("a", "DeletingNode"))
        await until(lambda: cluster.registry.get_sample_value("ccm_node_deletions_total") == 1)
    assert event.type == "Normal"
    assert event.message == f"Deleting node {node.name} because it does not exist in the cloud provider"
    assert event.source.component == "cloud-node-lifecycle-controller"
    about = event.involved_object
    assert (about.kind, about.api_version, about.name, about.uid) == ("Node", "v1", node.name, node.metadata.uid)
    (write,) = cluster.writes("a")
    assert write[0] == "DELETE"
    assert write[2]["preconditions"]["uid"] == node.metadata.uid
    questions = [call for call in cluster.cloud.calls if call[:2] == ("exists", node.name)]
    assert [fresh for _, _, fresh in questions] == [False, True]
    assert not [call for call in cluster.cloud.calls if call[1] != node.name], "ready nodes are never asked about"


@pytest.mark.parametrize("kind", sorted(FAULTS))
async def test_an_error_is_never_absence(cluster: NodeCluster, kind: str) -> None:
    await fill(cluster, 4)
    await cluster.join("a", taints=(), ready="Unknown", spec={"providerID": "fake://a"})
    cluster.cloud.fault = lambda operation, node: FAULTS[kind]()
    async with cluster.lifecycle(node_monitor_period_s=0.02):
        await asked(cluster, "a", 8)
        assert await cluster.exists("a")
    assert not cluster.writes("a")


async def test_one_absence_between_errors_deletes_nothing(cluster: NodeCluster) -> None:
    await fill(cluster, 4)
    await cluster.join("a", taints=(), ready="False", spec={"providerID": "fake://a"})
    count = 0

    def alternate(operation: str, node: core.Node) -> Exception | None:
        nonlocal count
        count += 1
        return FAULTS["500"]() if count % 2 else None

    cluster.cloud.fault = alternate
    async with cluster.lifecycle(node_monitor_period_s=0.02):
        await asked(cluster, "a", 12)
        assert await cluster.exists("a")
    assert not cluster.writes("a")


async def test_a_node_that_joins_again_under_its_name_is_not_the_one_judged(cluster: NodeCluster) -> None:
    await fill(cluster, 4)
    await cluster.join("a", taints=(), ready="False", spec={"providerID": "fake://a"})
    replaced: list[core.Node] = []

    async def replace(method: str, path: str) -> None:
        if method == "DELETE" and not replaced:
            await cluster.client.delete(NODES, cluster.name("a"))
            replaced.append(await cluster.join("a", taints=(), spec={"providerID": "fake://a"}))

    cluster.own.before = replace
    async with cluster.lifecycle():
        await until(lambda: bool(replaced))
        await asked_for_ready(cluster)
        assert (await cluster.get("a")).metadata.uid == replaced[0].metadata.uid


async def asked_for_ready(cluster: NodeCluster) -> None:
    """Let a few passes go by: those that another node makes visible."""
    cluster.cloud.add("witness")
    await cluster.join("witness", taints=(), ready="False", spec={"providerID": "fake://witness"})
    await asked(cluster, "witness", 3)


async def test_a_node_that_turned_ready_meanwhile_is_spared(cluster: NodeCluster) -> None:
    await fill(cluster, 4)
    await cluster.join("a", taints=(), ready="False", spec={"providerID": "fake://a"})
    turned = False

    async def turn(method: str, path: str) -> None:
        nonlocal turned
        if method == "DELETE" and not turned:
            turned = True
            await cluster.report("a", "True")

    cluster.own.before = turn
    async with cluster.lifecycle():
        await until(lambda: turned)
        await asked_for_ready(cluster)
        assert await cluster.exists("a")
    assert cluster.registry.get_sample_value("ccm_node_deletions_total") == 0


async def test_a_failed_deletion_is_told_and_tried_again(cluster: NodeCluster) -> None:
    await fill(cluster, 4)
    await cluster.join("a", taints=(), ready="False", spec={"providerID": "fake://a"})
    failures = 2

    async def fail(method: str, path: str) -> None:
        nonlocal failures
        if method == "DELETE" and failures:
            failures -= 1
            raise FAULTS["503"]()

    cluster.own.before = fail
    async with cluster.lifecycle():
        await until(gone(cluster, "a"))
        (event,) = await until(lambda: cluster.events("a", "DeletingNodeFailed"))
        assert event.type == "Warning"
        assert "503" in event.message


async def test_young_nodes_are_given_time(cluster: NodeCluster) -> None:
    await fill(cluster, 4)
    await cluster.join("a", ready="False")
    async with cluster.lifecycle(node_monitor_period_s=0.02, node_startup_grace_period_s=3600.0):
        await asked(cluster, "a", 8)
        assert await cluster.exists("a")
    assert not cluster.writes("a")
    assert cluster.registry.get_sample_value("ccm_node_deletions_blocked_total", {"reason": "grace"})
    async with cluster.lifecycle(node_monitor_period_s=0.1, node_startup_grace_period_s=0.5):
        await until(gone(cluster, "a"))


@pytest.mark.parametrize("value", ["", "true", "x", "false"])
async def test_excluded_nodes_are_left_alone(cluster: NodeCluster, value: str) -> None:
    await fill(cluster, 4)
    labels = {LABEL_EXCLUDE_FROM_LIFECYCLE: value}
    await cluster.join("a", taints=(), ready="False", metadata={"labels": labels}, spec={"providerID": "fake://a"})
    async with cluster.lifecycle(node_monitor_period_s=0.1):
        if value == "false":
            await until(gone(cluster, "a"))
            return
        await asked_for_ready(cluster)
        assert await cluster.exists("a")
    assert not cluster.writes("a")
    assert not cluster.cloud.asked("exists", cluster.name("a"))


async def test_many_absent_at_once_are_all_kept(cluster: NodeCluster) -> None:
    await fill(cluster, 7)
    for number in range(3):
        await cluster.join(f"g{number}", taints=(), ready="False", spec={"providerID": f"fake://g{number}"})
    async with cluster.lifecycle(node_monitor_period_s=0.1):
        for number in range(3):
            (event,) = await until(lambda short=f"g{number}": cluster.events(short, "NodeDeletionBlocked"))
            assert event.type == "Warning"
            assert "3 of the 10 managed nodes" in event.message
        await asked(cluster, "g0", 6)
        assert all([await cluster.exists(f"g{number}") for number in range(3)])
        blocked = cluster.registry.get_sample_value("ccm_node_deletions_blocked_total", {"reason": "brake"})
        assert blocked is not None
        assert blocked >= 3
        assert not [write for write in cluster.own.writes if write[0] == "DELETE"]
        cluster.cloud.add("g0")
        await until(gone(cluster, "g1"))
        await until(gone(cluster, "g2"))
        assert await cluster.exists("g0")


async def test_two_of_nine_are_deleted_after_the_hold(cluster: NodeCluster) -> None:
    await fill(cluster, 7)
    for number in range(2):
        await cluster.join(f"g{number}", taints=(), ready="False", spec={"providerID": f"fake://g{number}"})
    cluster.cloud.add("full0")
    async with cluster.lifecycle(node_monitor_period_s=0.1, mass_deletion_hold_s=1.5):
        told = await until(lambda: cluster.events("g0", "NodeDeletionBlocked"))
        assert "opens by itself" in told[-1].message
        await until(gone(cluster, "g0"))
        await until(gone(cluster, "g1"))
        # A node is gone before the answer to its deletion has come back.
        await until(lambda: cluster.registry.get_sample_value("ccm_node_deletions_total") == 2)


async def test_a_small_clouds_total_loss_is_noticed_beside_a_large_one(cluster: NodeCluster) -> None:
    await fill(cluster, 12)
    small = ScriptedProvider("small")
    for number in range(2):
        await cluster.join(f"s{number}", taints=(), ready="False", spec={"providerID": f"small://s{number}"})
    async with cluster.lifecycle(cluster.clouds(small), node_monitor_period_s=0.1):
        await until(lambda: cluster.events("s0", "NodeDeletionBlocked"))
        await until(lambda: small.asked("exists") > 8)
        assert await cluster.exists("s0")
        assert await cluster.exists("s1")


async def test_a_stopped_machine_is_tainted_until_its_node_is_ready(cluster: NodeCluster) -> None:
    machine = cluster.cloud.add("a", is_off=True)
    mine = {"key": "mine", "effect": "NoSchedule"}
    await cluster.join("a", taints=(mine,), ready="False", spec={"providerID": "fake://a"})

    async def is_tainted() -> bool:
        return SHUTDOWN in shown(await cluster.get("a"))

    async def is_clean() -> bool:
        return shown(await cluster.get("a")) == [("mine", "", "NoSchedule")]

    async with cluster.lifecycle(node_monitor_period_s=0.1):
        await until(is_tainted)
        await asked(cluster, "a", 4)
        assert len(cluster.writes("a")) == 1
        machine.is_off = False
        await asked(cluster, "a", 3)
        assert await is_tainted(), "only being ready takes the taint away"
        await cluster.report("a", "True")
        await until(is_clean)
    assert len(cluster.writes("a")) == 2
    assert all(write[2]["metadata"]["resourceVersion"] for write in cluster.writes("a"))


async def test_out_of_service_is_added_when_asked_for_and_goes_with_the_other(cluster: NodeCluster) -> None:
    cluster.cloud.add("a", is_off=True)
    await cluster.join("a", taints=(), ready="False", spec={"providerID": "fake://a"})

    async def has_both() -> bool:
        return set(shown(await cluster.get("a"))) == {SHUTDOWN, OUT_OF_SERVICE}

    async def is_clean() -> bool:
        return not shown(await cluster.get("a"))

    async with cluster.lifecycle(node_monitor_period_s=0.1, node_out_of_service_taint=True):
        await until(has_both)
        await cluster.report("a", "True")
        await until(is_clean)
    assert len(cluster.writes("a")) == 3


async def test_a_conflicting_taint_is_decided_anew(cluster: NodeCluster) -> None:
    cluster.cloud.add("a", is_off=True)
    await cluster.join("a", taints=(), ready="False", spec={"providerID": "fake://a"})
    disturbed = False

    async def disturb(method: str, path: str) -> None:
        nonlocal disturbed
        if not disturbed:
            disturbed = True
            body = {"spec": {"taints": [{"key": "other", "effect": "NoSchedule"}]}}
            await cluster.client.patch(NODES, cluster.name("a"), body)

    async def has_both() -> bool:
        return set(shown(await cluster.get("a"))) == {SHUTDOWN, ("other", "", "NoSchedule")}

    cluster.own.before = disturb
    async with cluster.lifecycle():
        await until(has_both)


async def test_foreign_nodes_are_not_touched(cluster: NodeCluster) -> None:
    cluster.cloud.foreign["fake://theirs"] = "another organisation"
    foreign = {"aws": "aws:///eu-1a/i-1", "org": "fake://theirs"}
    labels = {"failure-domain.beta.kubernetes.io/zone": "z"}
    for short, provider_id in foreign.items():
        spec = {"providerID": provider_id}
        await cluster.join(short, ready="False", metadata={"labels": labels}, spec=spec)
    before = [await cluster.get(short) for short in foreign]
    async with cluster.node_controller(node_status_update_frequency_s=0.1), cluster.lifecycle():
        await asked_for_ready(cluster)
        after = [await cluster.get(short) for short in foreign]
    assert [one.metadata.resource_version for one in after] == [one.metadata.resource_version for one in before]
    assert not [call for call in cluster.cloud.calls if not call[1].startswith("witness")]
    assert cluster.registry.get_sample_value("ccm_unmanaged_nodes") == 2


async def test_a_name_that_any_cloud_knows_keeps_its_node(cluster: NodeCluster) -> None:
    other = ScriptedProvider("other")
    other.add("i-1", cluster.name("known"))
    down = ScriptedProvider("down")
    await fill(cluster, 8)
    for short in ("known", "unknown"):
        await cluster.join(short, taints=(), ready="False")
    async with cluster.lifecycle(cluster.clouds(other, down), node_monitor_period_s=0.1):
        await until(gone(cluster, "unknown"))
        await until(lambda: other.asked("exists", cluster.name("known")) > 5)
        assert await cluster.exists("known")


async def test_a_name_is_absent_only_when_every_cloud_says_so(cluster: NodeCluster) -> None:
    down = ScriptedProvider("down")
    down.fault = lambda operation, node: FAULTS["503"]()
    await fill(cluster, 8)
    await cluster.join("a", taints=(TAINT,), ready="False")
    async with cluster.lifecycle(cluster.clouds(down), node_monitor_period_s=0.1):
        await until(lambda: down.asked("exists", cluster.name("a")) > 6)
        assert await cluster.exists("a")


async def test_a_hanging_cloud_does_not_delay_another_clouds_nodes(cluster: NodeCluster) -> None:
    hung = ScriptedProvider("hung")
    hung.hold.clear()
    await fill(cluster, 6)
    await cluster.join("h", taints=(), ready="False", spec={"providerID": "hung://h"})
    await cluster.join("a", taints=(), ready="False", spec={"providerID": "fake://a"})
    async with cluster.lifecycle(cluster.clouds(hung)):
        await until(gone(cluster, "a"))
        assert hung.asked("exists") == 1
        assert await cluster.exists("h")
