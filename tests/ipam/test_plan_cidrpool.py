"""CIDRPools: the examples of the specification, what edits of a spec do, and networks that no scan gets through."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bedplate.ipam.plan_cidrpool import plan_cidrpool
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
from bedplate.ipam.pools import CIDRAllocation, CIDRPool
from bedplate.ipam.ranges import Range

SPEC: dict[str, Any] = {"cidr": "192.168.0.0/16", "perNodeNetworkPrefix": 24, "gatewayIndex": 1}


def plan(
    spec: dict[str, Any],
    names: list[str],
    before: list[tuple[str, str, str]] | Plan[CIDRAllocation] | None = None,
    held: Held = NOTHING,
    mode: Mode = Mode.STABLE,
) -> Plan[CIDRAllocation]:
    if isinstance(before, Plan):
        entries = msgspec.to_builtins(before.allocations)
    else:
        entries = [{"nodeName": node, "prefix": prefix, "gateway": gateway} for node, prefix, gateway in before or []]
    pool = msgspec.convert({"metadata": {"name": "p"}, "spec": spec, "status": {"allocations": entries}}, CIDRPool)
    return plan_cidrpool(pool, [PlanNode(name) for name in names], held, mode)


def prefixes(made: Plan[CIDRAllocation]) -> dict[str, tuple[str, str]]:
    return {one.node_name: (one.prefix, one.gateway) for one in made.allocations}


def test_nodes_get_prefixes_with_a_gateway_in_the_order_of_their_names() -> None:
    assert prefixes(plan(SPEC, ["b", "a"])) == {
        "a": ("192.168.0.0/24", "192.168.0.1"),
        "b": ("192.168.1.0/24", "192.168.1.1"),
    }


def test_static_prefixes_are_their_nodes_or_nobodys() -> None:
    statics = [
        {"prefix": "192.168.1.0/24"},
        {"nodeName": "node-33", "prefix": "192.168.33.0/24", "gateway": "192.168.33.10"},
        {"nodeName": "node-9", "prefix": "192.168.0.0/24"},
    ]
    spec = SPEC | {"staticAllocations": statics}
    assert prefixes(plan(spec, ["a", "b", "node-33"])) == {
        "a": ("192.168.2.0/24", "192.168.2.1"),
        "b": ("192.168.3.0/24", "192.168.3.1"),
        "node-33": ("192.168.33.0/24", "192.168.33.10"),
    }
    assert prefixes(plan(spec, ["node-9"])) == {"node-9": ("192.168.0.0/24", "192.168.0.1")}


def test_a_new_static_prefix_is_taken_from_who_has_it() -> None:
    made = plan(SPEC, ["a", "b"])
    after = plan(SPEC | {"staticAllocations": [{"nodeName": "b", "prefix": "192.168.0.0/24"}]}, ["a", "b"], made)
    assert prefixes(after) == {"a": ("192.168.1.0/24", "192.168.1.1"), "b": ("192.168.0.0/24", "192.168.0.1")}
    assert set(after.freed) == {
        Freed("a", "192.168.0.0/24", FreedWhy.MOVED),
        Freed("b", "192.168.1.0/24", FreedWhy.MOVED),
    }


@pytest.mark.parametrize("mode", list(Mode))
def test_a_static_prefix_is_one_prefix_however_it_is_written(mode: Mode) -> None:
    spec = {
        "cidr": "fd00::/56",
        "perNodeNetworkPrefix": 64,
        "staticAllocations": [{"nodeName": "s", "prefix": "FD00:0000::/64"}],
    }
    made = plan(spec, ["a", "s"], [("a", "fd00::/64", "")], mode=mode)
    assert prefixes(made) == {"a": ("fd00:0:0:1::/64", ""), "s": ("FD00:0000::/64", "")}
    again = plan(spec, ["a", "s"], made, mode=mode)
    assert (again.allocations, again.freed) == (made.allocations, ())
    canonical = plan(spec, ["s"], [("s", "fd00::/64", "")], mode=mode)
    assert prefixes(canonical) == {"s": ("FD00:0000::/64", "")} and canonical.freed == ()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"cidr": "192.168.100.0/24", "perNodeNetworkPrefix": 31},
            [("192.168.100.0/31", ""), ("192.168.100.2/31", "")],
        ),
        (
            {"cidr": "192.168.100.0/24", "perNodeNetworkPrefix": 31, "gatewayIndex": 0},
            [("192.168.100.0/31", "192.168.100.0"), ("192.168.100.2/31", "192.168.100.2")],
        ),
        ({"cidr": "10.0.0.0/32", "perNodeNetworkPrefix": 32}, [("10.0.0.0/32", "")]),
        ({"cidr": "fd00::/127", "perNodeNetworkPrefix": 128}, [("fd00::/128", ""), ("fd00::1/128", "")]),
        ({"cidr": "10.0.0.0/24", "perNodeNetworkPrefix": 24}, [("10.0.0.0/24", "")]),
    ],
)
def test_small_prefixes(spec: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    made = plan(spec, ["a", "b"])
    assert list(prefixes(made).values()) == expected
    assert len(made.unplaced) == 2 - len(expected)


def test_a_new_gateway_index_changes_gateways_and_no_prefix() -> None:
    before = [("a", "192.168.7.0/24", "192.168.7.1"), ("b", "192.168.3.0/24", "192.168.3.1")]
    made = plan(SPEC | {"gatewayIndex": 9}, ["a", "b"], before)
    assert prefixes(made) == {"a": ("192.168.7.0/24", "192.168.7.9"), "b": ("192.168.3.0/24", "192.168.3.9")}
    assert made.freed == ()
    none = plan({key: value for key, value in SPEC.items() if key != "gatewayIndex"}, ["a", "b"], before)
    assert prefixes(none) == {"a": ("192.168.7.0/24", ""), "b": ("192.168.3.0/24", "")}


def test_the_original_deals_all_prefixes_anew_then() -> None:
    before = [("a", "192.168.7.0/24", "192.168.7.1"), ("b", "192.168.3.0/24", "192.168.3.1")]
    made = plan(SPEC | {"gatewayIndex": 9}, ["a", "b"], before, mode=Mode.UPSTREAM)
    assert prefixes(made) == {"a": ("192.168.0.0/24", "192.168.0.9"), "b": ("192.168.1.0/24", "192.168.1.9")}


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(
    ("prefix", "why"),
    [
        ("192.168.9.1/24", "host bits"),
        ("192.169.9.0/24", "outside"),
        ("192.168.9.0/25", "length"),
        ("fd00::/24", "family"),
        ("x", "no network"),
        ("192.168.128.0/24", "excluded"),
        ("192.168.200.0/24", "reserved"),
        ("192.168.4.0/24", "another node's as well"),
    ],
)
def test_an_entry_that_is_no_prefix_of_the_pool_is_replaced(mode: Mode, prefix: str, why: str) -> None:
    spec = SPEC | {
        "exclusions": [{"startIP": "192.168.128.0", "endIP": "192.168.128.254"}],
        "staticAllocations": [{"prefix": "192.168.200.0/24"}],
    }
    before = [("a", prefix, ""), ("b", "192.168.5.0/24", "192.168.5.1"), ("c", "192.168.4.0/24", "192.168.4.1")]
    made = plan(spec, ["a", "b", "c"], before, mode=mode)
    assert prefixes(made)["a"] == ("192.168.0.0/24", "192.168.0.1"), why
    assert prefixes(made)["b"] == ("192.168.5.0/24", "192.168.5.1")


def test_entries_that_clash_are_both_dropped_also_with_one_of_a_node_that_is_gone() -> None:
    before = [("a", "192.168.9.0/24", "192.168.9.1"), ("gone", "192.168.9.0/24", "192.168.9.1")]
    made = plan(SPEC, ["a"], before)
    assert prefixes(made) == {"a": ("192.168.0.0/24", "192.168.0.1")}
    assert [(one.node, one.why) for one in made.freed] == [("a", FreedWhy.MOVED), ("gone", FreedWhy.NODE_GONE)]


def test_a_gateway_that_another_entry_claims_costs_a_prefix_only_in_the_original() -> None:
    before = [("a", "192.168.9.0/24", "192.168.9.1"), ("b", "192.168.8.0/24", "192.168.9.1")]
    stable = plan(SPEC, ["a", "b"], before)
    assert prefixes(stable) == {"a": ("192.168.9.0/24", "192.168.9.1"), "b": ("192.168.8.0/24", "192.168.8.1")}
    upstream = plan(SPEC, ["a", "b"], before, mode=Mode.UPSTREAM)
    assert prefixes(upstream) == {"a": ("192.168.0.0/24", "192.168.0.1"), "b": ("192.168.1.0/24", "192.168.1.1")}


def test_an_invalid_spec_keeps_the_status_or_empties_it_as_the_original_does() -> None:
    made = plan(SPEC, ["a", "b"])
    bad = SPEC | {"gatewayIndex": 300}
    stable = plan(bad, ["a"], made)
    assert (stable.allocations, stable.freed) == (made.allocations, ())
    assert [one.path for one in stable.problems] == ["spec.gatewayIndex"]
    assert plan(bad, ["a"], made, mode=Mode.UPSTREAM).allocations == ()


def test_longer_prefixes_lie_in_the_old_ones_and_shorter_ones_around_them() -> None:
    made = plan(SPEC, ["a", "b", "c"])
    longer = plan(SPEC | {"perNodeNetworkPrefix": 26}, ["a", "b", "b2", "c"], made)
    assert [prefix for prefix, _ in prefixes(longer).values()] == [
        "192.168.0.0/26",
        "192.168.1.0/26",
        "192.168.0.64/26",
        "192.168.2.0/26",
    ]
    shorter = plan(SPEC | {"perNodeNetworkPrefix": 23}, ["a", "b", "c"], made)
    assert [prefix for prefix, _ in prefixes(shorter).values()] == [
        "192.168.0.0/23",
        "192.168.4.0/23",
        "192.168.2.0/23",
    ]


def test_a_prefix_that_is_held_back_is_given_to_its_own_node_or_by_order() -> None:
    spec = SPEC | {"cidr": "192.168.0.0/23"}
    first = (192 << 24) + (168 << 16)
    back = Held((HeldBlock("gone", 32, Range(first, first + 255)),))
    made = plan(spec, ["a", "b"], held=back)
    assert prefixes(made) == {"a": ("192.168.1.0/24", "192.168.1.1")}
    assert made.unplaced == (Unplaced("b", UnplacedWhy.QUARANTINED),)
    assert prefixes(plan(spec, ["a", "gone"], held=back))["gone"] == ("192.168.0.0/24", "192.168.0.1")
    ordered = spec | {"staticAllocations": [{"nodeName": "a", "prefix": "192.168.0.0/24"}]}
    assert prefixes(plan(ordered, ["a"], held=back)) == {"a": ("192.168.0.0/24", "192.168.0.1")}
    assert prefixes(plan(spec, ["a"], held=back, mode=Mode.UPSTREAM))["a"][0] == "192.168.0.0/24"


def test_a_large_excluded_area_is_passed_over_at_once() -> None:
    spec = {
        "cidr": "fd00::/16",
        "perNodeNetworkPrefix": 64,
        "exclusions": [{"startIP": "fd00::", "endIP": "fd00:7fff:ffff:ffff:ffff:ffff:ffff:ffff"}],
    }
    made = plan(spec, ["a", "b"])
    assert [prefix for prefix, _ in prefixes(made).values()] == ["fd00:8000::/64", "fd00:8000:0:1::/64"]
    everything = {"perNodeExclusions": [{"startIndex": 0, "endIndex": 255}]}
    none = plan({"cidr": "fd00::/16", "perNodeNetworkPrefix": 120} | everything, [f"n{at}" for at in range(2000)])
    assert not none.allocations and len(none.unplaced) == 2000
