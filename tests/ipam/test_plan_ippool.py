"""IPPools: the examples of the specification, what edits of a spec do, and networks that no scan gets through."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bedplate.ipam.plan_ippool import cut_blocks, plan_ippool
from bedplate.ipam.planning import (
    NOTHING,
    Freed,
    FreedWhy,
    Held,
    HeldBlock,
    Mode,
    Plan,
    PlanNode,
    Unplaced,
    UnplacedWhy,
)
from bedplate.ipam.pools import IPAllocation, IPPool, IPPoolSpec
from bedplate.ipam.ranges import Range

NAMES = ["host-a", "host-b", "host-c", "k8s-master"]


def plan(
    spec: dict[str, Any],
    names: list[str],
    before: list[tuple[str, str, str]] | Plan[IPAllocation] | None = None,
    held: Held = NOTHING,
    mode: Mode = Mode.STABLE,
) -> Plan[IPAllocation]:
    if isinstance(before, Plan):
        entries = msgspec.to_builtins(before.allocations)
    else:
        entries = [{"nodeName": node, "startIP": start, "endIP": end} for node, start, end in before or []]
    pool = msgspec.convert({"metadata": {"name": "p"}, "spec": spec, "status": {"allocations": entries}}, IPPool)
    return plan_ippool(pool, [PlanNode(name) for name in names], held, mode)


def blocks(made: Plan[IPAllocation]) -> dict[str, str]:
    return {one.node_name: f"{one.start_ip}-{one.end_ip}" for one in made.allocations}


def test_nodes_get_blocks_in_the_order_of_their_names() -> None:
    spec = {"subnet": "192.168.0.0/16", "perNodeBlockSize": 24, "gateway": "192.168.0.1"}
    made = plan(spec, [*reversed(NAMES)])
    assert blocks(made) == {
        "host-a": "192.168.0.1-192.168.0.24",
        "host-b": "192.168.0.25-192.168.0.48",
        "host-c": "192.168.0.49-192.168.0.72",
        "k8s-master": "192.168.0.73-192.168.0.96",
    }
    after = plan(spec, ["host-a", "host-c", "k8s-master", "aaa"], made)
    assert [one.node_name for one in after.allocations] == ["aaa", "host-a", "host-c", "k8s-master"]
    assert blocks(after)["aaa"] == "192.168.0.25-192.168.0.48"
    assert after.freed == (Freed("host-b", "192.168.0.25-192.168.0.48", FreedWhy.NODE_GONE),)


def test_names_sort_by_their_bytes() -> None:
    made = plan({"subnet": "10.0.0.0/24", "perNodeBlockSize": 2}, ["b", "B", "a-1", "a.1", "a1"])
    assert [one.node_name for one in made.allocations] == ["B", "a-1", "a.1", "a1", "b"]


def test_a_node_without_a_block_is_named_and_others_are_served() -> None:
    made = plan({"subnet": "192.168.0.0/24", "perNodeBlockSize": 64}, NAMES)
    assert list(blocks(made).values()) == [
        "192.168.0.1-192.168.0.64",
        "192.168.0.65-192.168.0.128",
        "192.168.0.129-192.168.0.192",
    ]
    assert made.unplaced == (Unplaced("k8s-master", UnplacedWhy.EXHAUSTED),)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"subnet": "192.168.0.0/24", "perNodeBlockSize": 127},
            ["192.168.0.1-192.168.0.127", "192.168.0.128-192.168.0.254"],
        ),
        ({"subnet": "10.0.0.0/31", "perNodeBlockSize": 1}, ["10.0.0.0-10.0.0.0", "10.0.0.1-10.0.0.1"]),
        ({"subnet": "10.0.0.0/31", "perNodeBlockSize": 2}, ["10.0.0.0-10.0.0.1"]),
        ({"subnet": "10.0.0.7/32", "perNodeBlockSize": 1, "gateway": "10.0.0.7"}, []),
        ({"subnet": "10.0.0.7/32", "perNodeBlockSize": 1}, ["10.0.0.7-10.0.0.7"]),
        ({"subnet": "fd00::/127", "perNodeBlockSize": 1, "gateway": "fd00::"}, ["fd00::1-fd00::1"]),
        ({"subnet": "fd00::9/128", "perNodeBlockSize": 1}, ["fd00::9-fd00::9"]),
        ({"subnet": "fd00::/126", "perNodeBlockSize": 1}, ["fd00::1-fd00::1", "fd00::2-fd00::2", "fd00::3-fd00::3"]),
        (
            {"subnet": "10.0.0.0/30", "perNodeBlockSize": 1, "gateway": "10.0.0.1"},
            ["10.0.0.2-10.0.0.2"],
        ),
    ],
)
def test_small_networks(spec: dict[str, Any], expected: list[str]) -> None:
    assert list(blocks(plan(spec, NAMES)).values()) == expected


def test_blocks_of_an_ipv6_subnet() -> None:
    made = plan({"subnet": "fd52:2eb5:44::/48", "perNodeBlockSize": 500}, ["a", "b"])
    assert list(blocks(made).values()) == [
        "fd52:2eb5:44::1-fd52:2eb5:44::1f4",
        "fd52:2eb5:44::1f5-fd52:2eb5:44::3e8",
    ]


def test_a_block_that_is_excluded_in_part_is_given() -> None:
    excluded = [{"startIP": "10.0.0.1", "endIP": "10.5.255.255"}]
    made = plan({"subnet": "10.0.0.0/8", "perNodeBlockSize": 10, "exclusions": excluded}, ["a"])
    assert blocks(made) == {"a": "10.5.255.251-10.6.0.4"}


@pytest.mark.parametrize(
    "entry",
    [
        ("host-a", "192.168.0.2", "192.168.0.25"),
        ("host-a", "192.168.0.1", "192.168.0.25"),
        ("host-a", "192.168.0.24", "192.168.0.1"),
        ("host-a", "192.167.0.1", "192.167.0.24"),
        ("host-a", "fd00::1", "fd00::18"),
        ("host-a", "", "x"),
        ("host-a", "192.168.0.0", "192.168.0.23"),
    ],
)
def test_an_entry_that_is_no_block_is_replaced(entry: tuple[str, str, str]) -> None:
    spec = {"subnet": "192.168.0.0/16", "perNodeBlockSize": 24}
    other = ("host-b", "192.168.0.49", "192.168.0.72")
    made = plan(spec, ["host-a", "host-b"], [entry, other])
    assert blocks(made) == {"host-a": "192.168.0.1-192.168.0.24", "host-b": "192.168.0.49-192.168.0.72"}


def test_of_two_nodes_with_one_block_the_first_in_the_status_keeps_it() -> None:
    spec = {"subnet": "192.168.0.0/16", "perNodeBlockSize": 24}
    twice = [("host-b", "192.168.0.1", "192.168.0.24"), ("host-a", "::ffff:192.168.0.1", "192.168.0.24")]
    made = plan(spec, ["host-a", "host-b"], twice)
    assert blocks(made) == {"host-a": "192.168.0.25-192.168.0.48", "host-b": "192.168.0.1-192.168.0.24"}
    assert made.freed == (Freed("host-a", "192.168.0.1-192.168.0.24", FreedWhy.MOVED),)


def test_of_two_blocks_of_one_node_the_later_stays() -> None:
    spec = {"subnet": "10.0.0.0/24", "perNodeBlockSize": 4}
    twice = [("a", "10.0.0.1", "10.0.0.4"), ("a", "10.0.0.9", "10.0.0.12")]
    made = plan(spec, ["a", "b"], twice)
    assert blocks(made) == {"a": "10.0.0.9-10.0.0.12", "b": "10.0.0.5-10.0.0.8"}


def test_a_block_that_ends_at_the_broadcast_address_is_kept_but_never_given() -> None:
    spec = {"subnet": "10.0.0.0/24", "perNodeBlockSize": 5}
    tail = ("z", "10.0.0.251", "10.0.0.255")
    assert blocks(plan(spec, ["z"], [tail])) == {"z": "10.0.0.251-10.0.0.255"}
    assert blocks(plan(spec, ["y", "z"], [tail, ("y", *tail[1:])])) == {
        "y": "10.0.0.1-10.0.0.5",
        "z": "10.0.0.251-10.0.0.255",
    }
    assert cut_blocks(msgspec.convert(spec, IPPoolSpec)).grid.count == 50
    excluded = {"exclusions": [{"startIP": "10.0.0.251", "endIP": "10.0.0.255"}]}
    assert blocks(plan(spec | excluded, ["z"], [tail])) == {"z": "10.0.0.1-10.0.0.5"}


def test_an_edit_moves_only_the_blocks_that_no_longer_fit() -> None:
    spec: dict[str, Any] = {"subnet": "10.0.0.0/24", "perNodeBlockSize": 8, "gateway": "10.0.0.1"}
    made = plan(spec, ["a", "b", "c"])
    for edit in ({"subnet": "10.0.0.0/16"}, {"gateway": "10.0.0.9"}, {"routes": [{"dst": "5.5.0.0/16"}]}):
        assert plan(spec | edit, ["a", "b", "c"], made).allocations == made.allocations
    excluded = {"exclusions": [{"startIP": "10.0.0.9", "endIP": "10.0.0.16"}]}
    after = plan(spec | excluded, ["a", "b", "c"], made)
    assert blocks(after) == {"a": "10.0.0.1-10.0.0.8", "b": "10.0.0.25-10.0.0.32", "c": "10.0.0.17-10.0.0.24"}
    assert after.freed == (Freed("b", "10.0.0.9-10.0.0.16", FreedWhy.MOVED),)
    elsewhere = plan(spec | {"subnet": "10.0.1.0/24", "gateway": "10.0.1.1"}, ["c", "b", "a"], made)
    assert list(blocks(elsewhere)) == ["a", "b", "c"] and blocks(elsewhere)["a"] == "10.0.1.1-10.0.1.8"


def test_an_invalid_spec_keeps_the_status_or_empties_it_as_the_original_does() -> None:
    made = plan({"subnet": "10.0.0.0/24", "perNodeBlockSize": 8}, ["a", "b"])
    bad = {"subnet": "10.0.0.0/24", "perNodeBlockSize": 0}
    stable = plan(bad, ["a"], made)
    assert (stable.allocations, stable.freed) == (made.allocations, ())
    assert [one.path for one in stable.problems] == ["spec.perNodeBlockSize"]
    upstream = plan(bad, ["a"], made, mode=Mode.UPSTREAM)
    assert upstream.allocations == () and upstream.problems == stable.problems


def test_smaller_blocks_lie_in_the_old_ones_so_that_nobody_gets_addresses_of_another() -> None:
    made = plan({"subnet": "10.0.0.0/24", "perNodeBlockSize": 16}, ["a", "b", "c"])
    halves = plan({"subnet": "10.0.0.0/24", "perNodeBlockSize": 8}, ["a", "a2", "b", "c"], made)
    assert blocks(halves) == {
        "a": "10.0.0.1-10.0.0.8",
        "a2": "10.0.0.9-10.0.0.16",
        "b": "10.0.0.17-10.0.0.24",
        "c": "10.0.0.33-10.0.0.40",
    }
    upstream = plan({"subnet": "10.0.0.0/24", "perNodeBlockSize": 8}, ["a", "b", "c"], made, mode=Mode.UPSTREAM)
    assert blocks(upstream)["b"] == "10.0.0.9-10.0.0.16"


def test_a_block_that_lies_in_the_old_one_whole_goes_before_one_that_touches_it() -> None:
    made = plan({"subnet": "10.0.0.0/24", "perNodeBlockSize": 16}, ["a", "b"])
    smaller = plan({"subnet": "10.0.0.0/24", "perNodeBlockSize": 6}, ["a", "b"], made)
    assert blocks(smaller) == {"a": "10.0.0.1-10.0.0.6", "b": "10.0.0.19-10.0.0.24"}


def test_larger_blocks_hold_the_old_ones_where_they_can() -> None:
    made = plan({"subnet": "10.0.0.0/24", "perNodeBlockSize": 16}, ["a", "b", "c", "d"])
    doubled = plan({"subnet": "10.0.0.0/24", "perNodeBlockSize": 32}, ["a", "b", "c", "d"], made)
    assert blocks(doubled) == {
        "a": "10.0.0.1-10.0.0.32",
        "b": "10.0.0.65-10.0.0.96",
        "c": "10.0.0.33-10.0.0.64",
        "d": "10.0.0.97-10.0.0.128",
    }


def held(node: str, first: str, last: str) -> HeldBlock:
    ends = msgspec.convert({"startIP": first, "endIP": last}, IPAllocation)
    numbers = [int.from_bytes(bytes(map(int, written.split("."))), "big") for written in (ends.start_ip, ends.end_ip)]
    return HeldBlock(node, 32, Range(*numbers))


def test_a_block_that_is_held_back_is_given_to_its_own_node_alone() -> None:
    spec = {"subnet": "10.0.0.0/28", "perNodeBlockSize": 4}
    back = Held((held("gone", "10.0.0.1", "10.0.0.4"),))
    assert blocks(plan(spec, ["a"], held=back)) == {"a": "10.0.0.5-10.0.0.8"}
    assert blocks(plan(spec, ["a", "gone"], held=back)) == {"a": "10.0.0.5-10.0.0.8", "gone": "10.0.0.1-10.0.0.4"}
    assert blocks(plan(spec, ["a"], held=back, mode=Mode.UPSTREAM)) == {"a": "10.0.0.1-10.0.0.4"}


def test_it_is_told_when_only_blocks_that_are_held_back_are_left() -> None:
    spec = {"subnet": "10.0.0.0/28", "perNodeBlockSize": 7}
    back = Held((held("gone", "10.0.0.1", "10.0.0.7"),))
    made = plan(spec, ["a", "b", "c"], held=back)
    assert blocks(made) == {"a": "10.0.0.8-10.0.0.14"}
    assert made.unplaced == (Unplaced("b", UnplacedWhy.QUARANTINED), Unplaced("c", UnplacedWhy.QUARANTINED))
    full = plan(spec, ["a", "gone", "c"], held=back)
    assert full.unplaced == (Unplaced("c", UnplacedWhy.EXHAUSTED),)


def test_what_is_held_back_bars_every_block_it_touches_and_no_more() -> None:
    spec = {"subnet": "10.0.0.0/24", "perNodeBlockSize": 8}
    back = Held((held("gone", "10.0.0.5", "10.0.0.12"), HeldBlock("a", 128, Range((10 << 24) + 1, 2**100))))
    assert blocks(plan(spec, ["a", "gone"], held=back)) == {"a": "10.0.0.17-10.0.0.24", "gone": "10.0.0.25-10.0.0.32"}


@pytest.mark.parametrize(
    "edit",
    [
        {"exclusions": [{"startIP": "fd00::", "endIP": "fd00:0:0:ffff:ffff:ffff:ffff:ffff"}]},
        {"perNodeExclusions": [{"startIndex": 0, "endIndex": 250}, {"startIndex": 251, "endIndex": 499}]},
        {
            "exclusions": [{"startIP": "fd00::100", "endIP": "fd00:0:0:ffff:ffff:ffff:ffff:ffff"}],
            "perNodeExclusions": [{"startIndex": 0, "endIndex": 300}],
        },
    ],
)
def test_a_large_network_without_a_block_is_answered_at_once(edit: dict[str, Any]) -> None:
    made = plan({"subnet": "fd00::/48", "perNodeBlockSize": 500} | edit, [f"n{at}" for at in range(2000)])
    assert not made.allocations and len(made.unplaced) == 2000
