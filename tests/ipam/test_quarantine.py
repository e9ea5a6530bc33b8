"""Blocks of nodes that went away: who may get them, when, and what stands in the annotation."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.ipam import quarantine
from bedplate.ipam.plan_cidrpool import plan_cidrpool
from bedplate.ipam.plan_ippool import plan_ippool
from bedplate.ipam.planning import Held, Mode, Plan, PlanNode, UnplacedWhy
from bedplate.ipam.pools import CIDRPool, IPAllocation, IPPool
from bedplate.ipam.quarantine import Entry, Hold, Policy, Quarantined

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=10)
ALWAYS = Hold(Policy.ALWAYS)
SPEC = {"subnet": "10.0.0.0/24", "perNodeBlockSize": 16}


def planner(
    names: list[str], before: tuple[IPAllocation, ...] = (), spec: dict[str, Any] = SPEC, mode: Mode = Mode.STABLE
) -> Callable[[Held], Plan[IPAllocation]]:
    status = {"allocations": msgspec.to_builtins(before)}
    pool = msgspec.convert({"metadata": {"name": "p"}, "spec": spec, "status": status}, IPPool)
    return lambda held: plan_ippool(pool, [PlanNode(name) for name in names], held, mode)


def starts(made: Quarantined[IPAllocation]) -> dict[str, str]:
    return {one.node_name: one.start_ip for one in made.plan.allocations}


@pytest.fixture
def two() -> tuple[IPAllocation, ...]:
    """Nodes a and b have the first two blocks."""
    return planner(["a", "b"])(Held()).allocations


def test_a_freed_block_is_held_back_in_the_very_plan_that_frees_it(two: tuple[IPAllocation, ...]) -> None:
    made = quarantine.plan_held(planner(["b", "new"], two), (), NOW, ALWAYS)
    assert starts(made) == {"b": "10.0.0.17", "new": "10.0.0.33"}
    assert made.entries == (Entry("10.0.0.1-10.0.0.16", "a", LATER),)
    assert made.next_end() == LATER


def test_the_node_that_comes_back_gets_its_own_block_and_the_entry_goes(two: tuple[IPAllocation, ...]) -> None:
    gone = quarantine.plan_held(planner(["b", "new"], two), (), NOW, ALWAYS)
    back = planner(["a", "b", "new"], gone.plan.allocations)
    made = quarantine.plan_held(back, gone.entries, NOW + timedelta(minutes=1), ALWAYS)
    assert starts(made) == {"a": "10.0.0.1", "b": "10.0.0.17", "new": "10.0.0.33"}
    assert made.entries == () and made.next_end() is None


def test_when_its_time_has_come_anybody_gets_the_block(two: tuple[IPAllocation, ...]) -> None:
    gone = quarantine.plan_held(planner(["b"], two), (), NOW, ALWAYS)
    third = planner(["b", "z"], gone.plan.allocations)
    early = quarantine.plan_held(third, gone.entries, LATER - timedelta(seconds=1), ALWAYS)
    assert starts(early)["z"] == "10.0.0.33" and early.entries == gone.entries
    late = quarantine.plan_held(third, gone.entries, LATER, ALWAYS)
    assert starts(late)["z"] == "10.0.0.1" and late.entries == ()


def test_an_entry_that_is_written_before_the_status_keeps_its_time(two: tuple[IPAllocation, ...]) -> None:
    first = quarantine.plan_held(planner(["b"], two), (), NOW, ALWAYS)
    again = quarantine.plan_held(planner(["b"], two), first.entries, NOW + timedelta(minutes=3), ALWAYS)
    assert again.entries == first.entries and again.plan == first.plan


def test_only_nodes_that_still_had_pods_are_waited_for(two: tuple[IPAllocation, ...]) -> None:
    asked: list[str] = []

    def has_pods(node: str) -> bool:
        asked.append(node)
        return node == "b"

    made = quarantine.plan_held(planner(["x"], two), (), NOW, Hold(Policy.PODS, has_pods=has_pods))
    assert starts(made) == {"x": "10.0.0.1"}
    assert [entry.node for entry in made.entries] == ["b"] and sorted(asked) == ["a", "b"]


def test_switched_off_nothing_is_held_back_and_old_entries_go(two: tuple[IPAllocation, ...]) -> None:
    old = (Entry("10.0.0.33-10.0.0.48", "c", LATER),)
    made = quarantine.plan_held(planner(["b", "x", "y"], two), old, NOW, quarantine.Hold(Policy.OFF))
    assert starts(made) == {"b": "10.0.0.17", "x": "10.0.0.1", "y": "10.0.0.33"} and made.entries == ()


def test_a_block_that_moved_because_of_an_edit_is_not_held_back(two: tuple[IPAllocation, ...]) -> None:
    edited = SPEC | {"exclusions": [{"startIP": "10.0.0.1", "endIP": "10.0.0.16"}]}
    made = quarantine.plan_held(planner(["a", "b"], two, edited), (), NOW, ALWAYS)
    assert starts(made) == {"a": "10.0.0.33", "b": "10.0.0.17"} and made.entries == ()


def test_an_invalid_spec_leaves_all_as_it_is(two: tuple[IPAllocation, ...]) -> None:
    old = (Entry("10.0.0.33-10.0.0.48", "c", LATER),)
    made = quarantine.plan_held(planner([], two, SPEC | {"perNodeBlockSize": 0}), old, NOW, ALWAYS)
    assert made.plan.allocations == two and made.entries == old


def test_a_full_pool_says_that_blocks_are_only_held_back() -> None:
    small = {"subnet": "10.0.0.0/28", "perNodeBlockSize": 7}
    full = planner(["a", "b"], (), small)(Held()).allocations
    made = quarantine.plan_held(planner(["b", "c"], full, small), (), NOW, ALWAYS)
    assert [(one.node, one.why) for one in made.plan.unplaced] == [("c", UnplacedWhy.QUARANTINED)]


def test_a_static_prefix_is_taken_out_of_quarantine() -> None:
    def plan(held: Held) -> Plan[Any]:
        spec = {
            "cidr": "10.0.0.0/16",
            "perNodeNetworkPrefix": 24,
            "staticAllocations": [{"nodeName": "s", "prefix": "10.0.0.0/24"}],
        }
        pool = msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, CIDRPool)
        return plan_cidrpool(pool, [PlanNode("s"), PlanNode("t")], held)

    old = (Entry("10.0.0.0/24", "gone", LATER), Entry("10.0.1.0/24", "gone2", LATER))
    made = quarantine.plan_held(plan, old, NOW, ALWAYS)
    assert [one.prefix for one in made.plan.allocations] == ["10.0.0.0/24", "10.0.2.0/24"]
    assert made.entries == old[1:]


def test_the_annotation_is_json_that_people_can_read() -> None:
    entries = (Entry("10.0.0.17-10.0.0.32", "b", LATER), Entry("10.0.0.1-10.0.0.16", "a", NOW))
    text = quarantine.write(entries)
    assert json.loads(text) == {
        "10.0.0.1-10.0.0.16": {"node": "a", "until": "2026-03-01T12:00:00Z"},
        "10.0.0.17-10.0.0.32": {"node": "b", "until": "2026-03-01T12:10:00Z"},
    }
    reading = quarantine.read(text)
    assert set(reading.entries) == set(entries) and not reading.complaint
    assert quarantine.write(()) == "" and quarantine.read("") == quarantine.read(None) == quarantine.Reading()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("{", 0),
        ("[]", 0),
        ("null", 0),
        ("7", 0),
        ("[" * 5000, 0),
        ('{"10.0.0.0/24": 5}', 0),
        ('{"10.0.0.0/24": {"node": "a"}}', 0),
        ('{"10.0.0.0/24": {"node": 5, "until": "2026-03-01T12:10:00Z"}}', 0),
        ('{"10.0.0.0/24": {"node": "a", "until": "soon"}}', 0),
        ('{"10.0.0.0/24": {"node": "a", "until": "2026-03-01T12:10:00"}}', 0),
        ('{"10.0.0.9-10.0.0.1": {"node": "a", "until": "2026-03-01T12:10:00Z"}}', 0),
        ('{"x": 1, "10.0.0.0/24": {"node": "a", "until": "2026-03-01T12:10:00Z", "more": 1}}', 1),
    ],
)
def test_what_cannot_be_read_is_reported_and_means_nothing(text: str, kept: int) -> None:
    reading = quarantine.read(text)
    assert reading.complaint and len(reading.entries) == kept


@given(st.text() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps))
def test_no_annotation_breaks_the_reader(text: str) -> None:
    quarantine.plan_held(planner(["a"]), quarantine.read(text).entries, NOW, ALWAYS)


def test_a_large_quarantine_is_cut_to_what_an_annotation_holds_and_says_so() -> None:
    many = tuple(
        Entry(f"10.{at // 256}.{at % 256}.0/24", f"node-{at}", LATER + timedelta(seconds=at)) for at in range(4000)
    )
    spec = {"cidr": "10.0.0.0/8", "perNodeNetworkPrefix": 24}
    pool = msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, CIDRPool)
    made = quarantine.plan_held(lambda held: plan_cidrpool(pool, [PlanNode("new")], held), many, NOW, ALWAYS)
    assert len(quarantine.write(made.entries).encode()) <= quarantine.MAX_BYTES
    assert len(made.entries) + len(made.left_out) == 4000 and len(made.left_out) > 1000
    assert min(entry.until for entry in made.entries) > max(entry.until for entry in made.left_out)
    assert [one.prefix for one in made.plan.allocations] == ["10.0.0.0/24"]


@given(st.lists(st.sets(st.sampled_from("abcdefgh")), min_size=1, max_size=8), st.randoms())
def test_over_any_history_no_address_changes_hands_before_its_time(moments: list[set[str]], rng: Any) -> None:
    last_seen: dict[str, tuple[str, datetime]] = {}
    status: tuple[IPAllocation, ...] = ()
    annotation, now = "", NOW
    for names in moments:
        made = quarantine.plan_held(planner(sorted(names), status), quarantine.read(annotation).entries, now, ALWAYS)
        for one in made.plan.allocations:
            owner, left = last_seen.get(one.start_ip, (one.node_name, now))
            assert owner == one.node_name or now - left >= ALWAYS.period
        annotation, gone_at = quarantine.write(made.entries), now
        status = made.plan.allocations
        last_seen |= {one.start_ip: (one.node_name, gone_at) for one in status}
        now += timedelta(minutes=rng.choice([0, 1, 4, 9, 30]))
        # A block counts as left from the moment its node is missing, which is the next plan's.
        last_seen |= {one.start_ip: (one.node_name, now) for one in status}
