"""Load balancers against the simulated Oxide API, through the validating proxy: addresses, status, failures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.cloud.providers.oxide.world import CLUSTER, addresses, record, world

from bedplate.api import core
from bedplate.cloud.interface import Target
from bedplate.cloud.providers.oxide import ownership, wants
from bedplate.core import errors
from bedplate.sim.clouds import Conditions

LEGACY = ownership.LEGACY_DESCRIPTION


@pytest.mark.parametrize(
    ("annotations", "network"),
    [
        ({wants.VERSION: "v4"}, "198.18."),
        ({wants.VERSION: "v6"}, "2001:db8:1:"),
        ({wants.POOL: "other"}, "203.0.113."),
        ({wants.POOL: "six"}, "2001:db8:2:"),
        ({wants.ADDRESS: "203.0.113.77"}, "203.0.113.77"),
        ({wants.ADDRESS: "2001:db8:2::77"}, "2001:db8:2::77"),
        ({}, "198.18."),
    ],
)
async def test_every_annotation_gives_an_address_of_its_kind(annotations: dict[str, str], network: str) -> None:
    async with world(has_v6_pool=True) as w:
        w.cloud.add_pool("other", "203.0.113.0/24")
        w.cloud.add_pool("six", "2001:db8:2::/64")
        target = w.node("n1", addresses=["172.30.1.1", "fd00::1"])
        service = w.service("web", annotations=annotations)
        status = await w.provider().load_balancers.ensure(CLUSTER, service, [target])
        assert addresses(status)[0].startswith(network)
        # It stays as it is: nothing of it is taken for a change.
        assert await w.provider().load_balancers.ensure(CLUSTER, service, [target]) == status
        assert len(w.ips()) == 1


async def test_a_pool_may_be_named_by_its_id() -> None:
    async with world() as w:
        pool = w.cloud.add_pool("other", "203.0.113.0/24")
        service = w.service("web", annotations={wants.POOL: pool})
        status = await w.provider().load_balancers.ensure(CLUSTER, service, [w.node("n1")])
        assert addresses(status)[0].startswith("203.0.113.")


async def test_an_address_is_made_once_and_reused() -> None:
    async with world(instances=0) as w:
        one = w.provider()
        targets = [w.node("n1"), w.node("n2")]
        service = w.service("web")
        status = await one.load_balancers.ensure(CLUSTER, service, targets)
        [made] = w.ips_of(service)
        assert made["name"] == "prod-shop-web" == one.load_balancers.name(CLUSTER, service)
        assert made["description"] == record(service)
        assert addresses(status)[0] == made["ip"]
        again = await w.provider().load_balancers.ensure(CLUSTER, w.publish(service, status), targets)
        assert addresses(again) == addresses(status)
        assert w.calls("floating_ip_create") == w.calls("floating_ip_attach") == 1
        assert w.calls("floating_ip_update") == w.calls("floating_ip_detach") == 0


@pytest.mark.parametrize("transition_s", [0.0, 2.0])
async def test_a_changed_annotation_replaces_the_address_without_a_gap(transition_s: float) -> None:
    async with world(conditions=Conditions(transition_s=transition_s)) as w:
        pool = w.cloud.add_pool("other", "203.0.113.0/24")
        one, targets = w.provider(), [w.node("n1")]
        service = w.service("web")
        first = await one.load_balancers.ensure(CLUSTER, service, targets)
        changed = w.service("web", annotations={wants.POOL: "other"})
        second = await one.load_balancers.ensure(CLUSTER, changed, targets)
        [made] = w.ips_of(changed)
        assert made["ip_pool_id"] == pool and made["name"] == "prod-shop-web"
        assert addresses(second)[0] == made["ip"] != addresses(first)[0]
        assert len(w.ips()) == 1
        order = [entry.operation for entry in w.cloud.journal.entries if entry.method != "GET" and entry.status < 300]
        assert order == [
            *("floating_ip_create", "floating_ip_attach"),
            *("floating_ip_create", "floating_ip_attach", "floating_ip_detach", "floating_ip_delete"),
            "floating_ip_update",
        ]


@pytest.mark.parametrize(
    ("annotations", "spec"),
    [
        ({wants.ADDRESS: "198.18.7.7"}, {}),
        ({}, {"load_balancer_ip": "198.18.7.7"}),
    ],
)
async def test_an_explicit_address_is_given(annotations: dict[str, str], spec: dict[str, Any]) -> None:
    async with world() as w:
        service = w.service("web", annotations=annotations, **spec)
        status = await w.provider().load_balancers.ensure(CLUSTER, service, [w.node("n1")])
        assert addresses(status)[0] == "198.18.7.7"


async def test_a_silo_with_default_pools_of_both_families_gets_the_family_of_the_service() -> None:
    async with world(has_v6_pool=True) as w:
        target = w.node("n1", addresses=["172.30.0.50", "fd00::50"])
        one = w.provider()
        four = w.service("four", ip_families=("IPv4",), ip_family_policy="SingleStack")
        six = w.service("six", ip_families=("IPv6",), ip_family_policy="SingleStack", ports=((81, "TCP"),))
        assert "." in addresses(await one.load_balancers.ensure(CLUSTER, four, [target]))[0]
        assert ":" in addresses(await one.load_balancers.ensure(CLUSTER, six, [target]))[0]


async def test_the_status_has_the_floating_address_in_proxy_mode_first() -> None:
    async with world() as w:
        target = w.node("n1", addresses=["172.30.1.1", "fd00::1"])
        service = w.service("web")
        one = w.provider()
        status = await one.load_balancers.ensure(CLUSTER, service, [target])
        assert status is not None
        floating = w.ips_of(service)[0]["ip"]
        assert [(entry.ip, entry.ip_mode) for entry in status.ingress] == [
            (floating, "Proxy"),
            ("172.30.1.1", None),
            ("fd00::1", None),
        ]
        assert await one.load_balancers.get(CLUSTER, service) == status
        hidden = w.service("web", annotations={wants.HIDE_INTERNAL: "true"})
        assert addresses(await one.load_balancers.ensure(CLUSTER, hidden, [target])) == [floating]
        w.cloud.floating.detach_all_of(w.cloud.get("n1").id)
        assert addresses(await one.load_balancers.get(CLUSTER, service)) == [floating]


async def test_a_full_instance_can_still_change_its_address() -> None:
    async with world() as w:
        w.cloud.add_pool("other", "203.0.113.0/24")
        targets = [w.node("n1", ephemeral=False)]
        one = w.provider()
        service = w.service("web")
        await one.load_balancers.ensure(CLUSTER, service, targets)
        for number in range(31):
            w.cloud.create_floating_ip(f"theirs-{number}", attach_to="n1")
        changed = w.service("web", annotations={wants.POOL: "other"})
        status = await one.load_balancers.ensure(CLUSTER, changed, targets)
        assert addresses(status)[0].startswith("203.0.113.") and len(w.ips_of(changed)) == 1


async def test_a_hung_call_delays_no_other_service() -> None:
    async with world() as w:
        one = w.provider(timeout_s=600.0)
        targets = [w.node(f"n{number}") for number in range(4)]
        w.cloud.faults.add("timeout", operation="floating_ip_create", nth=1)
        hung = asyncio.create_task(one.load_balancers.ensure(CLUSTER, w.service("hung"), targets))
        while not w.cloud.faults.rules[0].hits:
            await asyncio.sleep(0.01)
        for name in ("a", "b", "c"):
            service = w.service(name)
            await one.load_balancers.ensure(CLUSTER, service, targets)
            await one.load_balancers.update(CLUSTER, service, targets)
            assert w.holder(service)
        await one.load_balancers.delete(CLUSTER, service)
        assert not hung.done()
        hung.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hung


async def test_what_is_published_is_given_back_to_the_letter() -> None:
    async with world() as w:
        targets = [w.node("n1")]
        service = w.service("web")
        status = await w.provider().load_balancers.ensure(CLUSTER, service, targets)
        published = w.publish(service, status)
        assert [entry.ip_mode for entry in published.status.load_balancer.ingress] == ["Proxy", "VIP"]
        for call in ("ensure", "update"):
            again = await getattr(w.provider().load_balancers, call)(CLUSTER, published, targets)
            assert again == published.status.load_balancer


@pytest.mark.parametrize(
    "annotations",
    [
        {wants.ADDRESS: "198.18.9.9"},
        {wants.ADDRESS: "10.1.1.1"},
        {wants.POOL: "nowhere"},
        {wants.POOL: "tiny"},
        {wants.VERSION: "v6"},
        {wants.VERSION: "v5"},
        {wants.NAME: "nothing-of-that-name"},
        {wants.ADDRESS: "198.18.9.9", wants.POOL: "tiny"},
    ],
)
async def test_a_change_that_fails_keeps_the_old_address(annotations: dict[str, str]) -> None:
    async with world() as w:
        w.cloud.add_pool("tiny", "203.0.113.0/31")
        w.cloud.create_floating_ip("theirs", ip="198.18.9.9")
        w.cloud.create_floating_ip("theirs-too", ip="203.0.113.1")
        targets = [w.node("n1")]
        one = w.provider()
        service = w.service("web")
        await one.load_balancers.ensure(CLUSTER, service, targets)
        before = w.ips()
        changed = w.service("web", annotations=annotations)
        with pytest.raises(errors.BedplateError):
            await one.load_balancers.ensure(CLUSTER, changed, targets)
        assert w.ips() == before and w.holder(service) == "n1"
        # And when the change is taken back, nothing is left of it.
        await one.load_balancers.ensure(CLUSTER, w.service("web"), targets)
        assert w.ips() == before


async def test_an_address_that_no_node_can_have_does_not_stop_the_other_family() -> None:
    async with world(has_v6_pool=True) as w:
        unknown = w.node("n1")
        blank = core.Node(metadata=unknown.node.metadata, spec=unknown.node.spec)
        service = w.service("web", ip_families=("IPv4", "IPv6"), ip_family_policy="PreferDualStack")
        status = await w.provider().load_balancers.ensure(CLUSTER, service, [Target(blank)])
        assert [":" in ip for ip in addresses(status)][:1] == [False]
        assert [bool(found["instance_id"]) for found in w.ips_of(service) if "." in found["ip"]] == [True]


async def test_a_dual_stack_service_has_an_address_of_each_family_on_one_node() -> None:
    async with world(has_v6_pool=True) as w:
        targets = [w.node("four"), w.node("both", addresses=["172.30.1.1", "fd00::1"])]
        service = w.service("web", ip_families=("IPv6", "IPv4"), ip_family_policy="RequireDualStack")
        one = w.provider()
        status = await one.load_balancers.ensure(CLUSTER, service, targets)
        made = w.ips_of(service)
        assert sorted(found["name"] for found in made) == ["prod-shop-web", "prod-shop-web-v6"]
        assert {found["instance_id"] for found in made} == {w.cloud.get("both").id}
        assert ":" in addresses(status)[0] and "." in addresses(status)[1]
        single = w.service("web", ip_families=("IPv4",), ip_family_policy="SingleStack")
        await one.load_balancers.ensure(CLUSTER, single, targets)
        assert [found["name"] for found in w.ips_of(single)] == ["prod-shop-web"]
        await one.load_balancers.delete(CLUSTER, single)
        assert w.ips() == []


@pytest.mark.parametrize("has_v6_pool", [True, False])
async def test_prefer_dual_stack_takes_what_there_is(has_v6_pool: bool) -> None:
    async with world(has_v6_pool=has_v6_pool) as w:
        service = w.service("web", ip_families=("IPv4", "IPv6"), ip_family_policy="PreferDualStack")
        one = w.provider()
        four = await one.load_balancers.ensure(CLUSTER, service, [w.node("four")])
        assert [":" in ip for ip in addresses(four)] == [False, False]
        both = w.node("both", addresses=["172.30.1.1", "fd00::1"])
        status = await one.load_balancers.ensure(CLUSTER, service, [both])
        families = [":" in found["ip"] for found in w.ips_of(service) if found["instance_id"]]
        assert sorted(families) == ([False, True] if has_v6_pool else [False])
        assert addresses(status)[-2:] == ["172.30.1.1", "fd00::1"]


async def test_source_ranges_are_told_once_as_not_enforced() -> None:
    async with world() as w:
        one = w.provider()
        targets = [w.node("n1")]
        service = w.service("web", load_balancer_source_ranges=("10.0.0.0/8",))
        for _ in range(2):
            await one.load_balancers.ensure(CLUSTER, service, targets)
        assert w.recorder.reasons() == ["SourceRangesNotEnforced"]
        await one.load_balancers.ensure(
            CLUSTER, w.service("open", load_balancer_source_ranges=("0.0.0.0/0",), ports=((1, "TCP"),)), targets
        )
        assert w.recorder.reasons("open") == []


async def test_a_dry_run_changes_nothing() -> None:
    async with world() as w:
        targets = [w.node("n1"), w.node("n2")]
        service = w.service("web")
        await w.provider(is_dry_run=True).load_balancers.ensure(CLUSTER, service, targets)
        assert w.ips() == []
        await w.provider().load_balancers.ensure(CLUSTER, service, targets)
        before = w.ips()
        dry = w.provider(is_dry_run=True).load_balancers
        holder = w.holder(service)
        await dry.update(CLUSTER, service, [t for t in targets if t.node.name != holder])
        await dry.delete(CLUSTER, service)
        assert w.ips() == before


@pytest.mark.parametrize("operation", ["floating_ip_attach", "floating_ip_detach"])
@pytest.mark.parametrize("fault", ["409", "503", "500"])
async def test_refusals_during_transitions_are_tried_again(operation: str, fault: str) -> None:
    async with world(conditions=Conditions(transition_s=0.7)) as w:
        one = w.provider()
        targets = {name: w.node(name) for name in ("n1", "n2")}
        service = w.service("web")
        w.cloud.faults.add(fault, operation=operation, times=2)
        await one.load_balancers.ensure(CLUSTER, service, list(targets.values()))
        del targets[w.holder(service)]
        await one.load_balancers.update(CLUSTER, service, list(targets.values()))
        assert w.holder(service) in targets


async def test_calls_for_one_service_run_one_after_the_other() -> None:
    async with world(conditions=Conditions(transition_s=0.3)) as w:
        one = w.provider().load_balancers
        targets = [w.node("n1"), w.node("n2")]
        service = w.service("web")
        await asyncio.gather(
            one.ensure(CLUSTER, service, targets),
            one.update(CLUSTER, service, targets[:1]),
            one.update(CLUSTER, service, targets[1:]),
            one.delete(CLUSTER, service),
        )
        assert w.ips() == []
        # 503 is what an address on its way says; anything else would be two of our own calls in each other's way.
        assert {entry.status for entry in w.cloud.journal.entries if entry.method != "GET"} <= {200, 201, 202, 204, 503}


async def test_nodes_on_which_another_service_has_the_port_are_named() -> None:
    async with world(instances=0) as w:
        targets = [w.node("n1"), w.node("n2")]
        first, second, other = w.service("first"), w.service("second"), w.service("other", ports=[(443, "TCP")])
        manager = w.provider()
        await manager.load_balancers.ensure(CLUSTER, first, targets)
        [made] = w.ips_of(first)
        carrier = next(one.node.name for one in targets if made["instance_id"] in one.node.spec.provider_id)
        # As `bedplate ccm explain` asks: a process that has placed nothing itself.
        balancers = w.provider().load_balancers
        assert await balancers.obstacles(CLUSTER, second, targets) == {
            carrier: "port 80/TCP is taken there by shop/first"
        }
        assert await balancers.obstacles(CLUSTER, first, targets) == {}
        assert await balancers.obstacles(CLUSTER, other, targets) == {}
