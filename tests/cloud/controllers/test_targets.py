"""Which nodes are targets, when readiness counts, and what a change of a node costs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.cloud.controllers.balancers import ScriptedCloud, clouds

from bedplate.api import core, discovery, meta, names
from bedplate.cloud.controllers.targets import TargetBook, nodes_with_endpoints, service_of_slice, verdict
from bedplate.core.clock import ManualClock
from bedplate.runtime.cache import Change

OURS = clouds(ScriptedCloud("scripted"), ScriptedCloud("second", ("second",)))
BORN = datetime(2025, 1, 1, tzinfo=UTC)


def node(
    name: str = "a",
    *,
    provider_id: str | None = None,
    ready: str = "True",
    since: datetime = BORN,
    labels: dict[str, str] | None = None,
    taints: tuple[core.Taint, ...] = (),
    address: str = "10.0.0.1",
    deleting: bool = False,
) -> core.Node:
    return core.Node(
        metadata=meta.ObjectMeta(
            name=name,
            labels=labels or {},
            creation_timestamp=BORN,
            deletion_timestamp=BORN if deleting else None,
        ),
        spec=core.NodeSpec(provider_id=f"scripted://{name}" if provider_id is None else provider_id, taints=taints),
        status=core.NodeStatus(
            addresses=(core.NodeAddress("InternalIP", address),),
            conditions=(meta.Condition("Ready", ready, last_transition_time=since),),
        ),
    )


def book(*, needs_ready: bool = True, delay_s: float = 15.0, time: ManualClock | None = None) -> TargetBook:
    return TargetBook(
        "scripted", needs_ready=needs_ready, delay_s=delay_s, place=OURS.place, time=time or ManualClock()
    )


def put(one: TargetBook, new: core.Node) -> bool:
    return one.observe(Change(new.name, None, new))


def ready_of(one: TargetBook) -> dict[str, bool]:
    return {target.node.name: target.is_ready for target in one.targets()}


@pytest.mark.parametrize(
    ("value", "is_target"),
    [("", False), ("true", False), ("x", False), ("yes", False), ("1", False), ("T", False), ("fALSE", False)]
    + [(text, True) for text in ("0", "f", "F", "FALSE", "false", "False")],
)
def test_exclude_label_is_read_as_go_reads_a_bool(value: str, is_target: bool) -> None:
    one = node(labels={names.LABEL_EXCLUDE_FROM_LOAD_BALANCERS: value})
    assert verdict(one, "scripted", OURS.place).is_target is is_target


@pytest.mark.parametrize(
    ("one", "word"),
    [
        (node(deleting=True), "being deleted"),
        (node(taints=(core.Taint("ToBeDeletedByClusterAutoscaler", "", "NoSchedule"),)), "autoscaler"),
        (node(provider_id=""), "no provider ID"),
        (node(provider_id="aws://i-1"), "aws://i-1"),
        (node(provider_id="scripted://x/other-org/1"), "another organisation"),
        (node(provider_id="second://1"), "machine of second"),
    ],
)
def test_a_node_that_is_no_target_says_why(one: core.Node, word: str) -> None:
    found = verdict(one, "scripted", OURS.place)
    assert not found.is_target
    assert word in found.why


def test_readiness_does_not_decide_who_is_a_target() -> None:
    one = book()
    put(one, node(ready="Unknown"))
    assert ready_of(one) == {"a": False}


async def test_a_flap_shorter_than_the_delay_is_never_seen() -> None:
    time = ManualClock()
    one = book(time=time)
    put(one, node())
    before = one.fingerprint()
    assert not put(one, node(ready="False"))
    await time.advance(14.9)
    one.expire()
    assert ready_of(one) == {"a": True}
    assert not put(one, node())
    await time.advance(60)
    one.expire()
    assert ready_of(one) == {"a": True}
    assert one.fingerprint().is_same(before)
    assert one.next_due_s() is None


async def test_unreadiness_counts_after_the_delay_and_its_end_at_once() -> None:
    time = ManualClock()
    one = book(time=time)
    put(one, node())
    before = one.fingerprint()
    put(one, node(ready="Unknown"))
    assert one.next_due_s() == pytest.approx(15.0)
    await time.advance(10)
    # A heartbeat in between neither restarts the delay nor ends it.
    put(one, node(ready="Unknown", address="10.0.0.1"))
    assert one.next_due_s() == pytest.approx(5.0)
    await time.advance(5)
    one.expire()
    assert ready_of(one) == {"a": False}
    assert not one.fingerprint().is_same(before)
    assert "changed: a" in before.difference(one.fingerprint())
    assert put(one, node())
    assert ready_of(one) == {"a": True}


async def test_after_a_restart_the_delay_goes_on_where_it_stood() -> None:
    time = ManualClock()
    one = book(time=time)
    put(one, node("fresh", ready="False", since=time.now() - timedelta(seconds=10)))
    put(one, node("long", ready="False", since=time.now() - timedelta(seconds=100)))
    put(one, node("never", ready="False", since=BORN))
    assert ready_of(one) == {"fresh": True, "long": False, "never": False}
    assert one.next_due_s() == pytest.approx(5.0)


async def test_a_delay_of_a_node_that_is_gone_is_forgotten() -> None:
    time = ManualClock()
    one = book(time=time)
    put(one, node())
    put(one, node(ready="False"))
    assert one.observe(Change("a", node(), None))
    assert one.next_due_s() is None
    await time.advance(20)
    one.expire()
    assert one.targets() == ()


def test_a_heartbeat_is_no_change_but_targets_carry_the_newest_node() -> None:
    one = book()
    put(one, node())
    before = one.fingerprint()
    beat = node(labels={"x": "y"})
    assert not put(one, beat)
    assert one.fingerprint() == before
    assert one.targets()[0].node is beat


def test_addresses_and_readiness_matter_only_to_providers_that_need_ready_nodes() -> None:
    plain, careful = book(needs_ready=False, delay_s=0), book(delay_s=0)
    for one in (plain, careful):
        put(one, node())
    assert not put(plain, node(address="10.0.0.9", ready="False"))
    assert put(careful, node(address="10.0.0.9"))
    assert put(careful, node(address="10.0.0.9", ready="False"))
    assert put(plain, node(provider_id="scripted://other"))


def test_a_set_that_came_back_to_what_it_was_is_the_same() -> None:
    one = book()
    put(one, node("a"))
    put(one, node("b"))
    before = one.fingerprint()
    one.observe(Change("b", node("b"), None))
    assert not one.fingerprint().is_same(before)
    put(one, node("b"))
    assert one.fingerprint().is_same(before)


def test_local_endpoints_mark_targets_and_change_the_fingerprint() -> None:
    one = book()
    put(one, node("a"))
    put(one, node("b"))
    assert [target.has_endpoints for target in one.targets(frozenset({"b"}))] == [False, True]
    assert not one.fingerprint(frozenset({"b"})).is_same(one.fingerprint(frozenset({"a"})))
    # A provider that does not ask for readiness is not bothered by endpoints either.
    plain = book(needs_ready=False)
    assert plain.fingerprint(frozenset({"b"})).is_same(plain.fingerprint(frozenset({"a"})))


def test_while_all_is_well_with_the_carriers_nobody_elses_readiness_matters() -> None:
    one, on_a = book(delay_s=0), frozenset({"a"})
    put(one, node("a"))
    put(one, node("b"))
    before = one.fingerprint(on_a)
    put(one, node("b", ready="False"))
    now = one.fingerprint(on_a)
    assert before.is_same(now, on_a)
    assert not before.is_same(now, frozenset())
    assert not before.is_same(now, frozenset({"b"})), "it is not ready any more"
    assert not before.is_same(now, frozenset({"gone"}))
    assert not before.is_same(one.fingerprint(frozenset({"b"})), on_a), "its endpoints are gone"
    put(one, node("a", address="10.0.0.9"))
    assert not before.is_same(one.fingerprint(on_a), on_a), "it has moved"
    put(one, node("a"))
    assert before.is_same(one.fingerprint(on_a), on_a)
    put(one, node("c"))
    assert not before.is_same(one.fingerprint(on_a), on_a), "nodes that come and go are always told"
    # One that was unready all the time does not hold the others up.
    put(one, node("a", ready="False"))
    bad = one.fingerprint(on_a)
    put(one, node("b"))
    assert not bad.is_same(one.fingerprint(on_a), on_a)


def test_only_ready_endpoints_count_and_slices_name_their_service() -> None:
    def endpoint(name: str, ready: bool | None) -> discovery.Endpoint:
        return discovery.Endpoint(node_name=name, conditions=discovery.EndpointConditions(ready=ready))

    obj = discovery.EndpointSlice(
        metadata=meta.ObjectMeta(name="s-1", namespace="n", labels={names.LABEL_SERVICE_NAME: "s"}),
        endpoints=(endpoint("a", True), endpoint("b", False), endpoint("c", None), discovery.Endpoint()),
    )
    assert nodes_with_endpoints([obj]) == {"a", "c"}
    assert list(service_of_slice(obj)) == ["n/s"]
    assert list(service_of_slice(discovery.EndpointSlice())) == []
