"""What a plan costs, in calls instead of seconds: four times the nodes may cost little more than four times as much."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from bedplate.ipam import addresses
from bedplate.ipam.plan_cidrpool import plan_cidrpool
from bedplate.ipam.plan_ippool import plan_ippool
from bedplate.ipam.planning import Plan, PlanNode
from bedplate.ipam.pools import CIDRPool, IPPool

EVERYTHING = [{"startIP": "fd00::", "endIP": "fd00:0:0:ffff:ffff:ffff:ffff:ffff"}]
HALF = [{"startIP": "fd00::", "endIP": "fd00:0:7fff:ffff:ffff:ffff:ffff:ffff"}]
IPPOOLS: dict[str, dict[str, Any]] = {
    "plain": {"subnet": "10.0.0.0/8", "perNodeBlockSize": 24, "gateway": "10.0.0.1"},
    "all excluded": {"subnet": "fd00::/48", "perNodeBlockSize": 500, "exclusions": EVERYTHING},
    "nothing left in a block": {
        "subnet": "fd00::/48",
        "perNodeBlockSize": 500,
        "perNodeExclusions": [{"startIndex": 0, "endIndex": 499}],
    },
    "full": {"subnet": "10.0.0.0/24", "perNodeBlockSize": 2},
}
CIDRPOOLS: dict[str, dict[str, Any]] = {
    "plain": {"cidr": "fd00::/32", "perNodeNetworkPrefix": 64, "gatewayIndex": 1},
    "half excluded": {"cidr": "fd00::/32", "perNodeNetworkPrefix": 64, "exclusions": HALF},
    "full": {"cidr": "10.0.0.0/24", "perNodeNetworkPrefix": 30},
}


def calls(action: Callable[[], object]) -> int:
    """How many functions are called, ours and built-in ones."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    for known in (addresses.parse_address, addresses.parse_network, addresses.text):
        known.cache_clear()
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


def costs(kind: str, spec: dict[str, Any], count: int) -> tuple[int, int]:
    """Of a plan from an empty status, and of one from the full status with some nodes gone."""
    nodes = [PlanNode(f"n{at:05d}") for at in range(count)]

    def plan(known: list[PlanNode], allocations: object) -> Plan[Any]:
        document = {"metadata": {"name": "p"}, "spec": spec, "status": {"allocations": allocations}}
        if kind == "IPPool":
            return plan_ippool(msgspec.convert(document, IPPool), known)
        return plan_cidrpool(msgspec.convert(document, CIDRPool), known)

    made = msgspec.to_builtins(plan(nodes, []).allocations)
    gone = [node for at, node in enumerate(nodes) if at % 10]
    return calls(lambda: plan(nodes, [])), calls(lambda: plan(gone, made))


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        *(pytest.param("IPPool", spec, id=f"IPPool {name}") for name, spec in IPPOOLS.items()),
        *(pytest.param("CIDRPool", spec, id=f"CIDRPool {name}") for name, spec in CIDRPOOLS.items()),
    ],
)
def test_a_plan_costs_in_proportion_to_its_nodes(kind: str, spec: dict[str, Any]) -> None:
    few, many = costs(kind, spec, 250), costs(kind, spec, 1000)
    for small, large in zip(few, many, strict=True):
        assert large < 6 * small
        assert large < 200 * 1000


def test_a_plan_costs_in_proportion_to_its_exclusions() -> None:
    def spec(count: int) -> dict[str, Any]:
        ends = [(f"10.{at // 250}.{at % 250}.0", f"10.{at // 250}.{at % 250}.99") for at in range(count)]
        return {
            "subnet": "10.0.0.0/8",
            "perNodeBlockSize": 24,
            "exclusions": [{"startIP": start, "endIP": end} for start, end in ends],
            "perNodeExclusions": [{"startIndex": at, "endIndex": at} for at in range(0, 24, 2)],
        }

    few, many = costs("IPPool", spec(250), 50)[0], costs("IPPool", spec(1000), 50)[0]
    assert many < 6 * few


def test_static_prefixes_cost_in_proportion_to_their_number() -> None:
    def spec(count: int) -> dict[str, Any]:
        entries = [{"nodeName": f"n{at:05d}", "prefix": f"fd00:0:0:{at:x}::/64"} for at in range(count)]
        return {"cidr": "fd00::/32", "perNodeNetworkPrefix": 64, "staticAllocations": entries}

    few, many = costs("CIDRPool", spec(250), 250), costs("CIDRPool", spec(1000), 1000)
    assert all(large < 6 * small for small, large in zip(few, many, strict=True))
