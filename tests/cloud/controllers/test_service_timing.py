"""The service controller with a clock of its own: what it repeats, waits for and learns, and when."""

from __future__ import annotations

import io
import itertools
from typing import Any

import pytest
from tests.cloud.controllers.balancers import StickyBalancers
from tests.cloud.controllers.serviceworld import World, world

from bedplate.api import discovery, meta, names
from bedplate.cloud.controllers import service_plan as plans
from bedplate.cloud.errors import CloudError, RetryError
from bedplate.core import errors, logging


async def test_failures_are_repeated_after_five_seconds_doubling_to_five_minutes() -> None:
    async with world() as one:
        one.balancers.script["ensure"] = [CloudError("no")] * 20
        moments: list[float] = []
        one.balancers.on_call = lambda verb, service: moments.append(one.time.monotonic())
        one.api.put_service("web", type="LoadBalancer")
        await one.after(2000)
    gaps = [round(later - earlier) for earlier, later in itertools.pairwise(moments)]
    assert gaps[:9] == [5, 10, 20, 40, 80, 160, 300, 300, 300]


async def test_a_retry_error_sets_the_time_itself_and_no_resync_brings_it_forward() -> None:
    async with world() as one:
        one.balancers.script["ensure"] = [RetryError("not yet", 77.0), RetryError("not yet", 200.0)]
        moments: list[float] = []
        one.balancers.on_call = lambda verb, service: moments.append(one.time.monotonic())
        one.api.put_service("web", type="LoadBalancer")
        await one.after(400)
    assert [round(later - earlier) for earlier, later in itertools.pairwise(moments)] == [77, 200]


async def test_an_error_that_names_a_time_is_not_repeated_before_it() -> None:
    async with world() as one:
        one.balancers.script["ensure"] = [errors.Unavailable("slow down", retry_after_s=60.0)]
        one.api.put_service("web", type="LoadBalancer")
        await one.after(50)
        assert one.balancers.count("ensure") == 1
        await one.after(20)
        assert one.balancers.count("ensure") == 2


async def test_news_bring_a_waiting_service_forward() -> None:
    async with world() as one:
        one.balancers.script["ensure"] = [RetryError("not yet", 1000.0)]
        one.api.put_service("web", type="LoadBalancer")
        await one.after(1)
        one.api.put_service("web", annotations={"size": "large"})
        await one.after(1)
        assert one.balancers.held


async def test_a_node_that_comes_brings_a_service_forward_that_failed_without_it() -> None:
    async with world() as one:
        one.balancers.script["ensure"] = [RetryError("no nodes", 1000.0)]
        one.api.put_service("web", type="LoadBalancer")
        await one.after(1)
        one.api.put_node("a")
        await one.after(1)
        assert one.balancers.of("n/web").hosts == ["a"]


async def test_a_balancer_that_is_gone_brings_those_forward_that_wait() -> None:
    async with world() as one:
        one.api.put_service("first", type="LoadBalancer")
        await one.after(1)
        one.balancers.script["ensure"] = [RetryError("no address is left", 1000.0)]
        one.api.put_service("second", type="LoadBalancer")
        await one.after(1)
        assert list(one.balancers.held) == ["n/first"]
        one.api.delete_service("first")
        await one.after(1)
        assert list(one.balancers.held) == ["n/second"]


async def test_an_excluded_or_deleted_holder_is_told_within_a_second() -> None:
    async with world(needs_ready=True) as one:
        for name in ("a", "b", "c"):
            one.api.put_node(name)
        one.api.put_service("web", type="LoadBalancer")
        await one.after(1)
        one.api.put_node("a", labels={names.LABEL_EXCLUDE_FROM_LOAD_BALANCERS: ""})
        await one.after(1)
        assert one.balancers.of("n/web").hosts == ["b", "c"]
        one.api.delete_node("b")
        await one.after(1)
        assert one.balancers.of("n/web").hosts == ["c"]


async def test_readiness_is_told_after_the_delay_also_of_a_second_node_that_fails_later() -> None:
    async with world(needs_ready=True) as one:

        def ready() -> list[bool]:
            return [target.is_ready for target in one.balancers.of("n/web").targets]

        for name in ("a", "b", "c"):
            one.api.put_node(name)
        one.api.put_service("web", type="LoadBalancer")
        await one.after(1)
        one.api.put_node("a", ready=False)
        await one.after(10)
        one.api.put_node("b", ready=False)
        await one.after(4)
        assert ready() == [True, True, True]
        await one.after(2)
        assert ready() == [False, True, True]
        await one.after(10)
        assert ready() == [False, False, True]
        updates = one.balancers.count("update")
        one.api.put_node("c", ready=False)
        await one.after(14)
        one.api.put_node("c", ready=True)
        await one.after(60)
        assert one.balancers.count("update") == updates, "a flap shorter than the delay"
        one.api.put_node("a", ready=True)
        await one.after(1)
        assert ready() == [True, False, True]
        assert "UpdatedLoadBalancer" not in one.told.reasons(), "nothing but readiness changed, and no status"
        one.balancers.updates_status = True
        one.api.put_node("b", ready=True)
        await one.after(1)
        assert one.told.reasons()[-1] == "UpdatedLoadBalancer"


async def test_a_plain_cloud_hears_of_readiness_only_with_the_next_change_but_then_rightly() -> None:
    async with world() as one:
        one.api.put_node("a")
        one.api.put_service("web", type="LoadBalancer")
        await one.after(1)
        one.api.put_node("a", ready=False)
        await one.after(20)
        assert one.balancers.count("update") == 0
        one.api.put_service("web", annotations={"size": "large"})
        await one.after(1)
        assert [target.is_ready for target in one.balancers.of("n/web").targets] == [False]


async def test_a_balancer_that_stays_on_its_node_hears_of_that_nodes_readiness_alone() -> None:
    one = World(needs_ready=True)
    sticky = StickyBalancers()
    one.clouds[0].load_balancers = sticky
    await one.start()
    try:
        for name in ("a", "b", "c"):
            one.api.put_node(name)
        one.api.put_service("web", type="LoadBalancer")
        await one.after(1)
        for _ in range(3):
            one.api.put_node("b", ready=False)
            await one.after(60)
            one.api.put_node("b", ready=True)
            await one.after(60)
        assert sticky.count("update") == 0
        one.api.put_node("0-first-by-name")
        await one.after(1)
        one.api.delete_node("c")
        await one.after(1)
        assert sticky.count("update") == 2, "who comes and goes is always told"
        one.api.put_node("b", ready=False)
        await one.after(20)
        carrier = next(iter(sticky.carriers(one.api.services["n/web"])))
        one.api.put_node(carrier, ready=False)
        await one.after(20)
        assert sticky.count("update") == 3
        assert sticky.carriers(one.api.services["n/web"]) == {"a"}
        one.api.delete_node("a")
        await one.after(1)
        assert sticky.count("update") == 4
        assert sticky.carriers(one.api.services["n/web"]) == set(), "nobody can serve"
        one.api.put_node("b", ready=True)
        await one.after(1)
        assert sticky.carriers(one.api.services["n/web"]) == {"b"}
    finally:
        await one.kill()


async def test_a_failed_one_is_tried_again_when_any_node_becomes_ready() -> None:
    one = World(needs_ready=True)
    sticky = one.clouds[0].load_balancers = StickyBalancers()
    await one.start()
    try:
        one.api.put_node("a")
        one.api.put_node("b", ready=False)
        one.api.put_service("web", type="LoadBalancer")
        await one.after(1)
        sticky.script["ensure"] = [RetryError("its ports clash everywhere", 1000.0)]
        one.api.put_service("web", annotations={"size": "large"})
        await one.after(1)
        assert sticky.count("ensure") == 2
        one.api.put_node("b", ready=True)
        await one.after(1)
        assert sticky.count("ensure") == 3
    finally:
        await one.kill()


@pytest.mark.parametrize("needs_ready", [True, False])
async def test_without_endpointslices_only_local_services_of_careful_clouds_wait(needs_ready: bool) -> None:
    one = World(needs_ready=needs_ready)
    one.slices_are_readable = False
    one.api.put_node("a")
    one.api.put_service("local", type="LoadBalancer", external_traffic_policy="Local")
    one.api.put_service("wide", type="LoadBalancer", external_traffic_policy="Cluster")
    await one.start()
    try:
        await one.time.advance(9)
        assert not one.balancers.calls, "they may be on their way"
        await one.time.advance(2)
        assert sorted(one.balancers.held) == (["n/wide"] if needs_ready else ["n/local", "n/wide"])
        told = one.told.messages("SyncLoadBalancerFailed")
        assert ("endpointslices" in told[0]) if needs_ready else not told
        one.caches.slices.replace([], "1")
        await one.after(31)
        assert sorted(one.balancers.held) == ["n/local", "n/wide"]
        assert [target.has_endpoints for target in one.balancers.of("n/wide").targets] == [True]
    finally:
        await one.kill()


async def test_a_new_leader_that_may_not_read_endpointslices_serves_at_once_where_nothing_is_local() -> None:
    one = World(needs_ready=True)
    one.slices_are_readable = False
    one.api.put_node("a")
    one.api.put_service("wide", type="LoadBalancer", external_traffic_policy="Cluster")
    await one.start()
    try:
        await one.after(1)
        assert sorted(one.balancers.held) == ["n/wide"]
    finally:
        await one.kill()


async def test_a_service_that_loses_its_last_node_is_told_so_at_once_though_the_cloud_refuses() -> None:
    one = World()
    one.api.put_node("a")
    one.api.put_service("web", type="LoadBalancer")
    await one.start()
    try:
        await one.after(1)
        one.balancers.script["update"] = [RetryError("no nodes for service", 30)]
        one.api.delete_node("a")
        await one.after(1)
        assert one.told.messages("UnAvailableLoadBalancer")
    finally:
        await one.kill()


async def test_other_local_endpoints_are_told_at_once_and_only_where_traffic_is_local() -> None:
    def endpoints(name: str, *nodes: str) -> discovery.EndpointSlice:
        return discovery.EndpointSlice(
            metadata=meta.ObjectMeta(name=f"{name}-1", namespace="n", labels={names.LABEL_SERVICE_NAME: name}),
            endpoints=tuple(discovery.Endpoint(node_name=node) for node in nodes),
        )

    async with world(needs_ready=True) as one:
        for name in ("a", "b"):
            one.api.put_node(name)
        one.api.put_service("local", type="LoadBalancer", external_traffic_policy="Local")
        one.api.put_service("wide", type="LoadBalancer", external_traffic_policy="Cluster")
        await one.after(1)
        for nodes, local in ((("a",), [True, False]), (("a", "b"), [True, True]), ((), [False, False])):
            for name in ("local", "wide"):
                one.caches.slices.put(endpoints(name, *nodes), "2")
            await one.after(1)
            assert [target.has_endpoints for target in one.balancers.of("n/local").targets] == local
        assert (one.balancers.count("update", "n/local"), one.balancers.count("update", "n/wide")) == (3, 0)


@pytest.mark.parametrize("clears_status", [True, False])
async def test_what_somebody_undid_is_found_by_the_resync_of_thirty_seconds(clears_status: bool) -> None:
    async with world() as one:
        one.api.put_service("web", type="LoadBalancer")
        await one.after(1)
        before = one.api.services["n/web"]
        patch = plans.release_patch(before, clears_status=clears_status)
        await one.api.patch(None, "web", patch, "n", subresource="status")
        await one.after(1)
        assert names.FINALIZER_LOAD_BALANCER not in one.api.services["n/web"].metadata.finalizers
        await one.after(30)
        after = one.api.services["n/web"]
        assert (after.metadata.finalizers, after.status) == (before.metadata.finalizers, before.status)
        assert one.balancers.count("ensure") == 2


async def test_heartbeats_cost_no_pass_and_no_call() -> None:
    async with world(needs_ready=True) as one:
        for number in range(200):
            one.api.put_node(f"node-{number}")
        for number in range(20):
            one.api.put_service(f"web-{number}", type="LoadBalancer")
        await one.after(2)
        calls, passes = len(one.balancers.calls), one.passes()
        for number in range(200):
            one.api.put_node(f"node-{number}", labels={"beat": "1"})
        await one.after(20)
        assert (len(one.balancers.calls), one.passes()) == (calls, passes)


async def test_hung_services_hold_up_others_for_no_more_than_a_moment_and_other_clouds_not_at_all() -> None:
    options: dict[str, Any] = {"load_balancer_class": ("two=second",)}
    async with world(providers=2, **options) as one:
        stuck = [f"stuck-{number}" for number in range(8)]
        one.balancers.hanging.update(f"n/{name}" for name in stuck)
        for name in stuck:
            one.api.put_service(name, type="LoadBalancer")
        one.api.put_service("fifth", type="LoadBalancer")
        one.api.put_service("elsewhere", type="LoadBalancer", load_balancer_class="two")
        one.api.deliver(one.caches)
        await one.time.advance(0.1)
        second = one.clouds[1].load_balancers
        assert second is not None
        assert list(second.held) == ["n/elsewhere"]
        assert one.balancers.count("ensure") == 4, "as many at once as --concurrent-service-syncs says"
        await one.time.advance(5)
        assert list(one.balancers.held) == ["n/fifth"]


async def test_a_service_is_never_worked_on_twice_at_once() -> None:
    async with world() as one:
        one.balancers.hanging.add("n/web")
        one.api.put_service("web", type="LoadBalancer")
        await one.after(10)
        one.api.put_service("web", annotations={"size": "large"})
        one.api.put_node("a")
        await one.after(10)
        assert one.balancers.count("ensure") == 1


async def test_a_kubernetes_write_that_fails_is_told_and_repeated() -> None:
    async with world() as one:
        one.api.faults.append("before")
        one.api.put_service("web", type="LoadBalancer")
        await one.after(1)
        assert one.balancers.calls == [], "without the finalizer the cloud is not asked"
        message = one.told.messages("SyncLoadBalancerFailed")[0]
        assert message.startswith("Error syncing load balancer: failed to add load balancer cleanup finalizer: ")
        await one.after(10)
        assert one.api.services["n/web"].status.load_balancer.ingress


async def test_clouds_without_load_balancers_are_not_an_error() -> None:
    log = io.StringIO()
    async with world() as one:
        one.clouds[0].load_balancers = None
        await one.kill()
        logging.configure(logging.LogOptions(), log)
        try:
            await one.start()
            assert one.controller is not None and one.controller.parts() == []
        finally:
            logging.configure(logging.LogOptions())
    (line,) = [line for line in log.getvalue().splitlines() if "service.unsupported" in line]
    assert "error" not in line and "warn" not in line
