"""What is to be done about a Service, and why: every branch of the plan, every field that matters."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from bedplate.api import core, meta
from bedplate.cloud.controllers import service_plan as plans
from bedplate.cloud.controllers.targets import Fingerprint, is_local
from bedplate.cloud.interface import same_status
from bedplate.core import errors

OURS = plans.Ownership(("scripted", "second"), {"our.example/lb": "", "two.example/lb": "second"})
NOW = Fingerprint(1, {"a": ("scripted://a", True, ())})
DELETED = datetime(2026, 1, 1, tzinfo=UTC)


def service(
    *, finalizer: bool = False, deleting: bool = False, uid: str = "u1", ingress: str = "", **spec: Any
) -> core.Service:
    metadata = meta.ObjectMeta(
        name="web",
        namespace="n",
        uid=uid,
        resource_version=spec.pop("version", "1"),
        annotations=spec.pop("annotations", {}),
        finalizers=(plans.FINALIZER,) if finalizer else (),
        deletion_timestamp=DELETED if deleting else None,
    )
    balancer = core.LoadBalancerStatus((core.LoadBalancerIngress(ip=ingress),) if ingress else ())
    return core.Service(
        metadata=metadata,
        spec=core.ServiceSpec(**{"type": "LoadBalancer", "ports": (core.ServicePort(port=80),), **spec}),
        status=core.ServiceStatus(load_balancer=balancer),
    )


def remembered(one: core.Service, **more: Any) -> plans.Memory:
    """As after a successful ensure."""
    memory = plans.Memory(one, "scripted", may_exist=True, ensured=one, announced=one, targets=NOW)
    return replace(memory, **more)


def only(one: core.Service | None, memory: plans.Memory | None = None, now: Fingerprint | None = NOW) -> plans.Step:
    steps = plans.plan(one, memory, OURS, now)
    assert len(steps) == 1
    assert steps[0].why
    return steps[0]


# Whose


@pytest.mark.parametrize(
    ("wanted", "provider"),
    [(None, "scripted"), ("our.example/lb", "scripted"), ("two.example/lb", "second"), ("else.example/lb", "")],
)
def test_the_class_decides_whose_a_service_is(wanted: str | None, provider: str) -> None:
    owner = OURS.owner(service(load_balancer_class=wanted))
    assert owner.provider == provider
    assert owner.why


def test_other_types_and_switched_off_defaults_are_nobodys() -> None:
    assert OURS.owner(service(type="NodePort")).provider == ""
    assert replace(OURS, takes_unset=False).owner(service()).provider == ""
    assert plans.Ownership(()).owner(service()).provider == ""


def test_class_flags_are_read_and_refused_with_every_fault() -> None:
    assert plans.parse_classes(["a.example/b", "c=second"]) == {"a.example/b": "", "c": "second"}
    with pytest.raises(errors.Invalid) as caught:
        plans.parse_classes(["", "not a name", "x", "x"])
    assert len(caught.value.problems) == 3
    with pytest.raises(errors.Invalid, match="third"):
        plans.Ownership(("scripted",), {"x": "third"})


# What changed

CHANGES: dict[str, Any] = {
    "loadBalancerSourceRanges": {"load_balancer_source_ranges": ("10.0.0.0/8",)},
    "sessionAffinity": {"session_affinity": "ClientIP"},
    "sessionAffinityConfig": {"session_affinity_config": core.SessionAffinityConfig(core.ClientIPConfig(30))},
    "loadBalancerIP": {"load_balancer_ip": "192.0.2.1"},
    "externalIPs": {"external_ips": ("192.0.2.1",)},
    "externalTrafficPolicy": {"external_traffic_policy": "Local"},
    "healthCheckNodePort": {"health_check_node_port": 30000},
    "ipFamilyPolicy": {"ip_family_policy": "PreferDualStack"},
    "ipFamilies": {"ip_families": ("IPv6",)},
    "loadBalancerClass": {"load_balancer_class": "our.example/lb"},
    "annotations": {"annotations": {"a": "b"}},
    "uid": {"uid": "u2"},
    "ports": {"ports": (core.ServicePort(port=80), core.ServicePort(port=81))},
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_matters_is_named(name: str) -> None:
    before = service(ip_families=("IPv4",))
    after = service(**{"ip_families": ("IPv4",), **CHANGES[name]})
    assert plans.update_reason(before, after, OURS) == f"changed: {name}"
    assert plans.update_reason(before, before, OURS) == ""


@pytest.mark.parametrize(
    "port",
    [
        core.ServicePort(port=80, name="http"),
        core.ServicePort(port=80, protocol="UDP"),
        core.ServicePort(port=80, node_port=30000),
        core.ServicePort(port=80, target_port="web"),
        core.ServicePort(port=80, app_protocol="h2c"),
        core.ServicePort(port=8080),
    ],
)
def test_every_field_of_a_port_matters(port: core.ServicePort) -> None:
    assert plans.update_reason(service(), service(ports=(port,)), OURS) == "changed: ports"


def test_the_order_of_families_matters_and_labels_selector_or_status_do_not() -> None:
    both = ("IPv4", "IPv6")
    assert plans.update_reason(service(ip_families=both), service(ip_families=both[::-1]), OURS)
    other = service(selector={"a": "b"}, ingress="192.0.2.1", version="2", finalizer=True)
    assert plans.update_reason(service(), other, OURS) == ""


def test_services_that_neither_want_one_never_need_an_update() -> None:
    before, after = service(type="NodePort"), service(type="NodePort", annotations={"a": "b"})
    assert plans.update_reason(before, after, OURS) == ""
    assert plans.update_reason(service(), after, OURS) == "it no longer needs a load balancer"
    assert plans.update_reason(after, service(), OURS) == "it needs a load balancer now"


def test_an_absent_ip_mode_is_vip_and_nothing_else_is_forgiven() -> None:
    def status(*entries: core.LoadBalancerIngress) -> core.LoadBalancerStatus:
        return core.LoadBalancerStatus(entries)

    entry = core.LoadBalancerIngress
    assert same_status(status(entry(ip="1.1.1.1")), status(entry(ip="1.1.1.1", ip_mode="VIP")))
    assert not same_status(status(entry(ip="1.1.1.1")), status(entry(ip="1.1.1.1", ip_mode="Proxy")))
    assert not same_status(status(entry(ip="1.1.1.1")), status())
    both = (entry(ip="1.1.1.1"), entry(hostname="x"))
    assert not same_status(status(*both), status(*both[::-1]))


def test_patches_carry_finalizers_and_status_and_never_the_spec() -> None:
    one = service(finalizer=True)
    status = core.LoadBalancerStatus((core.LoadBalancerIngress(ip="1.1.1.1", ip_mode="Proxy"),))
    for patch in (
        plans.add_finalizer_patch(one),
        plans.release_patch(one, clears_status=True),
        plans.release_patch(one, clears_status=False),
        plans.status_patch(one, status),
    ):
        assert set(patch) <= {"metadata", "status"}
        assert patch["metadata"]["uid"] == "u1"
        msgspec.json.encode(patch)
    assert plans.status_patch(one, status)["status"] == {
        "loadBalancer": {"ingress": [{"ip": "1.1.1.1", "ipMode": "Proxy"}]}
    }


# What to do


def test_a_new_service_is_ensured_with_finalizer_and_announcement() -> None:
    step = only(service())
    assert isinstance(step, plans.Ensure)
    assert (step.provider, step.adds_finalizer, step.announces) == ("scripted", True, True)


def test_after_a_restart_a_served_service_is_confirmed_silently() -> None:
    step, sweep = plans.plan(service(finalizer=True, ingress="192.0.2.1"), None, OURS, NOW)
    assert isinstance(step, plans.Ensure)
    assert (step.adds_finalizer, step.announces) == (False, False)
    assert isinstance(sweep, plans.Sweep)
    assert sweep.providers == ("second",), "who made it is not known: the other must have nothing"


def test_a_retry_is_not_announced_but_a_new_wish_is() -> None:
    one = service(finalizer=True)
    failed = remembered(one).failed()
    again = only(one, failed)
    assert isinstance(again, plans.Ensure)
    assert not again.announces
    other = only(service(finalizer=True, annotations={"a": "b"}), failed)
    assert isinstance(other, plans.Ensure)
    assert other.announces


def test_a_change_reverted_after_a_failure_is_still_made_so() -> None:
    one = service(finalizer=True)
    assert isinstance(only(one, remembered(one).failed()), plans.Ensure)


def test_unchanged_and_told_of_its_targets_nothing_is_done() -> None:
    one = service(finalizer=True)
    assert isinstance(only(one, remembered(one)), plans.Nothing)


def test_other_targets_alone_lead_to_an_update_that_says_which() -> None:
    one = service(finalizer=True)
    later = Fingerprint(2, {"b": ("scripted://b", True, ())})
    step = only(one, remembered(one), later)
    assert isinstance(step, plans.Update)
    assert "new: b" in step.why
    assert "gone: a" in step.why


def test_a_stripped_finalizer_is_put_back_once_the_cache_has_moved() -> None:
    one = service()
    assert isinstance(only(one, remembered(one)), plans.Nothing), "the cache cannot show our own patch yet"
    step = only(service(version="2"), remembered(one))
    assert isinstance(step, plans.Ensure)
    assert step.adds_finalizer


def test_a_status_that_somebody_changed_is_written_again() -> None:
    published = core.LoadBalancerStatus((core.LoadBalancerIngress(ip="192.0.2.1"),))
    one = service(finalizer=True)
    memory = remembered(one, published=published)
    assert isinstance(only(one, memory), plans.Nothing), "the cache cannot show our own patch yet"
    assert isinstance(only(service(finalizer=True, version="2", ingress="192.0.2.1"), memory), plans.Nothing)
    step = only(service(finalizer=True, version="2"), memory)
    assert isinstance(step, plans.Ensure)
    assert not step.announces


def test_deletion_cleans_up_with_the_provider_that_made_it_or_else_with_all() -> None:
    one = service(finalizer=True, deleting=True, ingress="192.0.2.1")
    known = only(one, remembered(service(finalizer=True)))
    assert isinstance(known, plans.Delete)
    assert (known.providers, known.has_finalizer, known.clears_status) == (("scripted",), True, False)
    unknown = only(one)
    assert isinstance(unknown, plans.Delete)
    assert unknown.providers == ("scripted", "second")


@pytest.mark.parametrize(("its_class", "is_cleared"), [(None, True), ("else.example/lb", False)])
def test_a_deleted_service_that_others_hold_shows_no_address_of_ours(its_class: str | None, is_cleared: bool) -> None:
    one = service(finalizer=True, deleting=True, ingress="192.0.2.1", load_balancer_class=its_class)
    metadata = msgspec.structs.replace(one.metadata, finalizers=("example.com/other", plans.FINALIZER))
    step = only(msgspec.structs.replace(one, metadata=metadata))
    assert isinstance(step, plans.Delete)
    assert step.clears_status == is_cleared


def test_a_change_of_type_cleans_up_and_clears_the_status() -> None:
    step = only(service(finalizer=True, type="ClusterIP", ingress="192.0.2.1"))
    assert isinstance(step, plans.Delete)
    assert step.clears_status


def test_a_foreign_class_is_left_alone_even_with_our_finalizer_until_it_is_deleted() -> None:
    step = only(service(finalizer=True, load_balancer_class="else.example/lb"))
    assert isinstance(step, plans.Forget)
    assert "finalizer stays" in step.why
    assert isinstance(only(service(finalizer=True, deleting=True, load_balancer_class="else.example/lb")), plans.Delete)


def test_a_service_that_moves_to_another_provider_is_served_there_then_removed_from_the_first() -> None:
    moved = service(finalizer=True, load_balancer_class="two.example/lb")
    steps = plans.plan(moved, remembered(service(finalizer=True)), OURS, NOW)
    assert [type(step) for step in steps] == [plans.Ensure, plans.Sweep]
    assert isinstance(steps[0], plans.Ensure)
    assert (steps[0].provider, steps[0].others) == ("second", ("scripted",))
    # As long as that has not succeeded, it is tried again, and a deletion asks both.
    memory = remembered(moved, provider="second", unswept=("scripted",))
    assert [type(step) for step in plans.plan(moved, memory, OURS, NOW)] == [plans.Nothing, plans.Sweep]
    deleted = only(service(finalizer=True, deleting=True, load_balancer_class="two.example/lb"), memory)
    assert isinstance(deleted, plans.Delete)
    assert deleted.providers == ("second", "scripted")


def test_a_service_that_somebody_elses_class_took_over_loses_ours() -> None:
    step = only(service(finalizer=True, load_balancer_class="else.example/lb"), remembered(service(finalizer=True)))
    assert isinstance(step, plans.Delete)
    assert not step.clears_status, "the status may be the other's by now"


def test_deleting_without_our_finalizer_is_dropped_or_released_and_never_patched() -> None:
    one = service(deleting=True)
    assert isinstance(only(one), plans.Forget)
    assert isinstance(only(one, remembered(service())), plans.Release)
    assert isinstance(only(one, remembered(service(), may_exist=False)), plans.Forget)


def test_a_service_that_is_gone() -> None:
    assert isinstance(only(None), plans.Nothing)
    assert isinstance(only(None, remembered(service())), plans.Release)
    assert isinstance(only(None, remembered(service(), may_exist=False)), plans.Forget)


def test_another_uid_releases_the_old_one_first() -> None:
    steps = plans.plan(service(uid="u2"), remembered(service()), OURS, NOW)
    assert [type(step) for step in steps] == [plans.Release, plans.Ensure]
    unmade = plans.plan(service(uid="u2"), remembered(service(), may_exist=False), OURS, NOW)
    assert [type(step) for step in unmade] == [plans.Ensure]


def test_only_a_load_balancer_can_ask_for_local_traffic() -> None:
    assert is_local(service(external_traffic_policy="Local"))
    assert not is_local(service(type="NodePort", external_traffic_policy="Local"))
