"""Every rule of validation, one by one; and what the original answered to random specs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bedplate.ipam import validation
from bedplate.ipam.pools import CIDRPoolSpec, IPPoolSpec
from bedplate.ipam.validation import Kind, Problem

IPPOOL: dict[str, Any] = {
    "subnet": "192.168.0.0/16",
    "perNodeBlockSize": 24,
    "gateway": "192.168.0.1",
    "exclusions": [{"startIP": "192.168.0.10", "endIP": "192.168.0.20"}],
    "perNodeExclusions": [{"startIndex": 0, "endIndex": 23}],
    "routes": [{"dst": "5.5.0.0/16"}],
    "defaultGateway": True,
}
CIDRPOOL: dict[str, Any] = {
    "cidr": "192.168.0.0/16",
    "perNodeNetworkPrefix": 24,
    "gatewayIndex": 1,
    "exclusions": [{"startIP": "192.168.0.10", "endIP": "192.168.5.20"}],
    "perNodeExclusions": [{"startIndex": 0, "endIndex": 255}],
    "staticAllocations": [
        {"nodeName": "n33", "prefix": "192.168.33.0/24", "gateway": "192.168.33.10"},
        {"prefix": "192.168.1.0/24"},
    ],
    "routes": [{"dst": "5.5.0.0/16"}],
}
VECTORS = Path(__file__).parents[1] / "vectors" / "ipam" / "validation.json"


def problems(kind: str, spec: dict[str, Any], name: str = "pool") -> list[Problem]:
    if kind == "IPPool":
        return validation.ippool_problems(name, msgspec.convert(spec, IPPoolSpec))
    return validation.cidrpool_problems(name, msgspec.convert(spec, CIDRPoolSpec))


def paths(kind: str, change: dict[str, Any]) -> list[str]:
    """The paths of a good spec's problems after a change; a field that becomes None is taken out."""
    base = IPPOOL if kind == "IPPool" else CIDRPOOL
    spec = {key: value for key, value in (base | change).items() if value is not None}
    return [problem.path for problem in problems(kind, spec)]


def selecting(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeSelector": {"nodeSelectorTerms": list(terms)}}


def on(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def by_field(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchFields": [{"key": key, "operator": operator, "values": list(values)}]}


def excluding(*ends: tuple[str, str]) -> dict[str, Any]:
    return {"exclusions": [{"startIP": start, "endIP": end} for start, end in ends]}


def excluding_indexes(*ends: tuple[int, int]) -> dict[str, Any]:
    return {"perNodeExclusions": [{"startIndex": start, "endIndex": end} for start, end in ends]}


def static(*entries: dict[str, str]) -> dict[str, Any]:
    return {"staticAllocations": list(entries)}


EXPRESSION, FIELD = "spec.nodeSelectorTerms[0].matchExpressions[0]", "spec.nodeSelectorTerms[0].matchFields[0]"


@pytest.mark.parametrize("kind", ["IPPool", "CIDRPool"])
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        (selecting(on("tier", "In", "gold"), {}), []),
        (selecting(on("example.com/tier", "Gt", "not a number")), []),
        (selecting(by_field("metadata.name", "NotIn", "node-1.example")), []),
        (selecting(), ["spec.nodeSelectorTerms"]),
        (selecting(on("tier", "In")), [f"{EXPRESSION}.values"]),
        (selecting(on("tier", "NotIn")), [f"{EXPRESSION}.values"]),
        (selecting(on("tier", "Exists", "x")), [f"{EXPRESSION}.values"]),
        (selecting(on("tier", "DoesNotExist", "x")), [f"{EXPRESSION}.values"]),
        (selecting(on("tier", "Gt")), [f"{EXPRESSION}.values"]),
        (selecting(on("tier", "Lt", "1", "2")), [f"{EXPRESSION}.values"]),
        (selecting(on("tier", "Equals", "x")), [f"{EXPRESSION}.operator"]),
        (selecting(on("no key", "Exists")), [f"{EXPRESSION}.key"]),
        (selecting(on("", "In")), [f"{EXPRESSION}.values", f"{EXPRESSION}.key"]),
        (selecting(by_field("metadata.name", "In", "a", "b")), [f"{FIELD}.values"]),
        (selecting(by_field("metadata.name", "In")), [f"{FIELD}.values"]),
        (selecting(by_field("metadata.name", "Exists")), [f"{FIELD}.operator"]),
        (selecting(by_field("metadata.uid", "In", "Not A Name")), [f"{FIELD}.key"]),
        (selecting(by_field("metadata.name", "In", "Not_A_Name")), [f"{FIELD}.values[0]"]),
        ({}, []),
        ({"routes": [{"dst": "5.5.0.0/16"}, {"dst": "nonsense"}]}, ["spec.routes[1].dst"]),
        ({"routes": [{"dst": "fd00::/64"}]}, ["spec.routes[0].dst"]),
        ({"routes": [{"dst": "0.0.0.0/0"}], "defaultGateway": True}, ["spec.routes[0].dst"]),
        ({"routes": [{"dst": "0.0.0.0/0"}], "defaultGateway": False}, []),
        ({"routes": [{"dst": "::/0"}], "defaultGateway": True}, ["spec.routes[0].dst", "spec.routes[0].dst"]),
        ({"routes": [{"dst": "5.5.5.5/16"}]}, []),
        (excluding(("192.168.0.1", "192.168.0.9"), ("192.168.0.5", "192.168.0.5")), []),
        (excluding(("192.168.0.0", "192.168.255.255")), []),
        (excluding(("192.168.0.", "192.168.0.9")), ["spec.exclusions[0].startIP"]),
        (excluding(("192.168.0.1", "192.168.0.1"), ("192.168.0.1", "")), ["spec.exclusions[1].endIP"]),
        (excluding(("192.167.255.255", "192.169.0.0")), ["spec.exclusions[0].startIP", "spec.exclusions[0].endIP"]),
        (excluding(("192.168.0.9", "192.168.0.8")), ["spec.exclusions[0]"]),
        (excluding(("192.168.0.9", "fd00::1")), ["spec.exclusions[0].endIP", "spec.exclusions[0]"]),
        (excluding_indexes((0, 0), (0, 5), (3, 9)), []),
        (excluding_indexes((-1, 0)), ["spec.perNodeExclusions[0].startIndex"]),
        (excluding_indexes((5, 4)), ["spec.perNodeExclusions[0]"]),
        (excluding_indexes((0, 256)), ["spec.perNodeExclusions[0].endIndex"]),
        (
            excluding_indexes((0, 1), (300, 299)),
            [
                "spec.perNodeExclusions[1].startIndex",
                "spec.perNodeExclusions[1].endIndex",
                "spec.perNodeExclusions[1]",
            ],
        ),
    ],
)
def test_rules_of_both_kinds(kind: str, change: dict[str, Any], expected: list[str]) -> None:
    assert paths(kind, change) == expected


@pytest.mark.parametrize("kind", ["IPPool", "CIDRPool"])
@pytest.mark.parametrize("name", ["pool", "P_1.a-", "0", "a" * 300])
def test_a_name_of_a_cni_network_is_good(kind: str, name: str) -> None:
    assert not problems(kind, IPPOOL if kind == "IPPool" else CIDRPOOL, name)


@pytest.mark.parametrize("kind", ["IPPool", "CIDRPool"])
@pytest.mark.parametrize("name", ["", "-a", ".a", "_a", "a b", "a\n", "é", "a/b"])
def test_any_other_name_is_not(kind: str, name: str) -> None:
    assert [one.path for one in problems(kind, IPPOOL if kind == "IPPool" else CIDRPOOL, name)] == ["metadata.name"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"subnet": "192.168.4.7/16"}, []),
        ({"subnet": "192.168.0.0"}, ["spec.subnet"]),
        ({"perNodeBlockSize": 0, "perNodeExclusions": None}, ["spec.perNodeBlockSize"]),
        ({"perNodeBlockSize": -1}, ["spec.perNodeBlockSize"]),
        ({"perNodeBlockSize": 1, "perNodeExclusions": None}, []),
        ({"perNodeBlockSize": 65534}, []),
        ({"perNodeBlockSize": 65535}, ["spec.perNodeBlockSize"]),
        ({"perNodeBlockSize": 1 << 40, "subnet": "::/0", "gateway": "fd00::1", "exclusions": None, "routes": None}, []),
        ({"perNodeBlockSize": 24, **excluding_indexes((24, 24))}, ["spec.perNodeExclusions[0].startIndex"] * 1
         + ["spec.perNodeExclusions[0].endIndex"]),
        ({"gateway": "192.168.0.0"}, []),
        ({"gateway": "192.168.255.255"}, []),
        ({"gateway": "::ffff:192.168.0.1"}, []),
        ({"gateway": "192.167.0.1"}, ["spec.gateway"]),
        ({"gateway": "fd00::1"}, ["spec.gateway"]),
        ({"gateway": "gateway"}, ["spec.gateway"]),
        ({"gateway": None}, ["spec.defaultGateway", "spec.routes"]),
        ({"gateway": None, "routes": None}, ["spec.defaultGateway"]),
        ({"gateway": None, "routes": None, "defaultGateway": False}, []),
        ({"gateway": None, "defaultGateway": False, "routes": [{"dst": "x"}]}, ["spec.routes", "spec.routes[0].dst"]),
        ({"subnet": "x", "gateway": "y"}, ["spec.subnet", "spec.gateway"]),
        ({"subnet": "10.0.0.0/31", "perNodeBlockSize": 2, "gateway": "10.0.0.0", "exclusions": None,
          "perNodeExclusions": None}, []),
        ({"subnet": "10.0.0.0/31", "perNodeBlockSize": 3, "gateway": "10.0.0.0", "exclusions": None,
          "perNodeExclusions": None}, ["spec.perNodeBlockSize"]),
        ({"subnet": "10.0.0.0/32", "perNodeBlockSize": 1, "gateway": "10.0.0.0", "exclusions": None,
          "perNodeExclusions": None}, []),
    ],
)  # fmt: skip
def test_rules_of_an_ippool(change: dict[str, Any], expected: list[str]) -> None:
    assert paths("IPPool", change) == expected


BARE = {"exclusions": None, "perNodeExclusions": None, "staticAllocations": None, "routes": None}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"cidr": "192.168.0.0"}, ["spec.cidr"]),
        ({"cidr": "192.168.0.1/16", "gatewayIndex": -1, "perNodeNetworkPrefix": 0}, ["spec.cidr"]),
        ({"gatewayIndex": -1, "perNodeNetworkPrefix": -1}, ["spec.gatewayIndex"]),
        ({"perNodeNetworkPrefix": -1, **excluding(("x", "y"))}, ["spec.perNodeNetworkPrefix"]),
        ({"perNodeNetworkPrefix": 0}, ["spec.perNodeNetworkPrefix"]),
        ({"perNodeNetworkPrefix": 33}, ["spec.perNodeNetworkPrefix"]),
        ({"perNodeNetworkPrefix": 15}, ["spec.perNodeNetworkPrefix"]),
        ({"perNodeNetworkPrefix": 16, "staticAllocations": None}, []),
        ({"cidr": "0.0.0.0/0", "perNodeNetworkPrefix": 0, **BARE}, ["spec.perNodeNetworkPrefix"]),
        ({"cidr": "fd00::/48", "perNodeNetworkPrefix": 64, **BARE}, []),
        ({"cidr": "fd00::/48", "perNodeNetworkPrefix": 32, **BARE}, ["spec.perNodeNetworkPrefix"]),
        ({"gatewayIndex": 0}, ["spec.gatewayIndex"]),
        ({"gatewayIndex": 254}, []),
        ({"gatewayIndex": 255}, ["spec.gatewayIndex"]),
        ({"cidr": "fd00::/48", "perNodeNetworkPrefix": 120, "gatewayIndex": 255, **BARE}, []),
        ({"cidr": "fd00::/48", "perNodeNetworkPrefix": 64, "gatewayIndex": (1 << 31) - 1, **BARE}, []),
        ({"cidr": "fd00::/48", "perNodeNetworkPrefix": 64, "gatewayIndex": 1 << 31, **BARE}, ["spec.gatewayIndex"]),
        ({"perNodeNetworkPrefix": 31, "gatewayIndex": 0, **BARE}, []),
        ({"perNodeNetworkPrefix": 31, "gatewayIndex": 2, **BARE}, ["spec.gatewayIndex"]),
        ({"perNodeNetworkPrefix": 32, "gatewayIndex": 0, **BARE}, []),
        ({"gatewayIndex": None}, ["spec.routes"]),
        ({"gatewayIndex": None, "defaultGateway": True}, ["spec.defaultGateway", "spec.routes"]),
        ({"gatewayIndex": None, "routes": None}, []),
        (excluding_indexes((0, 255)), []),
        (excluding_indexes((256, 256)), ["spec.perNodeExclusions[0].startIndex", "spec.perNodeExclusions[0].endIndex"]),
        ({"cidr": "fd00::/48", "perNodeNetworkPrefix": 64, **BARE, **excluding_indexes((0, 2**31 - 1))}, []),
        ({"cidr": "x", "routes": [{"dst": "y"}]}, ["spec.cidr", "spec.routes[0].dst"]),
    ],
)
def test_rules_of_a_cidrpool(change: dict[str, Any], expected: list[str]) -> None:
    assert paths("CIDRPool", change) == expected


PREFIX, GATEWAY = "spec.staticAllocations[0].prefix", "spec.staticAllocations[0].gateway"


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([{"prefix": "192.168.9.0/24"}, {"prefix": "192.168.8.0/24"}], []),
        ([{"prefix": "x", "gateway": "y"}], [PREFIX]),
        ([{"prefix": "192.168.9.1/24", "gateway": "y"}], [PREFIX]),
        ([{"prefix": "192.169.9.0/24", "gateway": "y"}], [PREFIX]),
        ([{"prefix": "fd00::/24"}], [PREFIX]),
        ([{"prefix": "192.168.9.0/25", "gateway": "y"}], [PREFIX]),
        ([{"prefix": "192.168.0.0/15"}], [PREFIX]),
        ([{"prefix": "192.168.9.0/24", "gateway": "y"}], [GATEWAY]),
        ([{"prefix": "192.168.9.0/24", "gateway": "192.168.8.1"}], [GATEWAY]),
        ([{"prefix": "192.168.9.0/24", "gateway": "192.168.9.0"}], []),
        ([{"prefix": "192.168.9.0/24", "nodeName": "a"}, {"prefix": "192.168.8.0/24", "nodeName": "a"}],
         ["spec.staticAllocations"]),
        ([{"prefix": "192.168.9.0/24", "nodeName": "a"}, {"prefix": "192.168.9.0/024"}], ["spec.staticAllocations"]),
        ([{"prefix": "192.168.9.0/24", "nodeName": "a"}, {"prefix": "192.168.9.0/24", "nodeName": "a"}],
         ["spec.staticAllocations"] * 2),
        ([{"prefix": "192.168.9.0/25"}, {"prefix": "192.168.9.0/25"}],
         [PREFIX, "spec.staticAllocations[1].prefix", "spec.staticAllocations"]),
    ],
)  # fmt: skip
def test_rules_of_static_allocations(entries: list[dict[str, str]], expected: list[str]) -> None:
    assert paths("CIDRPool", static(*entries)) == expected


def test_kinds_tell_what_is_missing_and_what_is_too_much() -> None:
    found = problems("IPPool", IPPOOL | selecting(on("a", "In"), on("a", "Exists", "x"), on("a", "Is")))
    assert [one.kind for one in found] == [Kind.REQUIRED, Kind.FORBIDDEN, Kind.INVALID]
    assert [one.kind for one in problems("IPPool", IPPOOL | selecting())] == [Kind.REQUIRED]


def test_a_summary_names_each_field_and_what_is_wrong() -> None:
    one = problems("IPPool", IPPOOL | {"subnet": "x"})
    assert validation.summary(one) == 'spec.subnet: Invalid value: "x": must be a network in CIDR notation'
    two = problems("IPPool", IPPOOL | {"subnet": "x", "perNodeBlockSize": 0})
    assert validation.summary(two).startswith("[spec.subnet: ") and validation.summary(two).endswith("]")
    assert "spec.perNodeBlockSize: Invalid value: 0: must be at least 1" in validation.summary(two)
    missing = problems("IPPool", IPPOOL | selecting(on("a", "In"), on("a", "Exists", "x")))
    assert "Required value" in str(missing[0]) and "Forbidden" in str(missing[1])
    assert validation.summary([]) == ""


def test_the_original_accepts_and_refuses_the_same_fields() -> None:
    cases = json.loads(VECTORS.read_text())
    differing = []
    for case in cases:
        expected = {(one["path"], one["kind"]) for one in case["errors"]}
        found = {(one.path, str(one.kind)) for one in problems(case["kind"], case["spec"], case["name"])}
        if found != expected:
            differing.append((case, found ^ expected))
    assert len(cases) > 400
    assert not differing
