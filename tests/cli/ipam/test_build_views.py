"""What a pool's spec and status mean in blocks and addresses."""

from __future__ import annotations

import hypothesis
from hypothesis import strategies
from tests.cli.ipam.makers import cidrpool, ippool

from bedplate.cli.ipam import build_views
from bedplate.ipam import plan_cidrpool, plan_ippool
from bedplate.ipam.addresses import Address, parse_address, text
from bedplate.ipam.planning import PlanNode


def address(written: str) -> Address:
    found = parse_address(written)
    assert found is not None
    return found


def test_the_seeds_pool_has_its_four_blocks_and_the_gateway_costs_one_address() -> None:
    blocks = {"host-a": "192.168.0.1-192.168.0.24", "host-b": "192.168.0.25-192.168.0.48"}
    pool = ippool("pool1", blocks, subnet="192.168.0.0/16", perNodeBlockSize=24, gateway="192.168.0.1")
    view = build_views.view_of(pool, used=[address("10.0.0.1"), address("192.168.0.2"), address("192.168.0.30")])
    assert (view.total, view.free, view.state) == (2730, 2728, "ok")
    assert [(one.node, one.index, one.usable, one.used) for one in view.blocks] == [
        ("host-a", 0, 23, 1),
        ("host-b", 1, 24, 1),
    ]


def test_exclusions_of_the_pool_and_of_every_block_are_counted_once() -> None:
    pool = ippool(
        "p",
        {"a": "10.0.0.1-10.0.0.10"},
        subnet="10.0.0.0/24",
        perNodeBlockSize=10,
        exclusions=[{"startIP": "10.0.0.2", "endIP": "10.0.0.4"}, {"startIP": "10.0.0.21", "endIP": "10.0.0.30"}],
        perNodeExclusions=[{"startIndex": 2, "endIndex": 4}],
    )
    view = build_views.view_of(pool)
    # .2-.4 and .3-.5 of the block; the third block is excluded whole.
    assert view.blocks[0].usable == 6
    assert (view.total, view.excluded.total(), view.free) == (25, 1, 23)
    assert view.blocks[0].excludes(address("10.0.0.5")) and not view.blocks[0].excludes(address("10.0.0.6"))


def test_a_prefix_has_neither_network_nor_broadcast_address_for_pods() -> None:
    pool = cidrpool(
        "c",
        {"a": ("10.1.0.0/29", "10.1.0.1")},
        cidr="10.1.0.0/24",
        perNodeNetworkPrefix=29,
        gatewayIndex=1,
        staticAllocations=[{"prefix": "10.1.0.16/29"}, {"prefix": "10.1.0.0/29", "nodeName": "a"}],
    )
    view = build_views.view_of(pool)
    (block,) = view.blocks
    assert (str(block.first), str(block.last), block.usable) == ("10.1.0.1", "10.1.0.6", 5)
    assert (view.total, view.reserved, view.free) == (32, (2,), 30)


def test_point_to_point_prefixes_use_both_addresses() -> None:
    pool = cidrpool("c", {"a": ("10.1.0.2/31", "")}, cidr="10.1.0.0/24", perNodeNetworkPrefix=31)
    (block,) = build_views.view_of(pool).blocks
    assert (block.index, block.usable) == (1, 2)


def test_entries_that_are_no_block_of_the_pool_are_strays() -> None:
    blocks = {
        "a": "10.0.0.2-10.0.0.11",
        "b": "10.0.0.11-10.0.0.20",
        "c": "nonsense-10.0.0.9",
        "d": "10.9.0.1-10.9.0.10",
    }
    view = build_views.view_of(ippool("p", blocks, subnet="10.0.0.0/24", perNodeBlockSize=10))
    assert [one.node for one in view.blocks] == ["b"]
    assert [node for node, _ in view.strays] == ["a", "c", "d"]
    assert view.state == "status does not fit"


def test_a_spec_that_means_nothing_can_be_looked_at() -> None:
    view = build_views.view_of(
        ippool("p", {"a": "1-2"}, subnet="here", perNodeBlockSize=0), problems=["spec.subnet: no"]
    )
    assert (view.total, view.free, view.blocks, view.state) == (0, 0, (), "invalid")


def test_what_is_held_back_is_not_free() -> None:
    pool = ippool("p", {"a": "10.0.0.1-10.0.0.10"}, subnet="10.0.0.0/24", perNodeBlockSize=10)
    view = build_views.view_of(pool, quarantined={"10.0.0.11-10.0.0.20": ("gone", None), "nonsense": ("x", None)})
    assert [(one.index, one.node) for one in view.held] == [(1, "gone")]
    assert view.free == 23


@hypothesis.given(
    size=strategies.integers(1, 40),
    nodes=strategies.integers(0, 12),
    excluded=strategies.lists(strategies.tuples(strategies.integers(0, 255), strategies.integers(0, 40)), max_size=3),
)
def test_free_blocks_are_as_many_as_the_controller_can_still_give(
    size: int, nodes: int, excluded: list[tuple[int, int]]
) -> None:
    ranges = [
        {"startIP": text(32, 0x0A000000 + first), "endIP": text(32, 0x0A000000 + min(255, first + more))}
        for first, more in excluded
    ]
    spec = {"subnet": "10.0.0.0/24", "perNodeBlockSize": size, "exclusions": ranges, "gateway": "10.0.0.1"}
    names = [f"n{number:03}" for number in range(nodes)]
    given = plan_ippool.plan_ippool(ippool("p", **spec), [PlanNode(name) for name in names]).allocations
    pool = ippool("p", {one.node_name: f"{one.start_ip}-{one.end_ip}" for one in given}, **spec)
    view = build_views.view_of(pool)
    everybody = [PlanNode(name) for name in [*names, *(f"x{number:03}" for number in range(300))]]
    assert not view.strays
    assert view.free == len(plan_ippool.plan_ippool(pool, everybody).allocations) - len(given)


@hypothesis.given(length=strategies.integers(24, 32), nodes=strategies.integers(0, 5), reserved=strategies.booleans())
def test_free_prefixes_are_as_many_as_the_controller_can_still_give(length: int, nodes: int, reserved: bool) -> None:
    spec = {
        "cidr": "10.0.0.0/24",
        "perNodeNetworkPrefix": length,
        "staticAllocations": [{"prefix": f"10.0.0.0/{length}"}] if reserved else [],
        "exclusions": [{"startIP": "10.0.0.128", "endIP": "10.0.0.200"}],
    }
    names = [f"n{number:03}" for number in range(nodes)]
    given = plan_cidrpool.plan_cidrpool(cidrpool("p", **spec), [PlanNode(name) for name in names]).allocations
    pool = cidrpool("p", {one.node_name: (one.prefix, one.gateway) for one in given}, **spec)
    view = build_views.view_of(pool)
    everybody = [PlanNode(name) for name in [*names, *(f"x{number:03}" for number in range(300))]]
    assert not view.strays
    assert view.free == len(plan_cidrpool.plan_cidrpool(pool, everybody).allocations) - len(given)
