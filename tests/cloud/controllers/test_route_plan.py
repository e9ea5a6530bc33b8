"""Which routes are made, kept and removed; whole sets of nodes and routes at random."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cloud.controllers.balancers import internal

from bedplate.api import core, meta
from bedplate.cloud.controllers import route_plan as plans
from bedplate.cloud.interface import Route
from bedplate.core import errors

CLUSTER = plans.parse_cluster_cidrs("10.244.0.0/16,fd00::/48")


def node(name: str, *cidrs: str, address: str = "10.0.0.1", condition: meta.Condition | None = None) -> core.Node:
    return core.Node(
        metadata=meta.ObjectMeta(name=name, uid=f"uid-{name}"),
        spec=core.NodeSpec(pod_cidrs=cidrs),
        status=core.NodeStatus(
            addresses=(core.NodeAddress("InternalIP", address),), conditions=(condition,) if condition else ()
        ),
    )


@pytest.mark.parametrize(
    ("text", "count"), [("10.0.0.0/8", 1), ("10.0.0.5/8", 1), ("10.0.0.0/8, fd00::/64", 2), ("fd00::/64,10.0.0.0/8", 2)]
)
def test_cluster_cidrs_of_one_or_two_families_are_read(text: str, count: int) -> None:
    assert len(plans.parse_cluster_cidrs(text)) == count


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "missing"),
        ("10.0.0.0/8,", "missing"),
        ("10.0.0.0/8,11.0.0.0/8", "families"),
        ("fd00::/64,fd01::/64", "families"),
        ("10.0.0.0/8,fd00::/64,fd01::/64", "at most two"),
        ("ten/8", "not a CIDR"),
        ("10.0.0.0/40", "not a CIDR"),
    ],
)
def test_other_cluster_cidrs_are_refused_with_the_reason(text: str, word: str) -> None:
    with pytest.raises(errors.Invalid, match=word):
        plans.parse_cluster_cidrs(text)


def test_a_missing_route_is_added_and_a_present_one_kept() -> None:
    present = Route("r1", "a", "10.244.0.0/24")
    todo = plans.plan([node("a", "10.244.0.0/24", "fd00::/64")], [present], CLUSTER)
    assert [one.route.destination_cidr for one in todo.creations] == ["fd00::/64"]
    assert todo.deletions == ()
    assert not todo.deletes_first
    assert todo.judged == {"a": True}


def test_the_same_network_in_another_spelling_is_the_same_route() -> None:
    todo = plans.plan([node("a", "fd00:0:0:1::/64")], [Route("r", "a", "fd00:0000:0:1:0::/64")], CLUSTER)
    assert (todo.creations, todo.deletions) == ((), ())


def test_changed_addresses_replace_a_route_that_carries_them() -> None:
    old = Route("r", "a", "10.244.0.0/24", True, (internal("10.0.0.9"),))
    todo = plans.plan([node("a", "10.244.0.0/24")], [old], CLUSTER)
    assert [one.route for one in todo.deletions] == [old]
    assert [(one.replaces, one.route.target_node_addresses) for one in todo.creations] == [
        (old, (internal("10.0.0.1"),))
    ]
    assert todo.deletes_first
    # The order of addresses says nothing, and a route without addresses does not care.
    for fine in (Route("r", "a", "10.244.0.0/24", True, (internal("10.0.0.1"),)), Route("r", "a", "10.244.0.0/24")):
        same = plans.plan([node("a", "10.244.0.0/24")], [fine], CLUSTER)
        assert (same.creations, same.deletions) == ((), ())


@pytest.mark.parametrize(
    ("route", "is_deleted"),
    [
        (Route("unknown node", "z", "10.244.9.0/24"), True),
        (Route("unknown cidr", "a", "10.244.9.0/24"), True),
        (Route("no node", "", "10.244.9.0/24"), True),
        (Route("blackhole", "z", "10.244.9.0/24", is_blackhole=True), True),
        (Route("larger than the cluster", "z", "10.0.0.0/8"), False),
        (Route("begins inside", "z", "10.244.255.0/23"), True),
        (Route("elsewhere", "z", "192.168.0.0/24"), False),
        (Route("elsewhere, nowhere", "", "192.168.0.0/24", is_blackhole=True), False),
        (Route("unreadable", "z", "default"), False),
        (Route("six", "z", "fd00:0:0:9::/64"), True),
        (Route("spared", "theirs", "10.244.9.0/24"), False),
    ],
    ids=lambda value: value.name if isinstance(value, Route) else str(value),
)
def test_only_routes_within_the_cluster_are_removed(route: Route, is_deleted: bool) -> None:
    todo = plans.plan(
        [node("a", "10.244.0.0/24")], [Route("r", "a", "10.244.0.0/24"), route], CLUSTER, spared={"theirs"}
    )
    assert [one.route for one in todo.deletions] == ([route] if is_deleted else [])
    if not is_deleted:
        assert any(route.name in note for note in todo.notes)


def test_a_blackhole_of_a_living_node_is_replaced() -> None:
    hole = Route("r", "a", "10.244.0.0/24", is_blackhole=True)
    todo = plans.plan([node("a", "10.244.0.0/24")], [hole], CLUSTER)
    assert [one.route for one in todo.deletions] == [hole]
    assert [one.replaces for one in todo.creations] == [hole]
    assert todo.deletes_first


def test_of_two_good_routes_none_is_removed_and_a_good_one_beats_a_bad_one() -> None:
    hole, one, two = (
        Route("r1", "a", "10.244.0.0/24", is_blackhole=True),
        Route("r2", "a", "10.244.0.0/24"),
        Route("r3", "a", "10.244.0.0/24"),
    )
    todo = plans.plan([node("a", "10.244.0.0/24")], [hole, one, two], CLUSTER)
    assert [step.route for step in todo.deletions] == [hole]
    assert todo.creations == ()


def test_below_a_selection_only_nodes_seen_before_are_missed() -> None:
    routes = [Route("r1", "seen", "10.244.1.0/24"), Route("r2", "never", "10.244.2.0/24")]
    todo = plans.plan([], routes, CLUSTER, judges={"seen"})
    assert [one.route.name for one in todo.deletions] == ["r1"]


def test_a_node_without_cidrs_is_spoken_of_only_if_it_has_routes() -> None:
    assert plans.plan([node("a")], [], CLUSTER).judged == {}
    assert plans.plan([node("a")], [Route("r", "a", "10.244.0.0/24")], CLUSTER).judged == {"a": False}


def test_the_condition_is_written_only_when_status_or_reason_differ() -> None:
    def with_condition(status: str, reason: str) -> core.Node:
        return node("a", condition=meta.Condition(plans.CONDITION, status, reason))

    assert plans.unavailable_condition(node("a"), True) == ("False", "RouteCreated", "RouteController created a route")
    assert plans.unavailable_condition(with_condition("False", "RouteCreated"), True) is None
    assert plans.unavailable_condition(with_condition("False", "CalicoIsUp"), True) is not None
    failed = ("True", "NoRouteCreated", "RouteController failed to create a route")
    assert plans.unavailable_condition(with_condition("False", "RouteCreated"), False) == failed
    assert plans.unavailable_condition(with_condition("True", "NoRouteCreated"), False) is None


names = st.sampled_from("abcd")
cidrs = st.integers(0, 5).map(lambda number: f"10.244.{number}.0/24")
routes = st.builds(
    Route,
    name=st.uuids().map(str),
    target_node=st.sampled_from(["", *"abcd", "gone"]),
    destination_cidr=cidrs | st.just("192.168.0.0/24"),
    is_blackhole=st.booleans(),
)


@given(
    st.dictionaries(names, st.lists(cidrs, max_size=2, unique=True), max_size=4),
    st.lists(routes, max_size=8, unique_by=lambda route: route.name),
)
def test_after_the_plan_every_cidr_has_its_route_and_nothing_else_is_left(
    wanted: dict[str, list[str]], present: list[Route]
) -> None:
    nodes = [node(name, *own) for name, own in wanted.items()]
    todo = plans.plan(nodes, present, CLUSTER)
    after = [route for route in present if route not in {one.route for one in todo.deletions}]
    after += [one.route for one in todo.creations]
    ours = [route for route in after if ipaddress.ip_network(route.destination_cidr).subnet_of(CLUSTER[0])]  # type: ignore[arg-type]
    assert not any(route.is_blackhole for route in ours)
    assert {(route.target_node, route.destination_cidr) for route in ours} == {
        (name, cidr) for name, own in wanted.items() for cidr in own
    }
    outside = [route for route in present if route.destination_cidr.startswith("192.")]
    assert all(route in after for route in outside)
    again = plans.plan(nodes, after, CLUSTER)
    assert (again.creations, again.deletions) == ((), ())
