"""What a node knows of pools: documents byte for byte, only the own entry, nothing rebuilt without need."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.ipam.addresses import Address, parse_address
from bedplate.ipam.node import poolview
from bedplate.ipam.node.poolview import LeanPool, PoolView, own_entry
from bedplate.ipam.pools import IPAllocation, IPPoolStatus
from bedplate.runtime.cache import Change

NODE = "node-1"
DECODER = msgspec.json.Decoder(LeanPool)


def pool(name: str, spec: dict[str, Any], allocations: list[dict[str, str]] | None, version: str = "1") -> LeanPool:
    made = {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": version},
        "spec": spec,
    }
    if allocations is not None:
        made["status"] = {"allocations": allocations}
    return DECODER.decode(msgspec.json.encode(made))


def change(new: LeanPool | None, old: LeanPool | None = None) -> Change[LeanPool]:
    named = new or old
    assert named is not None
    return Change(f"ns/{named.name}", old, new)


SPEC = {"subnet": "192.168.0.0/16", "perNodeBlockSize": 24, "gateway": "192.168.0.1"}
OWN = {"nodeName": NODE, "startIP": "192.168.0.25", "endIP": "192.168.0.48"}
OTHER = {"nodeName": "node-0", "startIP": "192.168.0.1", "endIP": "192.168.0.24"}
CIDR = {"cidr": "10.1.0.0/16", "perNodeNetworkPrefix": 24, "gatewayIndex": 1}
PREFIX = {"nodeName": NODE, "gateway": "10.1.3.1", "prefix": "10.1.3.0/24"}


def ippool_view(spec: dict[str, Any], *allocations: dict[str, str]) -> PoolView:
    view = PoolView(NODE)
    view.take_ippool(change(pool("p", spec, list(allocations))))
    return view


def cidrpool_view(spec: dict[str, Any], *allocations: dict[str, str]) -> PoolView:
    view = PoolView(NODE)
    view.take_cidrpool(change(pool("p", spec, list(allocations))))
    return view


def test_an_ippool_is_written_as_the_original_writes_it() -> None:
    spec = {
        **SPEC,
        "exclusions": [
            {"startIP": "192.168.0.30", "endIP": "192.168.0.35"},
            {"startIP": "192.168.9.1", "endIP": "192.168.9.9"},
        ],
        "perNodeExclusions": [{"startIndex": 0, "endIndex": 5}, {"startIndex": 20, "endIndex": 500}],
        "routes": [{"dst": "5.5.0.0/16"}],
        "defaultGateway": True,
    }
    config = ippool_view(spec, OTHER, OWN).configs["p"]
    assert config.document == (
        '{"subnet":"192.168.0.0/16","startIP":"192.168.0.25","endIP":"192.168.0.48","gateway":"192.168.0.1",'
        '"exclusions":[{"startIP":"192.168.0.30","endIP":"192.168.0.35"},'
        '{"startIP":"192.168.9.1","endIP":"192.168.9.9"},'
        '{"startIP":"192.168.0.25","endIP":"192.168.0.30"},{"startIP":"192.168.0.45","endIP":"192.168.0.48"}],'
        '"routes":[{"dst":"5.5.0.0/16"}],"defaultGateway":true}'
    )
    # Overlapping ones are one for choosing.
    base = parse_address("192.168.0.0")
    assert base is not None
    assert [(first - base.value, last - base.value) for first, last in config.exclusions] == [(25, 35), (45, 48)]


def test_a_plain_ippool_has_empty_lists() -> None:
    assert ippool_view(SPEC, OWN).configs["p"].document == (
        '{"subnet":"192.168.0.0/16","startIP":"192.168.0.25","endIP":"192.168.0.48","gateway":"192.168.0.1",'
        '"exclusions":[],"routes":[],"defaultGateway":false}'
    )


def test_a_cidrpool_is_written_as_the_original_writes_it() -> None:
    spec = {
        **CIDR,
        "exclusions": [
            {"startIP": "10.1.3.10", "endIP": "10.1.3.20"},
            {"startIP": "10.1.2.200", "endIP": "10.1.3.5"},
            {"startIP": "10.1.3.250", "endIP": "10.1.4.9"},
            {"startIP": "10.1.7.1", "endIP": "10.1.7.9"},
        ],
        "perNodeExclusions": [{"startIndex": 0, "endIndex": 2}, {"startIndex": 254, "endIndex": 255}],
    }
    assert cidrpool_view(spec, PREFIX).configs["cidrpool/p"].document == (
        '{"subnet":"10.1.3.0/24","startIP":"10.1.3.1","endIP":"10.1.3.254","gateway":"10.1.3.1",'
        '"exclusions":[{"startIP":"10.1.3.10","endIP":"10.1.3.20"},{"startIP":"10.1.3.1","endIP":"10.1.3.5"},'
        '{"startIP":"10.1.3.250","endIP":"10.1.3.254"},{"startIP":"10.1.3.0","endIP":"10.1.3.2"},'
        '{"startIP":"10.1.3.254","endIP":"10.1.3.254"}],"routes":[],"defaultGateway":false}'
    )


def test_an_exclusion_over_the_whole_prefix_counts() -> None:
    spec = {
        **CIDR,
        "exclusions": [{"startIP": "10.1.2.0", "endIP": "10.1.9.0"}],
        "staticAllocations": [{"nodeName": NODE, "prefix": "10.1.3.0/24"}],
    }
    config = cidrpool_view(spec, PREFIX).configs["cidrpool/p"]
    assert config.exclusions == ((config.start, config.end),)


@pytest.mark.parametrize(
    ("prefix", "length", "block"),
    [
        ("10.1.0.0/31", 31, ("10.1.0.0", "10.1.0.1")),
        ("10.1.0.4/32", 32, ("10.1.0.4", "10.1.0.4")),
        ("10.1.0.8/30", 30, ("10.1.0.9", "10.1.0.10")),
    ],
)
def test_the_block_of_a_prefix(prefix: str, length: int, block: tuple[str, str]) -> None:
    spec = {"cidr": "10.1.0.0/16", "perNodeNetworkPrefix": length}
    config = cidrpool_view(spec, {"nodeName": NODE, "prefix": prefix}).configs["cidrpool/p"]
    assert (str(Address(32, config.start)), str(Address(32, config.end))) == block


def test_the_block_of_an_ipv6_prefix_ends_with_its_last_address() -> None:
    spec = {"cidr": "fd00::/48", "perNodeNetworkPrefix": 120, "gatewayIndex": 1}
    entry = {"nodeName": NODE, "prefix": "fd00::100/120", "gateway": "fd00::101"}
    document = cidrpool_view(spec, entry).configs["cidrpool/p"].document
    assert document.startswith('{"subnet":"fd00::100/120","startIP":"fd00::101","endIP":"fd00::1ff"')


@pytest.mark.parametrize(
    ("spec", "entry"),
    [
        ({**CIDR, "perNodeNetworkPrefix": 8}, PREFIX),
        ({**CIDR, "cidr": "10.1.0.1/16"}, PREFIX),
        (CIDR, {**PREFIX, "prefix": "10.1.3.1/24"}),
        (CIDR, {**PREFIX, "prefix": "10.1.3.0/25"}),
        (CIDR, {**PREFIX, "prefix": "10.2.3.0/24"}),
        (CIDR, {**PREFIX, "prefix": "nonsense"}),
        (CIDR, {**PREFIX, "gateway": "10.1.3.2"}),
        (CIDR, {**PREFIX, "gateway": ""}),
        ({**CIDR, "gatewayIndex": None}, PREFIX),
        ({**CIDR, "staticAllocations": [{"nodeName": "other", "prefix": "10.1.3.0/24"}]}, PREFIX),
        ({**CIDR, "staticAllocations": [{"prefix": "10.1.3.0/24"}]}, PREFIX),
        ({**CIDR, "staticAllocations": [{"nodeName": NODE, "prefix": "10.1.4.0/24"}]}, PREFIX),
        ({**CIDR, "staticAllocations": [{"nodeName": NODE, "prefix": "10.1.3.0/24", "gateway": "10.1.3.9"}]}, PREFIX),
    ],
)
def test_a_wrong_cidrpool_or_entry_is_unknown_here(spec: dict[str, Any], entry: dict[str, str]) -> None:
    view = cidrpool_view(spec, entry)
    assert not view.configs
    assert not view.unusable
    assert "cidrpool/p" in view.problems


@pytest.mark.parametrize(
    "other",
    [
        {"nodeName": "other", "prefix": "10.1.3.0/24", "gateway": "10.1.3.7"},
        {"nodeName": "other", "prefix": "10.1.9.0/24", "gateway": "10.1.3.1"},
        {"nodeName": NODE, "prefix": "10.1.9.0/24", "gateway": "10.1.9.1"},
    ],
)
def test_an_entry_that_clashes_with_another_is_unknown(other: dict[str, str]) -> None:
    assert not cidrpool_view(CIDR, PREFIX, other).configs
    assert cidrpool_view(CIDR, PREFIX, {"nodeName": "other", "prefix": "10.1.30.0/24"}).configs


def test_a_static_gateway_counts() -> None:
    spec = {**CIDR, "staticAllocations": [{"nodeName": NODE, "prefix": "10.1.3.0/24", "gateway": "10.1.3.9"}]}
    config = cidrpool_view(spec, {**PREFIX, "gateway": "10.1.3.9"}).configs["cidrpool/p"]
    assert str(config.gateway) == "10.1.3.9"


@pytest.mark.parametrize(
    ("spec", "entry"),
    [
        (SPEC, {**OWN, "startIP": "nonsense"}),
        (SPEC, {**OWN, "endIP": "192.168.0.1"}),
        (SPEC, {**OWN, "endIP": "10.0.0.1"}),
        ({**SPEC, "subnet": "nonsense"}, OWN),
        ({**SPEC, "exclusions": [{"startIP": "a", "endIP": "b"}]}, OWN),
    ],
)
def test_an_ippool_that_cannot_be_used_is_said_to_be_so(spec: dict[str, Any], entry: dict[str, str]) -> None:
    view = ippool_view(spec, entry)
    assert not view.configs
    assert view.unusable == {"p"}
    assert view.problems["p"]


def test_an_ippool_with_a_wrong_spec_is_used_all_the_same() -> None:
    view = ippool_view({**SPEC, "gateway": "10.0.0.1", "perNodeBlockSize": 0}, OWN)
    assert view.configs["p"]
    assert "perNodeBlockSize" in view.problems["p"]
    view.take_ippool(change(pool("p", SPEC, [OWN], "2")))
    assert not view.problems


def test_both_kinds_may_have_one_name() -> None:
    view = ippool_view(SPEC, OWN)
    view.take_cidrpool(change(pool("p", CIDR, [PREFIX])))
    assert set(view.configs) == {"p", "cidrpool/p"}
    view.take_cidrpool(change(None, pool("p", CIDR, [PREFIX])))
    assert set(view.configs) == {"p"}


@pytest.mark.parametrize("allocations", [[OTHER], [], None])
def test_without_an_entry_the_pool_is_not_this_nodes(allocations: list[dict[str, str]] | None) -> None:
    view = ippool_view(SPEC, OWN)
    view.take_ippool(change(pool("p", SPEC, allocations, "2")))
    assert not view.configs
    assert not view.problems


def test_nothing_is_made_anew_while_spec_and_entry_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    view = ippool_view(SPEC, OWN)
    before = view.configs["p"]
    made = []
    kind = poolview._IPPOOL
    spied = kind._replace(config=lambda *args: made.append(args) or kind.config(*args))
    monkeypatch.setattr(poolview, "_IPPOOL", spied)
    view.take_ippool(change(pool("p", SPEC, [OTHER, OWN, {**OTHER, "nodeName": "z"}], "2")))
    assert view.configs["p"] is before
    assert not made
    view.take_ippool(change(pool("p", SPEC, [{**OWN, "endIP": "192.168.0.30"}], "3")))
    assert len(made) == 1
    view.take_ippool(change(pool("p", {**SPEC, "gateway": ""}, [{**OWN, "endIP": "192.168.0.30"}], "4")))
    assert view.configs["p"].gateway is None


def test_a_pool_that_cannot_be_decoded_is_a_problem_and_no_crash() -> None:
    view = ippool_view({**SPEC, "perNodeBlockSize": "many"}, OWN)
    assert not view.configs
    assert "cannot be read" in view.problems["p"]


def test_it_knows_whose_block_holds_an_address() -> None:
    view = ippool_view(SPEC, OTHER, OWN)

    def node_of(text: str) -> str | None:
        address = parse_address(text)
        assert address is not None
        return view.node_of("p", address)

    assert node_of("192.168.0.1") == node_of("192.168.0.24") == "node-0"
    assert node_of("192.168.0.30") is None
    assert node_of("192.168.0.49") is node_of("192.168.0.0") is node_of("fd00::1") is None
    view.take_ippool(change(pool("p", SPEC, [{**OTHER, "nodeName": "node-7"}], "2")))
    assert node_of("192.168.0.1") == "node-7"
    address = parse_address("10.1.3.4")
    assert address is not None
    assert cidrpool_view(CIDR, PREFIX).node_of("cidrpool/p", address) is None


def test_it_can_name_the_object_of_a_pool() -> None:
    view = ippool_view(SPEC, OWN)
    found = view.reference("p")
    assert found is not None
    assert (found.kind, found.namespace, found.name, found.uid) == ("IPPool", "ns", "p", "uid-p")
    assert view.reference("other") is None


nodes = st.sampled_from([NODE, "node-10", "no", 'a"nodeName":"node-1"', "node-1}", "ä", "{"])
entries = st.lists(st.builds(lambda node, start: {"nodeName": node, "startIP": start, "endIP": "e"}, nodes, nodes))


@given(entries, st.booleans())
def test_the_own_entry_is_the_first_however_it_is_found(entries: list[dict[str, str]], is_spaced: bool) -> None:
    text = msgspec.json.encode({"allocations": entries})
    if is_spaced:
        text = msgspec.json.format(text, indent=1)
    found = own_entry(text, NODE, msgspec.json.Decoder(IPAllocation), msgspec.json.Decoder(IPPoolStatus))
    wanted = next((one for one in entries if one["nodeName"] == NODE), None)
    assert (found.start_ip if found else None) == (wanted["startIP"] if wanted else None)
