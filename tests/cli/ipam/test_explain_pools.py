"""Who holds an address, why a node has no block, what keeps a pool from working."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.cli.ipam.makers import NOW, attached, cidrpool, ippool, land, node, pod

from bedplate.cli.ipam import explain_pools
from bedplate.cli.ipam.explain_pools import why_not
from bedplate.cli.ipam.landscape import Landscape
from bedplate.core.explanation import Explanation, State
from bedplate.ipam.addresses import parse_address
from bedplate.ipam.pools import NodeSelector

WORKERS = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "role", "operator": "In", "values": ["worker"]}]}]}
BLOCKS = {"host-a": "192.168.0.1-192.168.0.100", "host-b": "192.168.0.101-192.168.0.200"}
SPEC: dict[str, Any] = {"subnet": "192.168.0.0/24", "perNodeBlockSize": 100, "gateway": "192.168.0.1"}
NODES = (node("host-a", role="worker"), node("host-b", role="worker"))


def of(found: Explanation, topic: str) -> list[tuple[str, str]]:
    return [(one.answer, one.why) for one in found.findings if one.topic == topic]


def about(address: str, where: Landscape) -> Explanation:
    parsed = parse_address(address)
    assert parsed is not None
    return explain_pools.explain_address(parsed, where)


def test_the_holder_of_an_address_is_named_with_node_interface_and_time() -> None:
    web = pod("web", "host-a", status=attached("192.168.0.7"))
    found = about("192.168.0.7", land(ippool("pool1", BLOCKS, **SPEC), nodes=NODES, pods=(web,)))
    ((who, why),) = of(found, "holder")
    assert who == "default/web"
    assert "on node host-a through interface net1" in why and "2026-01-02 03:00:05 UTC (4m ago)" in why
    assert of(found, "block") == [("192.168.0.1-192.168.0.100", "assigned to node host-a")]
    assert found.state == State.GOOD


def test_an_address_that_two_pods_have_stands_out() -> None:
    pods = (pod("a", "host-a", status=attached("192.168.0.7")), pod("b", "host-a", status=attached("192.168.0.7")))
    found = about("192.168.0.7", land(ippool("pool1", BLOCKS, **SPEC), nodes=NODES, pods=pods))
    assert of(found, "holders")[0][0] == "2"
    assert found.state == State.BAD


def test_a_holder_on_a_node_that_does_not_have_the_block_stands_out() -> None:
    web = pod("web", "host-b", status=attached("192.168.0.7"))
    found = about("192.168.0.7", land(ippool("pool1", BLOCKS, **SPEC), nodes=NODES, pods=(web,)))
    assert of(found, "node")[0][0] == "another"


def test_gateway_exclusion_quarantine_and_the_ends_of_the_network_are_told_apart() -> None:
    held = {"192.168.0.101-192.168.0.200": {"node": "host-b", "until": "2026-01-02T03:14:05Z"}}
    spec = SPEC | {"exclusions": [{"startIP": "192.168.0.50", "endIP": "192.168.0.59"}]}
    where = land(ippool("pool1", {"host-a": BLOCKS["host-a"]}, held=held, **spec), nodes=NODES[:1])
    assert of(about("192.168.0.1", where), "use")[0][0] == "gateway"
    assert of(about("192.168.0.55", where), "use")[0][0] == "excluded"
    assert of(about("192.168.0.7", where), "use")[0][0] == "for pods"
    assert of(about("192.168.0.0", where), "use")[0][0] == "network address"
    assert of(about("192.168.0.255", where), "use")[0][0] == "broadcast address"
    assert of(about("192.168.0.230", where), "block")[0][0] == "none"
    ((answer, why),) = of(about("192.168.0.150", where), "block")
    assert answer == "quarantined" and "host-b" in why and "03:14:05" in why


def test_a_quarantine_that_is_over_no_longer_counts() -> None:
    held = {"192.168.0.101-192.168.0.200": {"node": "host-b", "until": "2026-01-02T03:04:04Z"}}
    where = land(ippool("pool1", {"host-a": BLOCKS["host-a"]}, held=held, **SPEC), nodes=NODES[:1])
    assert where.now == NOW
    assert of(about("192.168.0.150", where), "block")[0][0] == "free"


def test_reserved_prefixes_and_the_network_address_of_a_given_one() -> None:
    pool = cidrpool(
        "c",
        {"host-a": ("10.1.0.0/24", "10.1.0.1")},
        cidr="10.1.0.0/16",
        perNodeNetworkPrefix=24,
        gatewayIndex=1,
        staticAllocations=[{"prefix": "10.1.9.0/24"}],
    )
    where = land(pool, nodes=NODES[:1])
    assert of(about("10.1.9.4", where), "block")[0][0] == "reserved"
    assert of(about("10.1.0.1", where), "use")[0][0] == "gateway"
    assert of(about("10.1.0.255", where), "block")[0] == (
        "10.1.0.0/24",
        "assigned to node host-a; this address of it is never allocated to pods",
    )


def test_an_address_of_no_pool_and_no_pod_is_nobodys() -> None:
    found = about("8.8.8.8", land(ippool("pool1", BLOCKS, **SPEC), nodes=NODES))
    assert of(found, "pool")[0][0] == "none" and of(found, "holder")[0][0] == "nobody"


def test_a_node_that_the_selector_does_not_match_is_told_which_requirement_fails() -> None:
    where = land(ippool("pool1", BLOCKS, nodeSelector=WORKERS, **SPEC), nodes=(*NODES, node("master")))
    found = explain_pools.explain_node(where.nodes[2], where)
    assert of(found, "IPPool pool1") == [("not for it", "role In (worker) fails: the node has no label role")]
    assert found.state == State.NOTICE


def test_a_node_without_a_block_is_told_that_the_pool_is_used_up() -> None:
    where = land(ippool("pool1", BLOCKS, **SPEC), nodes=(*NODES, node("host-c")))
    ((answer, why),) = of(explain_pools.explain_node(where.nodes[2], where), "IPPool pool1")
    assert answer == "no block" and "all 2 blocks are assigned" in why


def test_a_node_without_a_block_is_told_that_only_quarantined_ones_are_left() -> None:
    held = {"192.168.0.101-192.168.0.200": {"node": "host-b", "until": "2026-01-02T03:14:05Z"}}
    pool = ippool("pool1", {"host-a": BLOCKS["host-a"]}, held=held, **SPEC)
    where = land(pool, nodes=(node("host-a"), node("host-c")))
    ((answer, why),) = of(explain_pools.explain_node(where.nodes[1], where), "IPPool pool1")
    assert answer == "no block" and "until 2026-01-02 03:14:05 UTC" in why


def test_a_node_without_a_block_though_there_are_free_ones_points_to_the_controller() -> None:
    where = land(ippool("pool1", {"host-a": BLOCKS["host-a"]}, **SPEC), nodes=NODES)
    ((_, why),) = of(explain_pools.explain_node(where.nodes[1], where), "IPPool pool1")
    assert "is the controller running?" in why and "deployment/nv-ipam-controller" in why


def test_an_invalid_spec_is_the_reason_for_every_node() -> None:
    where = land(ippool("pool1", subnet="192.168.0.0/24", perNodeBlockSize=500), nodes=NODES)
    ((answer, why),) = of(explain_pools.explain_node(where.nodes[0], where), "IPPool pool1")
    assert answer == "no block" and "spec.perNodeBlockSize" in why


def test_a_full_block_stands_out() -> None:
    pool = ippool("p", {"host-a": "10.0.0.1-10.0.0.2"}, subnet="10.0.0.0/24", perNodeBlockSize=2, gateway="10.0.0.1")
    where = land(pool, nodes=NODES[:1], pods=(pod("web", "host-a", status=attached("10.0.0.2")),))
    assert "the next pod here gets none" in of(explain_pools.explain_node(NODES[0], where), "IPPool p")[0][1]
    assert explain_pools.explain_pool(pool, where.views[0], where).state == State.BAD


def test_a_pool_tells_of_overlaps_nodes_without_block_and_nodes_that_are_gone() -> None:
    other = cidrpool("other", cidr="192.168.0.0/16", perNodeNetworkPrefix=24)
    pool = ippool("pool1", BLOCKS, **SPEC)
    where = land(pool, other, nodes=(node("host-a"), node("host-c"), node("host-d")))
    found = explain_pools.explain_pool(pool, where.views[0], where)
    assert of(found, "overlap")[0][0] == "CIDRPool other"
    assert of(found, "nodes")[0][0] == "3"
    assert [answer for answer, _ in of(found, "no block")] == ["host-c, host-d"]
    assert of(found, "status")[0][0] == "host-b"


def test_a_pool_that_is_well_says_so() -> None:
    pool = ippool("pool1", BLOCKS, subnet="192.168.0.0/16", perNodeBlockSize=100)
    where = land(pool, nodes=NODES)
    found = explain_pools.explain_pool(pool, where.views[0], where)
    assert found.state == State.GOOD
    assert of(found, "blocks")[0][0] == "653 free"


def test_without_pools_a_node_says_so() -> None:
    assert explain_pools.explain_node(NODES[0], land(nodes=NODES)).findings[0].answer == "none"


def test_a_spec_that_is_valid_and_hardly_meant_is_told() -> None:
    every = [{"startIndex": 0, "endIndex": 9}]
    pool = ippool("p", subnet="10.0.0.0/24", perNodeBlockSize=10, perNodeExclusions=every)
    where = land(pool, nodes=NODES)
    found = explain_pools.explain_pool(pool, where.views[0], where)
    assert "perNodeExclusions covers every address" in dict(of(found, "spec"))["odd"]


def selector(*terms: dict[str, Any]) -> NodeSelector:
    return msgspec.convert({"nodeSelectorTerms": terms}, NodeSelector)


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": values}


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        ([{"matchExpressions": [expression("role", "In", "worker", "gpu")]}], "role In (worker,gpu) fails"),
        ([{"matchExpressions": [expression("rack", "Exists")]}], "rack Exists fails: the node has no label rack"),
        ([{"matchExpressions": [expression("role", "DoesNotExist")]}], "role DoesNotExist fails"),
        ([{"matchExpressions": [expression("role", "NotIn", "master")]}], "the node's label has the value 'master'"),
        (
            [{"matchExpressions": [expression("slots", "Gt", "8")]}],
            "> 8 fails: the node's label has the value '4'",
        ),
        ([{"matchFields": [expression("metadata.name", "In", "host-b")]}], "the node's name is host-a"),
        ([{}], "the term is empty"),
        ([], "has no terms"),
        (
            [{"matchExpressions": [expression(key, "In", "x")]} for key in ("role", "zone")],
            "term 2: zone In (x) fails",
        ),
    ],
)
def test_the_failing_requirement_is_named(terms: list[dict[str, Any]], reason: str) -> None:
    assert reason in why_not(selector(*terms), node("host-a", role="master", slots="4"))


def test_of_several_requirements_only_those_that_fail_are_named() -> None:
    both = {"matchExpressions": [expression("role", "In", "master"), expression("zone", "In", "a")]}
    text = why_not(selector(both), node("host-a", role="master"))
    assert "zone In (a) fails" in text and "role" not in text


def test_nothing_is_said_of_a_node_that_matches() -> None:
    assert why_not(None, node("host-a")) == ""
    assert why_not(selector({"matchExpressions": [expression("role", "Exists")]}), node("host-a", role="")) == ""


def pool_explained(where: Landscape, number: int = 0) -> Explanation:
    return explain_pools.explain_pool(where.pools[number], where.views[number], where)


def test_nodes_keep_their_blocks_while_the_spec_is_invalid_and_are_counted() -> None:
    where = land(ippool("pool1", BLOCKS, **SPEC | {"perNodeBlockSize": 0}), nodes=NODES)
    found = pool_explained(where)
    assert of(found, "blocks") == [("2 kept", "2 nodes keep theirs; no other node gets one")]
    ((answer, why),) = of(found, "status")
    assert answer == "kept" and "host-a: 192.168.0.1-192.168.0.100" in why
    assert of(found, "nodes")[0][1].endswith("without a block: 0")
    assert not of(found, "addresses"), "what the blocks of an earlier spec have is not known"
    (keeps,) = explain_pools.explain_node(NODES[0], where).findings
    assert (keeps.answer, keeps.state) == ("192.168.0.1-192.168.0.100", State.BAD)
    assert "given by an earlier spec and kept" in keeps.why


def test_a_pool_whose_exclusions_cover_it_is_not_called_full() -> None:
    spec = SPEC | {"exclusions": [{"startIP": "192.168.0.1", "endIP": "192.168.0.254"}]}
    where = land(ippool("pool1", {}, **spec), nodes=NODES)
    ((_, why),) = of(pool_explained(where), "no block")
    assert why.startswith("spec.exclusions leave no address of any block")
    (finding,) = explain_pools.explain_node(NODES[0], where).findings
    assert "are assigned" not in finding.why and "spec.exclusions" in finding.why


def test_an_invalid_pool_and_addresses_that_are_excluded_overlap_with_nobody() -> None:
    good = ippool("good", BLOCKS, **SPEC)
    for other in (
        ippool("bad", {}, **SPEC | {"perNodeBlockSize": 0}),
        cidrpool(
            "rest",
            cidr="192.168.0.0/24",
            perNodeNetworkPrefix=28,
            exclusions=[{"startIP": "192.168.0.0", "endIP": "192.168.0.255"}],
        ),
    ):
        where = land(good, other, nodes=NODES)
        assert of(pool_explained(where, 0), "overlap") == [] == of(pool_explained(where, 1), "overlap")
    where = land(good, ippool("bad", {}, **SPEC | {"perNodeBlockSize": 0}), nodes=NODES)
    assert of(about("192.168.0.7", where), "pools") == []
    assert of(pool_explained(land(good, ippool("too", {}, **SPEC), nodes=NODES)), "overlap")
