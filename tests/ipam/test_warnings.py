"""What is allowed but hardly meant: each warning, and that ordinary pools get none."""

from __future__ import annotations

import ipaddress
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ipam import generators

from bedplate.ipam import warnings
from bedplate.ipam.plan_cidrpool import plan_cidrpool
from bedplate.ipam.plan_ippool import plan_ippool
from bedplate.ipam.planning import PlanNode
from bedplate.ipam.pools import CIDRPool, CIDRPoolSpec, IPPool, IPPoolSpec
from bedplate.ipam.warnings import Territory

IPPOOL: dict[str, Any] = {"subnet": "10.0.0.0/24", "perNodeBlockSize": 8, "gateway": "10.0.0.1"}
CIDRPOOL: dict[str, Any] = {"cidr": "10.0.0.0/16", "perNodeNetworkPrefix": 24, "gatewayIndex": 1}


def of_ippool(**change: Any) -> list[str]:
    return warnings.ippool_warnings(msgspec.convert(IPPOOL | change, IPPoolSpec))


def of_cidrpool(**change: Any) -> list[str]:
    return warnings.cidrpool_warnings(msgspec.convert(CIDRPOOL | change, CIDRPoolSpec))


def excluded(*ends: tuple[str, str]) -> list[dict[str, str]]:
    return [{"startIP": start, "endIP": end} for start, end in ends]


def indexes(*ends: tuple[int, int]) -> list[dict[str, int]]:
    return [{"startIndex": start, "endIndex": end} for start, end in ends]


def test_ordinary_pools_get_no_warning() -> None:
    assert of_ippool() == [] and of_cidrpool() == []
    assert of_ippool(exclusions=excluded(("10.0.0.9", "10.0.0.16")), perNodeExclusions=indexes((0, 3))) == []
    assert of_cidrpool(exclusions=excluded(("10.0.0.0", "10.0.7.255")), perNodeExclusions=indexes((2, 9))) == []
    assert of_cidrpool(perNodeNetworkPrefix=31, gatewayIndex=0) == []
    assert of_cidrpool(gatewayIndex=None, exclusions=excluded(("10.0.3.2", "10.0.3.254"))) == []
    assert of_cidrpool(gatewayIndex=2, exclusions=excluded(("10.0.3.3", "10.0.3.254"))) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"subnet": "10.0.0.7/24"}, "has host bits set; 10.0.0.0/24 is used"),
        ({"perNodeExclusions": indexes((0, 3), (4, 7))}, "no node will get one"),
        ({"exclusions": excluded(("10.0.0.1", "10.0.0.255"))}, "no node will get one"),
        ({"gateway": "10.0.0.0"}, "is the network address of 10.0.0.0/24"),
        ({"gateway": "10.0.0.255"}, "is the broadcast address of 10.0.0.0/24"),
        (
            {"exclusions": excluded(("10.0.0.2", "10.0.0.8"))},
            "10.0.0.1-10.0.0.8 has no address left besides the gateway",
        ),
        ({"gateway": "10.0.0.10", "perNodeExclusions": indexes((0, 0), (2, 7))}, "10.0.0.9-10.0.0.16 has no address"),
    ],
)
def test_odd_ippools(change: dict[str, Any], says: str) -> None:
    found = of_ippool(**change)
    assert len(found) == 1 and says in found[0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"perNodeExclusions": indexes((0, 254))}, "no node will get one"),
        ({"exclusions": excluded(("10.0.0.0", "10.0.255.255"))}, "no node will get one"),
        ({"perNodeExclusions": indexes((2, 254))}, "no address for pods besides the gateway"),
        ({"perNodeExclusions": indexes((1, 254))}, "no address for pods besides the gateway"),
        ({"perNodeNetworkPrefix": 32, "gatewayIndex": 0}, "no address for pods besides the gateway"),
        ({"exclusions": excluded(("10.0.3.2", "10.0.4.255"))}, "left in 10.0.3.0/24"),
        ({"exclusions": excluded(("10.0.3.1", "10.0.3.255"), ("10.0.4.2", "10.0.4.254"))}, "10.0.3.0/24, 10.0.4.0/24"),
        (
            {"exclusions": excluded(*[(f"10.0.{at}.2", f"10.0.{at}.254") for at in range(9)])},
            "10.0.0.0/24, 10.0.1.0/24, 10.0.2.0/24 and 6 more",
        ),
    ],
)
def test_odd_cidrpools(change: dict[str, Any], says: str) -> None:
    found = of_cidrpool(**change)
    assert len(found) == 1 and says in found[0]


def test_an_excluded_ipv6_network_is_judged_at_once() -> None:
    everything = excluded(("fd00::", "fd00:0:0:ffff:ffff:ffff:ffff:ffff"))
    assert of_ippool(subnet="fd00::/48", gateway="fd00::1", perNodeBlockSize=500, exclusions=everything)
    assert of_cidrpool(cidr="fd00::/48", perNodeNetworkPrefix=120, exclusions=everything)


@given(st.integers(min_value=0, max_value=2**32), st.sampled_from(["IPPool", "CIDRPool"]))
def test_no_node_will_get_one_is_said_exactly_when_it_is_so(seed: int, kind: str) -> None:
    rng = random.Random(seed)
    spec = generators.ippool_spec(rng) if kind == "IPPool" else generators.cidrpool_spec(rng)
    spec.pop("nodeSelector", None)
    spec.pop("staticAllocations", None)
    document = {"metadata": {"name": "p"}, "spec": spec}
    if kind == "IPPool":
        pool = msgspec.convert(document, IPPool)
        found, plan = warnings.ippool_warnings(pool.spec), plan_ippool(pool, [PlanNode("a")])
        assert any("no node will" in text for text in found) == (not plan.allocations)
    else:
        cidr = msgspec.convert(document, CIDRPool)
        made = plan_cidrpool(cidr, [PlanNode("a")])
        said = warnings.cidrpool_warnings(cidr.spec)
        assert any("no node will" in text for text in said) <= (not made.allocations)
        assert said if not made.allocations else True


def territory(key: str, network: str, *excluding: tuple[str, str]) -> Territory:
    spec = {"subnet": network, "perNodeBlockSize": 1, "exclusions": excluded(*excluding)}
    made = warnings.ippool_territory(key, msgspec.convert(spec, IPPoolSpec))
    assert made is not None
    return made


def test_pools_that_share_addresses_are_named_with_what_they_share() -> None:
    pools = [
        territory("a", "10.0.0.0/16"),
        territory("b", "10.0.4.0/24"),
        territory("c", "10.1.0.0/16"),
        territory("d", "fd00::/64"),
        territory("e", "10.0.4.128/25"),
    ]
    assert [str(one) for one in warnings.overlaps_of(pools[1], pools)] == [
        "b and a overlap from 10.0.4.0 to 10.0.4.255",
        "b and e overlap from 10.0.4.128 to 10.0.4.255",
    ]
    assert warnings.overlaps_of(pools[2], pools) == []


def test_pools_that_share_a_network_but_exclude_each_others_part_do_not_overlap() -> None:
    lower = territory("lower", "10.0.0.0/24", ("10.0.0.128", "10.0.0.255"))
    upper = territory("upper", "10.0.0.0/24", ("10.0.0.0", "10.0.0.127"))
    assert warnings.overlaps_of(lower, [upper]) == []
    whole = territory("whole", "10.0.0.0/24")
    assert [one.other for one in warnings.overlaps_of(whole, [lower, upper])] == ["lower", "upper"]
    reserving = {
        "cidr": "10.0.0.0/24",
        "perNodeNetworkPrefix": 25,
        "staticAllocations": [{"prefix": "10.0.0.0/25"}, {"prefix": "10.0.0.128/25", "nodeName": "a"}],
    }
    half = warnings.cidrpool_territory("cidrpool/half", msgspec.convert(reserving, CIDRPoolSpec))
    assert half is not None
    assert warnings.overlaps_of(half, [lower]) == [] and len(warnings.overlaps_of(half, [upper])) == 1


def test_a_pool_whose_network_means_nothing_has_no_territory() -> None:
    assert warnings.ippool_territory("a", IPPoolSpec(subnet="x")) is None
    assert warnings.cidrpool_territory("a", CIDRPoolSpec(cidr="x")) is None


@given(st.integers(min_value=0, max_value=2**32))
def test_a_pool_is_named_exactly_when_it_shares_an_address_with_another(seed: int) -> None:
    rng = random.Random(seed)
    pools, held = [], {}
    for at in range(rng.randint(1, 9)):
        net = ipaddress.ip_network((int(ipaddress.ip_address("10.0.0.0")) + rng.randrange(16) * 16, 28))
        wide = net.supernet(rng.randrange(4))
        ends = [(one["startIP"], one["endIP"]) for one in generators.exclusions(rng, wide)]
        pools.append(territory(f"p{at}", str(wide), *ends))
        gone = {int(ipaddress.ip_address(low)) + step for low, high in ends
                for step in range(int(ipaddress.ip_address(high)) - int(ipaddress.ip_address(low)) + 1)}  # fmt: skip
        held[f"p{at}"] = set(map(int, wide)) - gone
    for one in pools:
        named = {overlap.other for overlap in warnings.overlaps_of(one, pools)}
        assert named == {other for other in held if other != one.key and held[one.key] & held[other]}
        for overlap in warnings.overlaps_of(one, pools):
            assert {overlap.addresses.first, overlap.addresses.last} <= held[one.key] & held[overlap.other]
