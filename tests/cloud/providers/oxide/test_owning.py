"""Ownership of floating IPs: names that collide, deletion, and what is kept, borrowed, inherited and given back."""

from __future__ import annotations

import pytest
from tests.cloud.providers.oxide.world import CLUSTER, addresses, record, world

from bedplate.api import core
from bedplate.cloud.errors import CloudError, RetryError
from bedplate.cloud.providers.oxide import ownership, plan, wants
from bedplate.core import errors
from bedplate.sim.clouds import Conditions

LEGACY = ownership.LEGACY_DESCRIPTION


async def test_services_whose_names_collide_both_get_an_address() -> None:
    async with world() as w:
        one = w.provider()
        targets = [w.node("n1"), w.node("n2")]
        first = w.service("c", namespace="a-b")
        second = w.service("b-c", namespace="a")
        assert one.load_balancers.name(CLUSTER, first) == one.load_balancers.name(CLUSTER, second)
        one_status = await one.load_balancers.ensure(CLUSTER, first, targets)
        two_status = await one.load_balancers.ensure(CLUSTER, second, targets)
        assert addresses(one_status)[0] != addresses(two_status)[0]
        assert w.recorder.reasons() == ["FloatingIPNotOwned"]
        await one.load_balancers.delete(CLUSTER, second)
        assert [made["ip"] for made in w.ips()] == [addresses(one_status)[0]]


async def test_an_address_of_another_cluster_is_never_touched() -> None:
    async with world() as w:
        service = w.service("web")
        theirs = record(service, cluster="another-cluster", uid="other-uid")
        w.node("n1")
        kept = w.cloud.create_floating_ip("prod-shop-web", description=theirs, attach_to="n1")
        before = dict(w.cloud.floating_ip(kept) or {})
        one = w.provider()
        await one.load_balancers.ensure(CLUSTER, service, [w.node("n1")])
        assert w.ips_of(service)[0]["id"] != kept
        await one.load_balancers.delete(CLUSTER, service)
        assert [dict(found) for found in w.ips()] == [before]


@pytest.mark.parametrize("description", ["", "my own", LEGACY])
async def test_an_address_of_a_stranger_is_never_touched(description: str) -> None:
    async with world() as w:
        w.cloud.add("not-a-node")
        w.cloud.create_floating_ip("prod-shop-web", description=description, attach_to="not-a-node")
        before = [dict(found) for found in w.ips()]
        service = w.service("web")
        one = w.provider()
        with pytest.raises(plan.FloatingIpNotOwned, match="prod-shop-web"):
            await one.load_balancers.ensure(CLUSTER, service, [w.node("n1")])
        assert w.recorder.reasons("web") == ["FloatingIPNotOwned"]
        assert await one.load_balancers.get(CLUSTER, service) is None
        await one.load_balancers.delete(CLUSTER, service)
        assert [dict(found) for found in w.ips()] == before


@pytest.mark.parametrize("attached_to", ["", "n1"])
async def test_an_address_of_the_original_is_adopted(attached_to: str) -> None:
    async with world() as w:
        targets = [w.node("n1"), w.node("n2")]
        kept = w.cloud.create_floating_ip("prod-shop-web", description=LEGACY, attach_to=attached_to)
        service = w.service("web")
        await w.provider().load_balancers.ensure(CLUSTER, service, targets)
        [made] = w.ips_of(service)
        assert made["id"] == kept and w.calls("floating_ip_create") == 0
        if attached_to:
            assert w.holder(service) == attached_to and w.calls("floating_ip_detach") == 0


async def test_long_names_do_not_meet() -> None:
    async with world() as w:
        one = w.provider()
        targets = [w.node("n1"), w.node("n2")]
        services = [w.service("s" * 62 + end, namespace="n" * 63) for end in "ab"]
        assert len({one.load_balancers.name(CLUSTER, service) for service in services}) == 2
        for service in services:
            await one.load_balancers.ensure(CLUSTER, service, targets)
        assert w.recorder.reasons() == [] and len(w.ips()) == 2


async def test_the_next_service_of_a_name_inherits_what_the_last_one_left() -> None:
    async with world() as w:
        targets = [w.node("n1")]
        first = w.service("web")
        await w.provider().load_balancers.ensure(CLUSTER, first, targets)
        second = w.service("web", uid="the-next-one")
        await w.provider().load_balancers.ensure(CLUSTER, second, targets)
        assert len(w.ips()) == len(w.ips_of(second)) == 1
        # The delete of the first may come late.
        await w.provider().load_balancers.delete(CLUSTER, first)
        assert len(w.ips_of(second)) == 1


async def test_deleting_twice_is_deleting_once() -> None:
    async with world(conditions=Conditions(transition_s=1.0)) as w:
        one = w.provider()
        service = w.service("web")
        await one.load_balancers.ensure(CLUSTER, service, [w.node("n1")])
        assert await one.load_balancers.get(CLUSTER, service) is not None
        for _ in range(2):
            await one.load_balancers.delete(CLUSTER, service)
            assert w.ips() == [] and await one.load_balancers.get(CLUSTER, service) is None
        assert w.calls("floating_ip_delete") == 1


@pytest.mark.parametrize("lag_s", [500.0, 5000.0], ids=["one of two", "everything"])
async def test_deleting_finds_replacements_and_what_an_old_list_hides(lag_s: float) -> None:
    async with world() as w:
        w.cloud.add_pool("other", "203.0.113.0/24")
        one, targets = w.provider(), [w.node("n1")]
        service = w.service("web")
        await one.load_balancers.ensure(CLUSTER, service, targets)
        w.time.pass_by(1000)
        w.cloud.conditions.list_lag_s = lag_s
        w.cloud.faults.add("500", operation="floating_ip_attach")
        with pytest.raises(RetryError):
            await one.load_balancers.ensure(CLUSTER, w.service("web", annotations={wants.POOL: "other"}), targets)
        assert len(w.ips()) == 2
        w.cloud.faults.clear()
        await w.provider().load_balancers.delete(CLUSTER, service)
        assert w.ips() == []


async def test_a_create_without_an_answer_is_waited_for() -> None:
    async with world() as w:
        one = w.provider(timeout_s=0.3)
        service = w.service("web")
        w.cloud.faults.add("timeout", operation="floating_ip_create")
        with pytest.raises(CloudError):
            await one.load_balancers.ensure(CLUSTER, service, [w.node("n1")])
        w.cloud.faults.clear()
        with pytest.raises(RetryError, match="no response"):
            await one.load_balancers.delete(CLUSTER, service)
        # The cloud does late what it was asked for.
        w.cloud.create_floating_ip("prod-shop-web", description=record(service))
        w.time.pass_by(61)
        await one.load_balancers.delete(CLUSTER, service)
        assert w.ips() == []


async def test_a_legacy_address_goes_with_its_service_only_when_it_is_certainly_its() -> None:
    async with world() as w:
        service = w.service("web")
        w.cloud.create_floating_ip("prod-shop-web", description=LEGACY, ip="198.18.3.3")
        one = w.provider()
        await one.load_balancers.delete(CLUSTER, service)
        assert len(w.ips()) == 1
        shown = core.LoadBalancerStatus((core.LoadBalancerIngress(ip="198.18.3.3", ip_mode="Proxy"),))
        await one.load_balancers.delete(CLUSTER, w.publish(service, shown))
        assert w.ips() == []


async def test_a_retained_address_outlives_its_service_and_is_found_again() -> None:
    async with world() as w:
        targets = [w.node("n1")]
        keep = {wants.RETAIN: "true"}
        first = w.service("web", annotations=keep)
        status = await w.provider().load_balancers.ensure(CLUSTER, first, targets)
        await w.provider().load_balancers.delete(CLUSTER, first)
        [kept] = w.ips()
        assert kept["instance_id"] is None and kept["description"] == record(first, role="retained")
        await w.provider().load_balancers.delete(CLUSTER, first)
        assert len(w.ips()) == 1
        second = w.service("web", uid="the-next-one", annotations=keep)
        again = await w.provider().load_balancers.ensure(CLUSTER, second, targets)
        assert addresses(again)[0] == addresses(status)[0] and len(w.ips()) == 1


async def test_a_retained_address_survives_every_change_of_the_annotations() -> None:
    async with world() as w:
        pools = [w.cloud.add_pool(f"p{n}", f"203.0.{n}.0/24") for n in range(5)]
        targets, one = [w.node("n1")], w.provider()
        for n in range(5):
            service = w.service("web", annotations={wants.RETAIN: "true", wants.POOL: f"p{n}"})
            service = w.publish(service, await one.load_balancers.ensure(CLUSTER, service, targets))
            assert [found["name"] for found in w.ips_of(service)] == ["prod-shop-web"]
        assert sorted(found["ip_pool_id"] for found in w.ips()) == sorted(pools)
        back = w.service("web", annotations={wants.RETAIN: "true", wants.POOL: "p1"})
        status = await one.load_balancers.ensure(CLUSTER, back, targets)
        assert addresses(status)[0].startswith("203.0.1.") and len(w.ips()) == 5


async def test_what_the_original_uses_for_another_service_cannot_be_borrowed() -> None:
    async with world() as w:
        targets, one = [w.node("n1")], w.provider()
        w.cloud.create_floating_ip("prod-shop-web", description=LEGACY, attach_to="n1")
        before = [dict(found) for found in w.ips()]
        thief = w.service("thief", annotations={wants.NAME: "prod-shop-web"})
        with pytest.raises(plan.FloatingIpNotOwned):
            await one.load_balancers.ensure(CLUSTER, thief, targets)
        assert [dict(found) for found in w.ips()] == before


async def test_naming_ones_own_address_makes_it_last() -> None:
    async with world() as w:
        targets, one = [w.node("n1")], w.provider()
        status = await one.load_balancers.ensure(CLUSTER, w.service("web"), targets)
        named = w.service("web", annotations={wants.NAME: "prod-shop-web"})
        assert addresses(await one.load_balancers.ensure(CLUSTER, named, targets)) == addresses(status)
        await one.load_balancers.delete(CLUSTER, named)
        assert [found["ip"] for found in w.ips()] == addresses(status)[:1]


async def test_a_token_that_sees_nothing_any_more_takes_nothing_for_gone() -> None:
    async with world() as w:
        one, service = w.provider(), w.service("web")
        await one.load_balancers.ensure(CLUSTER, service, [w.node("n1")])
        blind = w.provider({"OXIDE_TOKEN": w.cloud.new_token(roles=[])})
        with pytest.raises(CloudError):
            await blind.load_balancers.delete(CLUSTER, service)
        assert len(w.ips()) == 1


async def test_a_named_address_is_borrowed_and_given_back_as_it_was() -> None:
    async with world() as w:
        w.cloud.create_floating_ip("front-door", description="our public face", ip="198.18.4.4")
        before = [{**found, "time_modified": ""} for found in w.ips()]
        targets = [w.node("n1"), w.node("n2")]
        service = w.service("web", annotations={wants.NAME: "front-door"})
        one = w.provider()
        status = await one.load_balancers.ensure(CLUSTER, service, targets)
        assert addresses(status)[0] == "198.18.4.4"
        assert w.ips()[0]["description"].startswith("our public face [")
        other = w.service("thief", annotations={wants.NAME: "front-door"}, ports=((81, "TCP"),))
        with pytest.raises(plan.FloatingIpNotOwned):
            await one.load_balancers.ensure(CLUSTER, other, targets)
        assert w.recorder.reasons("thief") == ["FloatingIPNotOwned"]
        await one.load_balancers.delete(CLUSTER, service)
        assert [{**found, "time_modified": ""} for found in w.ips()] == before


async def test_leaving_a_named_address_gives_it_back_after_the_new_one_serves() -> None:
    async with world() as w:
        w.cloud.create_floating_ip("front-door", description="our public face", ip="198.18.4.4")
        targets = [w.node("n1")]
        one = w.provider()
        await one.load_balancers.ensure(CLUSTER, w.service("web", annotations={wants.NAME: "front-door"}), targets)
        service = w.service("web")
        status = await one.load_balancers.ensure(CLUSTER, service, targets)
        front = w.cloud.floating_ip("front-door") or {}
        assert front["description"] == "our public face" and front["instance_id"] is None
        assert addresses(status)[0] != "198.18.4.4" and len(w.ips_of(service)) == 1


async def test_without_the_clusters_id_nothing_is_made() -> None:
    async with world() as w:
        one = w.provider(cluster_id=lambda: "")
        with pytest.raises(RetryError, match="id of this cluster"):
            await one.load_balancers.ensure(CLUSTER, w.service("web"), [w.node("n1")])
        assert w.calls() == 0


async def test_a_process_that_does_not_lead_changes_nothing() -> None:
    def refuse() -> None:
        raise errors.Terminal("not leading")

    async with world() as w:
        with pytest.raises(errors.Terminal, match="not leading"):
            await w.provider(guard=refuse).load_balancers.ensure(CLUSTER, w.service("web"), [w.node("n1")])
        assert w.ips() == []


async def test_an_old_list_is_no_proof_of_ownership() -> None:
    async with world() as w:
        one, targets = w.provider(), [w.node("n1"), w.node("n2")]
        service = w.service("web")
        await one.load_balancers.ensure(CLUSTER, service, targets)
        [made] = w.ips_of(service)
        w.time.pass_by(10)
        row = w.cloud.floating_ips.get(made["id"])
        assert row is not None
        theirs = record(service, cluster="another-cluster", uid="other")
        w.cloud.floating.update(row, "theirs-now", theirs)
        before = [dict(found) for found in w.ips()]
        w.cloud.conditions.list_lag_s = 5.0
        for act in (w.provider().load_balancers.delete, w.provider().load_balancers.delete):
            await act(CLUSTER, service)
        with pytest.raises(CloudError):
            left = [target for target in targets if w.cloud.get(target.node.name).id != made["instance_id"]]
            await w.provider().load_balancers.update(CLUSTER, service, left)
        assert [dict(found) for found in w.ips()] == before


@pytest.mark.parametrize("annotations", [{wants.NAME: "front-door"}, {}])
async def test_what_a_predecessor_borrowed_is_inherited_or_given_back(annotations: dict[str, str]) -> None:
    async with world() as w:
        w.cloud.create_floating_ip("front-door", description="our public face")
        targets = [w.node("n1")]
        first = w.service("web", annotations={wants.NAME: "front-door"})
        await w.provider().load_balancers.ensure(CLUSTER, first, targets)
        second = w.service("web", uid="the-next-one", annotations=annotations)
        await w.provider().load_balancers.ensure(CLUSTER, second, targets)
        [made] = w.ips_of(second)
        assert (made["name"] == "front-door") is bool(annotations)
        await w.provider().load_balancers.delete(CLUSTER, second)
        assert [(found["name"], found["description"]) for found in w.ips()] == [("front-door", "our public face")]


@pytest.mark.parametrize(
    "operation", ["floating_ip_list", "floating_ip_view", "floating_ip_detach", "floating_ip_delete"]
)
@pytest.mark.parametrize(
    ("fault", "options"),
    [
        *(("generic-404", {"style": style}) for style in ("route", "unnamed", "html", "plain")),
        *((kind, {}) for kind in ("401", "403", "429", "500", "reset", "truncated-json", "wrong-json")),
    ],
)
async def test_no_fault_is_taken_for_absence(operation: str, fault: str, options: dict[str, str]) -> None:
    async with world() as w:
        service = w.service("web")
        await w.provider().load_balancers.ensure(CLUSTER, service, [w.node("n1")])
        w.cloud.faults.add(fault, fault=options, operation=operation)
        try:
            await w.provider().load_balancers.delete(CLUSTER, service)
        except errors.BedplateError:
            assert len(w.ips()) == 1 or fault in ("truncated-json", "wrong-json", "reset")
        else:
            assert w.ips() == []
        w.cloud.faults.clear()
        await w.provider().load_balancers.delete(CLUSTER, service)
        assert w.ips() == []


async def test_an_earlier_id_of_the_cluster_is_still_its_own() -> None:
    async with world() as w:
        targets, service = [w.node("n1")], w.service("web")
        await w.provider(cluster_id=lambda: "earlier").load_balancers.ensure(CLUSTER, service, targets)
        now = w.provider(cluster_aliases=lambda: frozenset({"earlier"}))
        other = w.service("other")
        with pytest.raises(RetryError):
            await now.load_balancers.ensure(CLUSTER, other, targets)
        assert w.recorder.reasons("other") == ["PortConflict"]
        await now.load_balancers.ensure(CLUSTER, service, targets)
        assert len(w.ips()) == 1
        w.services.remove(service, "2")
        assert [found.name for found in await now._orphans.scan()] == ["prod-shop-web"]
        await now.load_balancers.delete(CLUSTER, service)
        assert w.ips() == []


async def test_an_unused_address_of_the_original_is_not_taken_just_to_be_deleted() -> None:
    async with world() as w:
        w.cloud.create_floating_ip("prod-shop-web", description=LEGACY, ip="198.18.3.3")
        before = [dict(found) for found in w.ips()]
        service = w.service("web", annotations={wants.ADDRESS: "198.18.4.4"})
        with pytest.raises(plan.FloatingIpNotOwned):
            await w.provider().load_balancers.ensure(CLUSTER, service, [w.node("n1")])
        assert [dict(found) for found in w.ips()] == before


async def test_ports_of_what_the_original_attached_count_before_it_is_adopted() -> None:
    async with world() as w:
        targets = [w.node("n1"), w.node("n2")]
        w.service("old")
        w.cloud.create_floating_ip("prod-shop-old", description=LEGACY, attach_to="n1")
        for number in range(3):
            w.cloud.create_floating_ip(f"theirs-{number}", attach_to="n2")
        service = w.service("new")
        await w.provider().load_balancers.ensure(CLUSTER, service, targets)
        assert w.holder(service) == "n2"
