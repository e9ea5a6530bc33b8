"""The service controller on real and embedded API servers: creation, deletion, class, node set, retries,
restarts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.cloud.controllers.balancers import ScriptedBalancers, ScriptedCloud
from tests.cloud.controllers.serving import SERVICES, SLICES, rig
from tests.waiting import until

from bedplate.api import core
from bedplate.api.names import FINALIZER_LOAD_BALANCER, LABEL_EXCLUDE_FROM_LOAD_BALANCERS, LABEL_SERVICE_NAME
from bedplate.cloud.errors import CloudError, ImplementedElsewhere, RetryError
from bedplate.kube import Client


def careful(name: str = "scripted") -> ScriptedCloud:
    return ScriptedCloud(name, (name,), load_balancers=ScriptedBalancers(needs_ready_nodes=True))


async def test_a_new_service_gets_finalizer_then_balancer_then_status(client: Client, namespace: str) -> None:
    async with rig(client, namespace) as world:
        await world.node("n1")
        seen: list[Any] = []
        asked: list[asyncio.Task[core.Service]] = []

        def look(verb: str, service: core.Service) -> None:
            if verb == "ensure":
                asked.append(asyncio.ensure_future(world.service("web")))

        world.balancers.on_call = look
        await world.start()
        await world.create("web")
        address = await world.address("web")
        assert address == world.balancers.of(world.key("web")).address
        seen.append(await asked[0])
        assert FINALIZER_LOAD_BALANCER in seen[0].metadata.finalizers, (
            "the finalizer was there before the cloud was asked"
        )
        assert world.hosts("web") == ["n1"]
        assert world.told.reasons("web") == ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]
        assert world.told.messages("EnsuringLoadBalancer") == ["Ensuring load balancer"]
        assert world.told.messages("EnsuredLoadBalancer") == ["Ensured load balancer"]
        assert world.balancers.count("ensure") == 1, "our own writes do not lead to another ensure"


async def test_without_nodes_the_balancer_is_made_and_a_warning_told(client: Client, namespace: str) -> None:
    async with rig(client, namespace) as world:
        await world.start()
        await world.create("web")
        await world.address("web")
        assert world.told.reasons("web") == ["EnsuringLoadBalancer", "UnAvailableLoadBalancer", "EnsuredLoadBalancer"]


async def test_a_class_of_somebody_else_is_ignored_and_ours_is_handled(client: Client, namespace: str) -> None:
    async with rig(client, namespace, load_balancer_class=("ours.example/lb",)) as world:
        await world.start()
        await world.create("theirs", loadBalancerClass="theirs.example/lb")
        await world.create("ours", loadBalancerClass="ours.example/lb")
        await world.create("plain")
        await world.address("ours")
        await world.address("plain")
        assert sorted(world.balancers.held) == [world.key("ours"), world.key("plain")]
        assert not (await world.service("theirs")).metadata.finalizers
        await world.delete("theirs")
        await world.vanishes("theirs")
        assert not [key for _, key in world.balancers.calls if key == world.key("theirs")]


async def test_without_the_default_class_only_named_services_are_ours(client: Client, namespace: str) -> None:
    first, second = ScriptedCloud("scripted", load_balancers=ScriptedBalancers()), careful("second")
    options = {"load_balancer_class": ("two.example/lb=second",), "load_balancer_default_class": False}
    async with rig(client, namespace, first, second, **options) as world:
        await world.start()
        await world.create("plain")
        await world.create("named", loadBalancerClass="two.example/lb")
        await world.address("named")
        assert second.load_balancers is not None
        assert list(second.load_balancers.held) == [world.key("named")]
        assert not world.balancers.calls


async def test_a_change_of_the_node_set_updates_each_service_once(client: Client, namespace: str) -> None:
    async with rig(client, namespace) as world:
        await world.node("n1")
        await world.start()
        for name in ("one", "two"):
            await world.create(name)
            await world.address(name)
        await world.node("n2")
        await until(lambda: world.hosts("one") == world.hosts("two") == ["n1", "n2"])
        await until(lambda: world.told.reasons().count("UpdatedLoadBalancer") == 2)
        # Readiness, labels and heartbeats are none of this provider's business.
        await world.ready("n2", False)
        await world.edit_node("n2", {"metadata": {"labels": {"colour": "blue"}}})
        await world.edit_node("n1", {"metadata": {"labels": {LABEL_EXCLUDE_FROM_LOAD_BALANCERS: "true"}}})
        await until(lambda: world.hosts("one") == world.hosts("two") == ["n2"])
        await world.delete_node("n2")
        await until(lambda: world.hosts("one") == world.hosts("two") == [])
        await until(lambda: world.told.reasons().count("UnAvailableLoadBalancer") == 2)
        counts = [world.balancers.count("update", world.key(name)) for name in ("one", "two")]
        assert counts == [3, 3]
        assert world.balancers.count("ensure") == 2
        assert world.registry.get_sample_value("service_controller_loadbalancer_sync_total") == 8
        passes = "service_controller_nodesync_latency_seconds_count"
        await until(lambda: world.registry.get_sample_value(passes) == 3)


async def test_a_failed_update_is_told_and_mended_by_a_whole_sync(client: Client, namespace: str) -> None:
    async with rig(client, namespace) as world:
        await world.start()
        await world.create("web")
        await world.address("web")
        world.balancers.script["update"] = [CloudError("no")]
        await world.node("n1")
        await until(lambda: world.hosts("web") == ["n1"])
        assert world.balancers.count("ensure") == 2
        message = world.told.messages("UpdateLoadBalancerFailed")[0]
        node = f"{namespace}-n1"
        assert message == (
            f"Error updating load balancer with new hosts [{node}] [node names limited, total number of nodes: 1], "
            "error: no"
        )
        assert world.registry.get_sample_value("service_controller_nodesync_error_total") == 1


async def test_an_update_of_a_vanished_balancer_makes_it_anew(client: Client, namespace: str) -> None:
    async with rig(client, namespace) as world:
        await world.start()
        await world.create("web")
        await world.address("web")
        world.balancers.held.clear()
        world.balancers.script["update"] = [CloudError("there is none")]
        await world.node("n1")
        await until(lambda: world.hosts("web") == ["n1"])
        assert "UpdateLoadBalancerFailed" not in world.told.reasons()


@pytest.mark.parametrize(("value", "is_in"), [("", False), ("true", False), ("false", True), ("x", False)])
async def test_the_exclude_label(client: Client, namespace: str, value: str, is_in: bool) -> None:
    async with rig(client, namespace) as world:
        await world.node("always")
        await world.node("maybe", labels={LABEL_EXCLUDE_FROM_LOAD_BALANCERS: value})
        await world.node("foreign", providerID="aws://i-1")
        await world.start()
        await world.create("web")
        await world.address("web")
        assert world.hosts("web") == (["always", "maybe"] if is_in else ["always"])


async def test_a_retry_error_is_tried_again_after_its_own_time(client: Client, namespace: str) -> None:
    async with rig(client, namespace) as world:
        # The queue's own backoff would begin with five seconds and double.
        world.balancers.script["ensure"] = [RetryError("not yet", 0.1) for _ in range(20)]
        await world.start()
        await world.create("web")
        async with asyncio.timeout(60):
            await world.address("web")
        assert world.balancers.count("ensure") == 21
        reasons = world.told.reasons("web")
        assert reasons[0] == "EnsuringLoadBalancer"
        assert reasons.count("EnsuringLoadBalancer") == 1, "a retry is not announced again"
        assert reasons[-1] == "EnsuredLoadBalancer"
        assert "not yet" in world.told.messages("SyncLoadBalancerFailed")[0]


async def test_a_restart_confirms_without_announcing_or_writing(client: Client, namespace: str) -> None:
    async with rig(client, namespace) as world:
        await world.node("n1")
        await world.start()
        await world.create("web")
        await world.address("web")
        await world.stop()
        before = (await world.service("web")).metadata.resource_version
        told = len(world.told.events)
        await world.start()
        await until(lambda: world.balancers.count("ensure") == 2)
        await world.create("other")
        await world.address("other")
        assert (await world.service("web")).metadata.resource_version == before, "an absent ipMode is VIP"
        assert [event for event in world.told.events[told:] if event[0] == "web"] == []


async def test_implemented_elsewhere_is_success_without_a_status(client: Client, namespace: str) -> None:
    async with rig(client, namespace) as world:
        world.balancers.script["ensure"] = [ImplementedElsewhere("not here")]
        world.balancers.script["delete"] = [ImplementedElsewhere("not here")]
        world.balancers.script["get"] = [ImplementedElsewhere("not here")]
        await world.start()
        await world.create("web")
        await until(lambda: world.balancers.count("ensure") == 1)
        await world.create("other")
        await world.address("other")
        assert not (await world.service("web")).status.load_balancer.ingress
        await world.delete("web")
        await world.vanishes("web")


async def test_four_hung_services_do_not_hold_up_a_fifth(client: Client, namespace: str) -> None:
    async with rig(client, namespace) as world:
        stuck = [f"stuck-{number}" for number in range(4)]
        world.balancers.hanging.update(world.key(name) for name in stuck)
        await world.start()
        for name in stuck:
            await world.create(name)
        await until(lambda: world.balancers.count("ensure") == 4)
        await world.create("fifth")
        await world.address("fifth")
        assert world.balancers.count("ensure") == 5


async def test_a_hung_call_ends_and_is_told(client: Client, namespace: str) -> None:
    async with rig(client, namespace, cloud_api_timeout_s=0.1) as world:
        world.balancers.hanging.add(world.key("web"))
        await world.start()
        await world.create("web")
        await until(lambda: "SyncLoadBalancerFailed" in world.told.reasons("web"))
        assert "no response from the cloud" in world.told.messages("SyncLoadBalancerFailed")[0]
        world.balancers.hanging.clear()
        await world.address("web")


async def test_a_ready_aware_provider_hears_of_readiness_after_the_delay(client: Client, namespace: str) -> None:
    async with rig(client, namespace, careful(), lb_failover_delay_s=1.0) as world:
        world.balancers.updates_status = True
        await world.node("n1")
        await world.node("n2")
        await world.start()
        await world.create("web")
        await world.address("web")
        await world.ready("n1", False)

        def ready() -> list[bool]:
            return [target.is_ready for target in world.balancers.of(world.key("web")).targets]

        await until(lambda: ready() == [False, True])

        async def is_moved() -> bool:
            return await world.address("web") == f"{namespace}-n2.example"

        await until(is_moved, "the other node's address is published")
        await world.ready("n1", True)
        await until(lambda: ready() == [True, True])


async def test_a_flap_shorter_than_the_delay_moves_nothing(client: Client, namespace: str) -> None:
    async with rig(client, namespace, careful(), lb_failover_delay_s=3600.0) as world:
        await world.node("n1")
        await world.start()
        await world.create("web")
        await world.address("web")
        before = world.balancers.count("update")
        await world.ready("n1", False)
        await world.ready("n1", True)
        await world.node("n2")
        await until(lambda: world.hosts("web") == ["n1", "n2"])
        targets = world.balancers.of(world.key("web")).targets
        assert targets[0].is_ready
        # One for the new node, at most one more when it became ready.
        assert world.balancers.count("update") - before <= 2


async def test_local_traffic_follows_the_endpoints(client: Client, namespace: str) -> None:
    async with rig(client, namespace, careful()) as world:
        full = [await world.node(name) for name in ("n1", "n2")]
        await world.start()
        await world.create("web", externalTrafficPolicy="Local")
        await world.address("web")

        def local() -> list[bool]:
            return [target.has_endpoints for target in world.balancers.of(world.key("web")).targets]

        assert local() == [False, False]
        slice_ = {
            "metadata": {"name": "web-1", "labels": {LABEL_SERVICE_NAME: "web"}},
            "addressType": "IPv4",
            "ports": [{"port": 80}],
            "endpoints": [{"addresses": ["10.1.0.1"], "nodeName": full[1], "conditions": {"ready": True}}],
        }
        await client.create(SLICES.raw(), slice_, namespace)
        await until(lambda: local() == [False, True])
        slice_["endpoints"] = [{"addresses": ["10.1.0.2"], "nodeName": full[0], "conditions": {"ready": True}}]
        await client.patch(SLICES, "web-1", {"endpoints": slice_["endpoints"]}, namespace)
        await until(lambda: local() == [True, False])
        await client.delete(SLICES, "web-1", namespace)
        await until(lambda: local() == [False, False])


async def test_an_edit_that_matters_ensures_again_and_one_that_does_not_does_not(
    client: Client, namespace: str
) -> None:
    async with rig(client, namespace) as world:
        await world.start()
        await world.create("web")
        await world.address("web")
        await world.edit("web", {"metadata": {"labels": {"colour": "blue"}}, "spec": {"selector": {"app": "web"}}})
        await world.edit("web", {"metadata": {"annotations": {"tests.bedplate.dev/size": "large"}}})
        await until(lambda: world.balancers.count("ensure") == 2)
        assert world.told.reasons("web").count("EnsuringLoadBalancer") == 2
        await client.patch(SERVICES, "web", {"status": {"conditions": []}}, namespace, subresource="status")
        assert world.balancers.count("ensure") == 2
