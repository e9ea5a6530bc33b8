"""The cloud node controller on both API servers: initialisation, provider IDs, node IPs, labels, dual stack,
and clouds that disagree or hang."""

from __future__ import annotations

import pytest
from tests.cloud.controllers.nodecluster import TAINT, NodeCluster
from tests.cloud.scripted import FAULTS, ScriptedProvider
from tests.waiting import until

from bedplate.api import core
from bedplate.api.names import ANNOTATION_PROVIDED_NODE_IP, TAINT_UNINITIALIZED
from bedplate.api.resources import NODES
from bedplate.cloud.interface import Address

DUAL = (
    Address("InternalIP", "10.0.0.5"),
    Address("InternalIP", "fd00::5"),
    Address("ExternalIP", "1.2.3.4"),
    Address("Hostname", "h"),
)
SIX = {
    "beta.kubernetes.io/instance-type": "small",
    "node.kubernetes.io/instance-type": "small",
    "failure-domain.beta.kubernetes.io/zone": "zone-a",
    "topology.kubernetes.io/zone": "zone-a",
    "failure-domain.beta.kubernetes.io/region": "region-1",
    "topology.kubernetes.io/region": "region-1",
}


def is_tainted(node: core.Node) -> bool:
    return any(taint.key == TAINT_UNINITIALIZED for taint in node.spec.taints)


def listed(node: core.Node) -> list[tuple[str, str]]:
    return [(one.type, one.address) for one in node.status.addresses]


async def settle(cluster: NodeCluster, short: str, operation: str, more: int) -> None:
    """Wait until the cloud was asked that often again."""
    wanted = cluster.cloud.asked(operation, cluster.name(short)) + more

    async def is_asked() -> bool:
        return cluster.cloud.asked(operation, cluster.name(short)) >= wanted

    await until(is_asked)


async def test_one_write_initialises_then_the_status_and_an_event(cluster: NodeCluster) -> None:
    other = {"key": "mine", "value": "1", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z"}
    cluster.cloud.add("i-1", cluster.name("a"), addresses=DUAL, labels={"example.com/rack": "4"})
    seen: list[core.Node] = []
    async with cluster.node_controller():
        cluster.nodes.on_change(lambda change: seen.append(change.new))
        await cluster.join("a", taints=(TAINT, other))
        node = await cluster.initialised("a")
    assert node.spec.provider_id == "fake://i-1"
    assert [(taint.key, taint.value, taint.effect) for taint in node.spec.taints] == [("mine", "1", "NoExecute")]
    assert node.spec.taints[0].time_added is not None
    assert {key: node.metadata.labels.get(key) for key in SIX} == SIX
    assert node.metadata.labels["example.com/rack"] == "4"
    assert listed(node) == [(one.type, one.address) for one in DUAL]
    (first, second) = cluster.writes("a")
    assert first[:2] == ("PATCH", f"/api/v1/nodes/{node.name}")
    assert first[2]["metadata"]["resourceVersion"]
    assert second[:2] == ("PATCH", f"/api/v1/nodes/{node.name}/status")
    for one in seen:
        assert one is None or is_tainted(one) or one.spec.provider_id, "untainted without a provider ID"
    (event,) = await cluster.events("a", "Synced")
    assert (event.type, event.message) == ("Normal", "Node synced successfully")
    assert event.source.component == "cloud-node-controller"
    assert event.involved_object.uid == node.metadata.uid
    for metric in ("cloud_provider_taint_removal_delay", "initial_node_sync_delay"):
        assert cluster.registry.get_sample_value(f"node_controller_{metric}_seconds_count") == 1


async def test_a_conflict_is_decided_anew_and_told_once(cluster: NodeCluster) -> None:
    cluster.cloud.add("i-1", cluster.name("a"))
    disturbed = False

    async def disturb(method: str, path: str) -> None:
        nonlocal disturbed
        if path.endswith(cluster.name("a")) and not disturbed:
            disturbed = True
            labels = {"metadata": {"labels": {"somebody": "else"}}}
            await cluster.client.patch(NODES, cluster.name("a"), labels)

    cluster.own.before = disturb
    async with cluster.node_controller():
        await cluster.join("a")
        node = await cluster.initialised("a")
    assert node.metadata.labels["somebody"] == "else"
    assert node.spec.provider_id == "fake://i-1"
    assert len([one for one in cluster.writes("a") if not one[1].endswith("/status")]) == 2
    assert [event.count for event in await cluster.events("a", "Synced")] == [1]


async def test_addresses_that_could_not_be_written_are_owed(cluster: NodeCluster) -> None:
    cluster.cloud.add("i-1", cluster.name("a"), addresses=DUAL)
    failures = 3

    async def fail(method: str, path: str) -> None:
        nonlocal failures
        if path.endswith("/status") and failures:
            failures -= 1
            raise TimeoutError

    cluster.own.before = fail
    async with cluster.node_controller(node_status_update_frequency_s=3600):
        await cluster.join("a")
        node = await cluster.initialised("a")
    assert len(listed(node)) == 4
    assert [event.count for event in await cluster.events("a", "Synced")] == [1]


@pytest.mark.parametrize("kind", sorted(FAULTS))
async def test_while_the_cloud_fails_the_taint_stays(cluster: NodeCluster, kind: str) -> None:
    cluster.cloud.add("i-1", cluster.name("a"))
    cluster.cloud.fault = lambda operation, node: FAULTS[kind]()
    async with cluster.node_controller(node_status_update_frequency_s=0.1):
        await cluster.join("a")
        await settle(cluster, "a", "metadata", 5)
        node = await cluster.get("a")
    assert is_tainted(node)
    assert not node.spec.provider_id
    assert not cluster.writes("a")
    assert not await cluster.events("a", "Synced")


async def test_it_recovers_by_itself(cluster: NodeCluster) -> None:
    cluster.cloud.add("i-1", cluster.name("a"))
    cluster.cloud.fault = lambda operation, node: FAULTS["503"]()
    async with cluster.node_controller():
        await cluster.join("a")
        await settle(cluster, "a", "metadata", 4)
        cluster.cloud.fault = lambda operation, node: None
        assert (await cluster.initialised("a")).spec.provider_id == "fake://i-1"


async def test_without_any_provider_id_the_taint_stays(cluster: NodeCluster) -> None:
    cluster.cloud.add("i-1", cluster.name("a"))
    cluster.cloud.add("i-2", cluster.name("b"))
    cluster.cloud.gives_no_id = True
    async with cluster.node_controller():
        await cluster.join("a")
        await cluster.join("b", spec={"providerID": "fake://i-2"})
        await cluster.initialised("b")
        await settle(cluster, "a", "metadata", 3)
    assert is_tainted(await cluster.get("a"))
    assert not cluster.writes("a")


async def test_no_metadata_means_nothing_to_do_also_when_refreshing(cluster: NodeCluster) -> None:
    cluster.cloud.add("i-1", cluster.name("a"))
    cluster.cloud.add("i-2", cluster.name("b"))
    cluster.cloud.gives_none = True
    async with cluster.node_controller(node_status_update_frequency_s=0.1):
        await cluster.join("a")
        await cluster.join("b", taints=(), spec={"providerID": "fake://i-2"})
        await settle(cluster, "b", "metadata", 4)
        assert is_tainted(await cluster.get("a"))
        assert not cluster.writes("a")
        assert not cluster.writes("b")
        cluster.cloud.gives_none = False
        await cluster.initialised("a")


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("10.0.0.5", [DUAL[0], DUAL[2], DUAL[3]]),
        ("10.0.0.5,fd00::5", list(DUAL)),
        ("fd00::5,10.0.0.5", [DUAL[1], DUAL[0], DUAL[2], DUAL[3]]),
        ("10.9.9.9", None),
        ("10.0.0.5,10.0.0.6", None),
        ("10.0.0.5, fd00::5", None),
    ],
)
async def test_provided_node_ip(cluster: NodeCluster, annotation: str, expected: list[Address] | None) -> None:
    cluster.cloud.add("i-1", cluster.name("a"), addresses=DUAL)
    async with cluster.node_controller():
        await cluster.join("a", metadata={"annotations": {ANNOTATION_PROVIDED_NODE_IP: annotation}})
        if expected is None:
            (event,) = await until(lambda: cluster.events("a", "InvalidNodeIP"))
            assert event.type == "Warning"
            assert is_tainted(await cluster.get("a"))
            fixed = {"metadata": {"annotations": {ANNOTATION_PROVIDED_NODE_IP: "10.0.0.5"}}}
            await cluster.client.patch(NODES, cluster.name("a"), fixed)
            expected = [DUAL[0], DUAL[2], DUAL[3]]
        node = await cluster.initialised("a")
    assert listed(node) == [(one.type, one.address) for one in expected]


async def test_new_labels_follow_old_ones_at_once(cluster: NodeCluster) -> None:
    async with cluster.node_controller(node_status_update_frequency_s=3600):
        await cluster.join("a", taints=(), spec={"providerID": "fake://unknown"})
        old = {"failure-domain.beta.kubernetes.io/zone": "z1", "beta.kubernetes.io/instance-type": "t1"}
        await cluster.client.patch(NODES, cluster.name("a"), {"metadata": {"labels": old}})

        async def followed() -> bool:
            labels = (await cluster.get("a")).metadata.labels
            return labels.get("topology.kubernetes.io/zone") == "z1"

        await until(followed)
        labels = (await cluster.get("a")).metadata.labels
    assert labels["node.kubernetes.io/instance-type"] == "t1"
    assert "topology.kubernetes.io/region" not in labels
    assert len(cluster.writes("a")) == 1


async def test_the_cloud_corrects_labels_and_removes_none(cluster: NodeCluster) -> None:
    machine = cluster.cloud.add("i-1", cluster.name("a"), labels={"rack": "4", "k8s.io/x": "no", "kept": "cloud"})
    async with cluster.node_controller(node_status_update_frequency_s=3600):
        await cluster.join("a", metadata={"labels": {"mine": "1", "kept": "mine"}})
        first = (await cluster.initialised("a")).metadata.labels
    machine.zone, machine.labels = "zone-b", {"rack": "5"}
    async with cluster.node_controller(node_status_update_frequency_s=0.2):

        async def corrected() -> bool:
            return (await cluster.get("a")).metadata.labels.get("rack") == "5"

        await until(corrected)
        second = (await cluster.get("a")).metadata.labels
    assert (first["mine"], first["kept"], "k8s.io/x" in first) == ("1", "mine", False)
    assert second["topology.kubernetes.io/zone"] == second["failure-domain.beta.kubernetes.io/zone"] == "zone-b"
    assert second["mine"] == "1"


async def test_labels_are_left_alone_when_asked(cluster: NodeCluster) -> None:
    machine = cluster.cloud.add("i-1", cluster.name("a"))
    async with cluster.node_controller(node_status_update_frequency_s=0.1, reconcile_node_labels=False):
        await cluster.join("a")
        await cluster.initialised("a")
        machine.zone = "zone-b"
        await settle(cluster, "a", "metadata", 4)
        assert (await cluster.get("a")).metadata.labels["topology.kubernetes.io/zone"] == "zone-a"


async def test_dual_stack_in_steady_state_writes_nothing(cluster: NodeCluster) -> None:
    machine = cluster.cloud.add("i-1", cluster.name("a"), addresses=DUAL)
    async with cluster.node_controller(node_status_update_frequency_s=0.1):
        await cluster.join("a")
        await cluster.initialised("a")
        before = len(cluster.writes("a"))
        for ready in ("False", "True", "False"):
            await cluster.report("a", ready)
        await settle(cluster, "a", "metadata", 5)
        assert len(cluster.writes("a")) == before == 2
        machine.addresses = (DUAL[1], DUAL[0], *DUAL[2:])

        async def reordered() -> bool:
            return listed(await cluster.get("a"))[0] == ("InternalIP", "fd00::5")

        await until(reordered)
        assert len(listed(await cluster.get("a"))) == 4
        machine.addresses = (DUAL[2],)
        await settle(cluster, "a", "metadata", 4)
        assert len(listed(await cluster.get("a"))) == 4, "the last valid addresses are kept"


async def test_heartbeats_cause_no_questions(cluster: NodeCluster) -> None:
    cluster.cloud.add("i-1", cluster.name("a"))
    async with cluster.node_controller(node_status_update_frequency_s=3600):
        await cluster.join("a")
        await cluster.initialised("a")
        asked = len(cluster.cloud.calls)
        for ready in ("False", "True", "Unknown", "True"):
            await cluster.report("a", ready)
        cluster.cloud.add("i-2", cluster.name("b"))
        await cluster.join("b")
        await cluster.initialised("b")
        assert len([call for call in cluster.cloud.calls if call[1] == cluster.name("a")]) <= asked


async def test_two_clouds_that_claim_a_name_are_told_and_nothing_is_written(cluster: NodeCluster) -> None:
    other = ScriptedProvider("other")
    for cloud in (cluster.cloud, other):
        cloud.add("i-1", cluster.name("a"))
    other.add("i-2", cluster.name("b"))
    async with cluster.node_controller(cluster.clouds(other)):
        await cluster.join("a")
        await cluster.join("b")
        (event,) = await until(lambda: cluster.events("a", "AmbiguousInstance"))
        assert "fake" in event.message and "other" in event.message
        assert (await cluster.initialised("b")).spec.provider_id == "other://i-2"
        assert is_tainted(await cluster.get("a"))
        assert not cluster.writes("a")
        del other.machines["i-1"]
        await cluster.client.patch(NODES, cluster.name("a"), {"metadata": {"labels": {"look": "again"}}})
        assert (await cluster.initialised("a")).spec.provider_id == "fake://i-1"


async def test_two_machines_of_a_name_in_one_cloud_are_told_and_nothing_is_written(cluster: NodeCluster) -> None:
    cluster.cloud.add("i-1", cluster.name("a"))
    cluster.cloud.fault = lambda operation, node: FAULTS["ambiguous"]()
    async with cluster.node_controller():
        await cluster.join("a")
        (event,) = await until(lambda: cluster.events("a", "AmbiguousInstance"))
        assert "two instances of that name" in event.message
        assert is_tainted(await cluster.get("a"))
        assert not cluster.writes("a")
        cluster.cloud.fault = lambda operation, node: None
        await cluster.initialised("a")


async def test_a_hanging_cloud_does_not_delay_another_clouds_nodes(cluster: NodeCluster) -> None:
    hung = ScriptedProvider("hung")
    hung.hold.clear()
    hung.listed_without.add(cluster.name("unnamed"))
    cluster.cloud.add("i-1", cluster.name("named"))
    cluster.cloud.add("i-2", cluster.name("unnamed"))
    async with cluster.node_controller(cluster.clouds(hung), concurrent_node_syncs=1):
        for number in range(3):
            await cluster.join(f"hung{number}", spec={"providerID": f"hung://{number}"})
        await cluster.join("named", spec={"providerID": "fake://i-1"})
        await cluster.join("unnamed")
        await cluster.initialised("named")
        assert (await cluster.initialised("unnamed")).spec.provider_id == "fake://i-2"
        assert hung.calls
        depth = cluster.registry.get_sample_value("workqueue_depth", {"name": "Nodes-hung"})
        assert depth is not None
    assert cluster.registry.get_sample_value("workqueue_adds_total", {"name": "Nodes"})


async def test_a_claim_waits_for_a_cloud_that_is_down_and_says_so(cluster: NodeCluster) -> None:
    down = ScriptedProvider("down")
    down.fault = lambda operation, node: FAULTS["503"]()
    cluster.cloud.add("i-1", cluster.name("a"))
    async with cluster.node_controller(cluster.clouds(down)):
        await cluster.join("a")
        (event,) = await until(lambda: cluster.events("a", "WaitingForClouds"))
        assert "down" in event.message
        assert not cluster.writes("a")
        down.fault = lambda operation, node: None
        await cluster.initialised("a")


async def test_a_provider_without_instances_is_skipped(cluster: NodeCluster) -> None:
    cluster.cloud.instances = None
    async with cluster.node_controller(), cluster.lifecycle():
        await cluster.join("a", ready="False")
        assert is_tainted(await cluster.get("a"))
