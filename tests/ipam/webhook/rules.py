"""Every rule of validation once: a spec that breaks it, and the field that the answer must name.

The specs pass the custom resources' own schema, so that it is the webhook that refuses them.
"""

from __future__ import annotations

from typing import Any

IPPOOL: dict[str, Any] = {"subnet": "10.20.0.0/24", "perNodeBlockSize": 16, "gateway": "10.20.0.1"}
CIDRPOOL: dict[str, Any] = {"cidr": "10.21.0.0/16", "perNodeNetworkPrefix": 24, "gatewayIndex": 1}
Rule = tuple[str, dict[str, Any], str]


def _selector(**requirement: Any) -> dict[str, Any]:
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}


def _fields(**requirement: Any) -> dict[str, Any]:
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [requirement]}]}}


TERM = "spec.nodeSelectorTerms"
COMMON: list[tuple[dict[str, Any], str]] = [
    ({"nodeSelector": {"nodeSelectorTerms": []}}, TERM),
    (_selector(key="a", operator="In", values=[]), f"{TERM}[0].matchExpressions[0].values"),
    (_selector(key="a", operator="NotIn"), f"{TERM}[0].matchExpressions[0].values"),
    (_selector(key="a", operator="Exists", values=["b"]), f"{TERM}[0].matchExpressions[0].values"),
    (_selector(key="a", operator="DoesNotExist", values=["b"]), f"{TERM}[0].matchExpressions[0].values"),
    (_selector(key="a", operator="Gt", values=["1", "2"]), f"{TERM}[0].matchExpressions[0].values"),
    (_selector(key="a", operator="Near", values=["1"]), f"{TERM}[0].matchExpressions[0].operator"),
    (_selector(key="-a", operator="Exists"), f"{TERM}[0].matchExpressions[0].key"),
    (_fields(key="metadata.name", operator="Exists"), f"{TERM}[0].matchFields[0].operator"),
    (_fields(key="metadata.name", operator="In", values=["a", "b"]), f"{TERM}[0].matchFields[0].values"),
    (_fields(key="metadata.uid", operator="In", values=["a"]), f"{TERM}[0].matchFields[0].key"),
    (_fields(key="metadata.name", operator="In", values=["A_B"]), f"{TERM}[0].matchFields[0].values[0]"),
    ({"routes": [{"dst": "10.0.0.0"}]}, "spec.routes[0].dst"),
    ({"routes": [{"dst": "fd00::/64"}]}, "spec.routes[0].dst"),
    ({"routes": [{"dst": "0.0.0.0/0"}], "defaultGateway": True}, "spec.routes[0].dst"),
    ({"exclusions": [{"startIP": "x", "endIP": "y"}]}, "spec.exclusions[0].startIP"),
    ({"exclusions": [{"startIP": "10.99.0.1", "endIP": "10.99.0.2"}]}, "spec.exclusions[0].startIP"),
    ({"perNodeExclusions": [{"startIndex": 0, "endIndex": 300}]}, "spec.perNodeExclusions[0].endIndex"),
]
RULES: list[Rule] = [
    *(("IPPool", {**IPPOOL, **more}, path) for more, path in COMMON),
    *(("CIDRPool", {**CIDRPOOL, **more}, path) for more, path in COMMON),
    ("IPPool", {**IPPOOL, "subnet": "10.20.0.0"}, "spec.subnet"),
    ("IPPool", {**IPPOOL, "perNodeBlockSize": 0}, "spec.perNodeBlockSize"),
    ("IPPool", {**IPPOOL, "perNodeBlockSize": 255}, "spec.perNodeBlockSize"),
    ("IPPool", {**IPPOOL, "gateway": "nowhere"}, "spec.gateway"),
    ("IPPool", {**IPPOOL, "gateway": "10.20.1.1"}, "spec.gateway"),
    ("IPPool", {**IPPOOL, "exclusions": [{"startIP": "10.20.0.9", "endIP": "10.20.0.2"}]}, "spec.exclusions[0]"),
    ("IPPool", {"subnet": "10.20.0.0/24", "perNodeBlockSize": 4, "defaultGateway": True}, "spec.defaultGateway"),
    ("IPPool", {"subnet": "10.20.0.0/24", "perNodeBlockSize": 4, "routes": [{"dst": "10.0.0.0/8"}]}, "spec.routes"),
    ("CIDRPool", {**CIDRPOOL, "cidr": "10.21.0.0/64"}, "spec.cidr"),
    ("CIDRPool", {**CIDRPOOL, "cidr": "10.21.0.1/16"}, "spec.cidr"),
    ("CIDRPool", {**CIDRPOOL, "gatewayIndex": -1}, "spec.gatewayIndex"),
    ("CIDRPool", {**CIDRPOOL, "gatewayIndex": 255}, "spec.gatewayIndex"),
    ("CIDRPool", {**CIDRPOOL, "perNodeNetworkPrefix": -1}, "spec.perNodeNetworkPrefix"),
    ("CIDRPool", {**CIDRPOOL, "perNodeNetworkPrefix": 0}, "spec.perNodeNetworkPrefix"),
    ("CIDRPool", {**CIDRPOOL, "perNodeNetworkPrefix": 15}, "spec.perNodeNetworkPrefix"),
    ("CIDRPool", {"cidr": "10.21.0.0/16", "perNodeNetworkPrefix": 24, "defaultGateway": True}, "spec.defaultGateway"),
    (
        "CIDRPool",
        {"cidr": "10.21.0.0/16", "perNodeNetworkPrefix": 24, "routes": [{"dst": "10.0.0.0/8"}]},
        "spec.routes",
    ),
    ("CIDRPool", {**CIDRPOOL, "staticAllocations": [{"prefix": "x"}]}, "spec.staticAllocations[0].prefix"),
    ("CIDRPool", {**CIDRPOOL, "staticAllocations": [{"prefix": "10.21.0.1/24"}]}, "spec.staticAllocations[0].prefix"),
    ("CIDRPool", {**CIDRPOOL, "staticAllocations": [{"prefix": "10.22.0.0/24"}]}, "spec.staticAllocations[0].prefix"),
    ("CIDRPool", {**CIDRPOOL, "staticAllocations": [{"prefix": "10.21.0.0/25"}]}, "spec.staticAllocations[0].prefix"),
    (
        "CIDRPool",
        {**CIDRPOOL, "staticAllocations": [{"prefix": "10.21.0.0/24", "gateway": "10.21.1.1"}]},
        "spec.staticAllocations[0].gateway",
    ),
    (
        "CIDRPool",
        {**CIDRPOOL, "staticAllocations": [{"prefix": "10.21.0.0/24"}, {"prefix": "10.21.0.0/24"}]},
        "spec.staticAllocations",
    ),
    (
        "CIDRPool",
        {
            **CIDRPOOL,
            "staticAllocations": [
                {"nodeName": "n", "prefix": "10.21.0.0/24"},
                {"nodeName": "n", "prefix": "10.21.1.0/24"},
            ],
        },
        "spec.staticAllocations",
    ),
]
