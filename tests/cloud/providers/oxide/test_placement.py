"""Which node carries a load balancer's address, against the simulated Oxide API: fail-over, spreading, limits."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.cloud.providers.oxide.world import CLUSTER, addresses, world

from bedplate.api import core, meta
from bedplate.cloud.errors import CloudError, RetryError
from bedplate.cloud.interface import Target
from bedplate.cloud.providers.oxide import ownership, wants
from bedplate.sim.clouds import Conditions

LEGACY = ownership.LEGACY_DESCRIPTION


def with_ready(node: core.Node, status: str) -> core.Node:
    conditions = (meta.Condition(type="Ready", status=status),)
    return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, conditions=conditions))


async def test_the_address_leaves_a_node_that_is_not_ready() -> None:
    async with world(conditions=Conditions(transition_s=1.5)) as w:
        one = w.provider()
        targets = {name: w.node(name) for name in ("n1", "n2")}
        service = w.service("web")
        status = await one.load_balancers.ensure(CLUSTER, service, list(targets.values()))
        dead = w.holder(service)
        other = next(name for name in targets if name != dead)
        now = [Target(targets[dead].node, is_ready=False), targets[other]]
        moved = await one.load_balancers.update(CLUSTER, w.publish(service, status), now)
        assert w.holder(service) == other
        assert addresses(moved) == [addresses(status)[0], *w.cloud.get(other).addresses]


@pytest.mark.parametrize("number", range(6))
async def test_a_new_service_goes_to_a_ready_node_while_the_fail_over_delay_of_another_runs(number: int) -> None:
    async with world() as w:
        one = w.provider()
        targets = [w.node("n1"), w.node("n2")]
        states = zip(targets, ("Unknown", "True"), strict=True)
        service = w.service(f"web-{number}")
        await one.load_balancers.ensure(CLUSTER, service, [Target(with_ready(t.node, state)) for t, state in states])
        assert w.holder(service) == "n2"


async def test_a_service_that_is_served_stays_during_the_fail_over_delay() -> None:
    async with world() as w:
        one = w.provider()
        targets = [w.node("n1"), w.node("n2")]
        service = w.service("web")
        await one.load_balancers.ensure(CLUSTER, service, [Target(with_ready(t.node, "True")) for t in targets])
        holder = w.holder(service)
        now = [Target(with_ready(t.node, "Unknown" if t.node.name == holder else "True")) for t in targets]
        await one.load_balancers.ensure(CLUSTER, service, now)
        assert w.holder(service) == holder


async def test_an_excluded_or_deleted_holder_is_left_at_once() -> None:
    async with world() as w:
        one = w.provider()
        targets = {name: w.node(name) for name in ("n1", "n2", "n3")}
        service = w.service("web")
        await one.load_balancers.ensure(CLUSTER, service, list(targets.values()))
        gone = w.holder(service)
        del targets[gone]
        await one.load_balancers.update(CLUSTER, service, list(targets.values()))
        assert w.holder(service) in targets


async def test_a_change_that_cannot_be_made_does_not_stop_the_fail_over() -> None:
    async with world() as w:
        one = w.provider()
        targets = {name: w.node(name) for name in ("n1", "n2")}
        service = w.service("web")
        await one.load_balancers.ensure(CLUSTER, service, list(targets.values()))
        [before] = w.ips_of(service)
        dead = w.holder(service)
        wrong = w.service("web", annotations={wants.ADDRESS: "10.255.255.1"})
        now = [Target(one.node, is_ready=one.node.name != dead) for one in targets.values()]
        with pytest.raises(CloudError):
            await one.load_balancers.ensure(CLUSTER, wrong, now)
        assert w.holder(wrong) != dead
        assert [made["ip"] for made in w.ips_of(wrong)] == [before["ip"]]


async def test_when_no_node_is_ready_the_address_stays() -> None:
    async with world() as w:
        one = w.provider()
        targets = [w.node("n1"), w.node("n2")]
        service = w.service("web")
        await one.load_balancers.ensure(CLUSTER, service, targets)
        holder = w.holder(service)
        await one.load_balancers.update(CLUSTER, service, [Target(t.node, is_ready=False) for t in targets])
        assert w.holder(service) == holder
        assert w.calls("floating_ip_detach") == 0


async def test_local_traffic_follows_the_endpoints() -> None:
    async with world() as w:
        one = w.provider()
        nodes = [w.node("n1"), w.node("n2"), w.node("n3")]
        service = w.service("web", external_traffic_policy="Local")
        for wanted in ("n2", "n3", "n1"):
            targets = [Target(t.node, has_endpoints=t.node.name == wanted) for t in nodes]
            await one.load_balancers.ensure(CLUSTER, service, targets)
            assert w.holder(service) == wanted


async def test_a_new_node_does_not_attract_the_address() -> None:
    async with world() as w:
        targets = [w.node("n5")]
        service = w.service("web")
        await w.provider().load_balancers.ensure(CLUSTER, service, targets)
        targets += [w.node(f"n{number}") for number in range(5)]
        for _ in range(2):
            await w.provider().load_balancers.ensure(CLUSTER, service, targets)
            await w.provider().load_balancers.update(CLUSTER, service, targets)
        assert w.holder(service) == "n5"
        assert w.calls("floating_ip_detach") == 0


async def test_only_the_node_that_carries_a_service_matters_to_it() -> None:
    async with world() as w:
        one, service = w.provider(), w.service("web")
        assert one.load_balancers.carriers(service) == frozenset(), "nothing is known before it was placed"
        await one.load_balancers.ensure(CLUSTER, service, [w.node("n1"), w.node("n2")])
        assert one.load_balancers.carriers(service) == {w.holder(service)}
        await one.load_balancers.delete(CLUSTER, service)
        assert one.load_balancers.carriers(service) == frozenset()


async def test_services_with_one_port_get_different_nodes_and_the_last_one_hears_of_it() -> None:
    async with world() as w:
        one = w.provider()
        targets = [w.node("n1"), w.node("n2")]
        services = [w.service(name, ports=((443, "TCP"),)) for name in ("a", "b", "c")]
        for service in services[:2]:
            await one.load_balancers.ensure(CLUSTER, service, targets)
        assert {w.holder(service) for service in services[:2]} == {"n1", "n2"}
        with pytest.raises(RetryError, match="already answers on one of its ports"):
            await one.load_balancers.ensure(CLUSTER, services[2], targets)
        assert w.recorder.reasons("c") == ["PortConflict"]
        assert w.ips_of(services[2]) == []
        udp = w.service("d", ports=((443, "UDP"),))
        await one.load_balancers.ensure(CLUSTER, udp, targets)
        assert w.holder(udp) in ("n1", "n2")


async def test_services_placed_at_the_same_time_do_not_clash() -> None:
    async with world(conditions=Conditions(transition_s=0.5)) as w:
        one = w.provider()
        targets = [w.node(f"n{number}") for number in range(8)]
        services = [w.service(f"s{number}") for number in range(8)]
        await asyncio.gather(*(one.load_balancers.ensure(CLUSTER, service, targets) for service in services))
        assert len({w.holder(service) for service in services}) == 8


async def test_services_spread_over_the_nodes_even_without_clashes() -> None:
    async with world() as w:
        one = w.provider()
        targets = [w.node(f"n{number}") for number in range(4)]
        services = [w.service(f"s{number}", ports=((8000 + number, "TCP"),)) for number in range(8)]
        for service in services:
            await one.load_balancers.ensure(CLUSTER, service, targets)
        assert sorted(w.holder(service) for service in services) == sorted([f"n{number}" for number in range(4)] * 2)


async def test_what_the_original_put_on_one_node_is_taken_apart() -> None:
    async with world() as w:
        targets = [w.node("n1"), w.node("n2")]
        services = [w.service("a"), w.service("b")]
        for service in services:
            w.cloud.create_floating_ip(
                f"prod-shop-{service.name}", description=ownership.LEGACY_DESCRIPTION, attach_to="n1"
            )
        one = w.provider()
        for service in services:
            await one.load_balancers.ensure(CLUSTER, service, targets)
        assert {w.holder(service) for service in services} == {"n1", "n2"}
        assert len(w.ips()) == 2


async def test_the_older_of_two_that_cannot_part_stays() -> None:
    async with world() as w:
        targets = [w.node("n1")]
        older, younger = w.service("older"), w.service("younger")
        for service in (older, younger):
            w.cloud.create_floating_ip(
                f"prod-shop-{service.name}", description=ownership.LEGACY_DESCRIPTION, attach_to="n1"
            )
        one = w.provider()
        assert await one.load_balancers.ensure(CLUSTER, older, targets) is not None
        with pytest.raises(RetryError):
            await one.load_balancers.ensure(CLUSTER, younger, targets)
        assert w.recorder.reasons() == ["PortConflict"]


async def test_no_instance_gets_more_than_32_addresses() -> None:
    async with world() as w:
        targets = [w.node("full", ephemeral=True), w.node("free", ephemeral=False)]
        one = w.provider()
        await one.instances.metadata(targets[0].node)
        for number in range(31):
            w.cloud.create_floating_ip(f"theirs-{number}", attach_to="full")
            w.cloud.create_floating_ip(f"others-{number}", attach_to="free")
        services = [w.service(f"s{number}", ports=((8000 + number, "TCP"),)) for number in range(2)]
        await one.load_balancers.ensure(CLUSTER, services[0], targets)
        assert w.holder(services[0]) == "free"
        with pytest.raises(RetryError, match="32 external IPs"):
            await one.load_balancers.ensure(CLUSTER, services[1], targets)
        assert w.calls("floating_ip_attach") == 1


async def test_an_instance_that_refuses_is_not_tried_first_again() -> None:
    async with world() as w:
        targets = [w.node("n1"), w.node("n2")]
        w.cloud.set_state("n1", "failed")
        refused = 0
        for number in range(8):
            # Of eight, some are put on n1 first: a new process knows nothing of its refusal.
            one, service = w.provider(), w.service(f"s{number}", ports=((8000 + number, "TCP"),), uid=f"uid-{number}")
            try:
                await one.load_balancers.ensure(CLUSTER, service, targets)
            except RetryError as err:
                assert "in failed state" in str(err)
                refused += 1
                await one.load_balancers.ensure(CLUSTER, service, targets)
            assert w.holder(service) == "n2"
            await one.load_balancers.delete(CLUSTER, service)
        assert 0 < refused < 8


@pytest.mark.parametrize("provider_id", ["", "aws:///zone/i-1", "oxide://no-uuid"])
async def test_a_node_that_is_none_of_ours_blocks_nobody(provider_id: str) -> None:
    async with world() as w:
        stranger = core.Node(metadata=w.node("a0").node.metadata, spec=core.NodeSpec(provider_id=provider_id))
        service = w.service("web")
        one = w.provider()
        await one.load_balancers.ensure(CLUSTER, service, [Target(stranger), w.node("n9")])
        assert w.holder(service) == "n9"
        with pytest.raises(RetryError, match="no nodes"):
            await one.load_balancers.update(CLUSTER, service, [Target(stranger)])


async def test_a_service_that_gets_nothing_keeps_nobody_off_a_node() -> None:
    async with world() as w:
        one, targets = w.provider(), [w.node("n1")]
        wrong = w.service("wrong", annotations={wants.ADDRESS: "10.255.255.1"})
        with pytest.raises(CloudError):
            await one.load_balancers.ensure(CLUSTER, wrong, targets)
        await one.load_balancers.ensure(CLUSTER, w.service("right"), targets)
