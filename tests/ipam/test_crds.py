"""The custom resources: every field, column and rule, and that API servers apply them."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tests import programs, servers
from tests.ipam.controller.worlds import CRDS as CRD_REF
from tests.ipam.controller.worlds import KINDS, World, world_on
from tests.waiting import until

from bedplate.ipam import pools, validation
from bedplate.kube import errors
from bedplate.kube.client import Client
from bedplate.kube.config import find

CRDS = Path(__file__).parents[2] / "deploy" / "crds"
COLUMNS = {
    "IPPool": [
        ("Subnet", "string", ".spec.subnet"),
        ("Gateway", "string", ".spec.gateway"),
        ("Block Size", "integer", ".spec.perNodeBlockSize"),
    ],
    "CIDRPool": [
        ("CIDR", "string", ".spec.cidr"),
        ("Gateway index", "string", ".spec.gatewayIndex"),
        ("Per Node Network Prefix", "integer", ".spec.perNodeNetworkPrefix"),
    ],
}
SHAPES = {
    "IPPool": """
        defaultGateway: boolean
        exclusions[].endIP!: string
        exclusions[].startIP!: string
        gateway: string
        nodeSelector.nodeSelectorTerms[]!.matchExpressions[].key!: string
        nodeSelector.nodeSelectorTerms[]!.matchExpressions[].operator!: string
        nodeSelector.nodeSelectorTerms[]!.matchExpressions[].values[]: string
        nodeSelector.nodeSelectorTerms[]!.matchFields[].key!: string
        nodeSelector.nodeSelectorTerms[]!.matchFields[].operator!: string
        nodeSelector.nodeSelectorTerms[]!.matchFields[].values[]: string
        perNodeBlockSize!: integer
        perNodeExclusions[].endIndex!: integer int32 >=0
        perNodeExclusions[].startIndex!: integer int32 >=0
        routes[].dst!: string
        subnet!: string
        status: allocations[]!.endIP!: string
        status: allocations[]!.nodeName!: string
        status: allocations[]!.startIP!: string
    """,
    "CIDRPool": """
        cidr!: string
        defaultGateway: boolean
        exclusions[].endIP!: string
        exclusions[].startIP!: string
        gatewayIndex: integer int32
        nodeSelector.nodeSelectorTerms[]!.matchExpressions[].key!: string
        nodeSelector.nodeSelectorTerms[]!.matchExpressions[].operator!: string
        nodeSelector.nodeSelectorTerms[]!.matchExpressions[].values[]: string
        nodeSelector.nodeSelectorTerms[]!.matchFields[].key!: string
        nodeSelector.nodeSelectorTerms[]!.matchFields[].operator!: string
        nodeSelector.nodeSelectorTerms[]!.matchFields[].values[]: string
        perNodeExclusions[].endIndex!: integer int32 >=0
        perNodeExclusions[].startIndex!: integer int32 >=0
        perNodeNetworkPrefix!: integer int32
        routes[].dst!: string
        staticAllocations[].gateway: string
        staticAllocations[].nodeName: string
        staticAllocations[].prefix!: string
        status: allocations[]!.gateway: string
        status: allocations[]!.nodeName!: string
        status: allocations[]!.prefix!: string
    """,
}


def definition(kind: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((CRDS / f"nv-ipam.nvidia.com_{kind.lower()}s.yaml").read_text())
    return loaded


def version(kind: str) -> dict[str, Any]:
    (only,) = definition(kind)["spec"]["versions"]
    assert isinstance(only, dict)
    return only


def schema(kind: str) -> dict[str, Any]:
    top: dict[str, Any] = version(kind)["schema"]["openAPIV3Schema"]
    return top


def leaves(node: dict[str, Any], path: str = "") -> list[str]:
    if node["type"] == "array":
        return leaves(node["items"], f"{path}[]".replace("![]", "[]!"))
    if node["type"] != "object":
        words = [node["type"], node.get("format", ""), f">={node['minimum']}" if "minimum" in node else ""]
        return [f"{path}: {' '.join(filter(None, words))}"]
    dotted = f"{path}." if path else ""
    required = node.get("required", ())
    return [
        leaf
        for key, child in node["properties"].items()
        for leaf in leaves(child, f"{dotted}{key}{'!' if key in required else ''}")
    ]


@pytest.mark.parametrize("kind", list(COLUMNS))
def test_names_scope_columns_and_subresource(kind: str) -> None:
    spec, plural = definition(kind)["spec"], f"{kind.lower()}s"
    assert definition(kind)["metadata"]["name"] == f"{plural}.nv-ipam.nvidia.com"
    assert (spec["group"], spec["scope"]) == ("nv-ipam.nvidia.com", "Namespaced")
    assert spec["names"] == {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    only = version(kind)
    assert (only["name"], only["served"], only["storage"], only["subresources"]) == (
        "v1alpha1",
        True,
        True,
        {"status": {}},
    )
    columns = [(one["name"], one["type"], one["jsonPath"]) for one in only["additionalPrinterColumns"]]
    assert columns == COLUMNS[kind]


@pytest.mark.parametrize("kind", list(SHAPES))
def test_fields_and_their_types(kind: str) -> None:
    top = schema(kind)
    assert top["required"] == ["spec"]
    found = leaves(top["properties"]["spec"]) + [f"status: {leaf}" for leaf in leaves(top["properties"]["status"])]
    assert sorted(found) == sorted(line.strip() for line in SHAPES[kind].strip().splitlines())


@pytest.mark.parametrize("kind", list(SHAPES))
def test_the_selector_is_merged_as_a_whole_and_indexes_have_an_order(kind: str) -> None:
    spec = schema(kind)["properties"]["spec"]["properties"]
    selector = spec["nodeSelector"]
    terms = selector["properties"]["nodeSelectorTerms"]
    assert selector["x-kubernetes-map-type"] == terms["items"]["x-kubernetes-map-type"] == "atomic"
    lists = [terms, *terms["items"]["properties"].values()]
    lists += [one["items"]["properties"]["values"] for one in terms["items"]["properties"].values()]
    assert {one["x-kubernetes-list-type"] for one in lists} == {"atomic"}
    (rule,) = spec["perNodeExclusions"]["items"]["x-kubernetes-validations"]
    assert rule["rule"] == "self.endIndex >= self.startIndex"


@pytest.mark.parametrize(("kind", "model"), [("IPPool", pools.IPPoolSpec), ("CIDRPool", pools.CIDRPoolSpec)])
def test_the_models_know_every_field(kind: str, model: type[msgspec.Struct]) -> None:
    assert set(schema(kind)["properties"]["spec"]["properties"]) == set(model.__struct_encode_fields__)


@pytest.fixture
async def world(server: servers.Server) -> AsyncIterator[World]:
    async with world_on(server) as made:
        yield made


GOOD: dict[str, dict[str, Any]] = {
    "IPPool": {"subnet": "10.0.0.0/24", "perNodeBlockSize": 24, "gateway": "10.0.0.1"},
    "CIDRPool": {"cidr": "10.0.0.0/16", "perNodeNetworkPrefix": 24, "gatewayIndex": 3},
}
BAD: list[tuple[str, dict[str, Any]]] = [
    ("IPPool", {"subnet": None}),
    ("IPPool", {"perNodeBlockSize": None}),
    ("IPPool", {"perNodeBlockSize": "24"}),
    ("IPPool", {"exclusions": [{"startIP": "10.0.0.1"}]}),
    ("IPPool", {"perNodeExclusions": [{"startIndex": -1, "endIndex": 1}]}),
    ("IPPool", {"perNodeExclusions": [{"startIndex": 2, "endIndex": 1}]}),
    ("IPPool", {"nodeSelector": {}}),
    ("IPPool", {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a"}]}]}}),
    ("IPPool", {"routes": [{}]}),
    ("CIDRPool", {"cidr": None}),
    ("CIDRPool", {"perNodeNetworkPrefix": None}),
    ("CIDRPool", {"perNodeExclusions": [{"startIndex": 5, "endIndex": 4}]}),
    ("CIDRPool", {"staticAllocations": [{"nodeName": "a"}]}),
]


def body(world: World, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": world.namespace}, "spec": spec}


@pytest.mark.external
async def test_an_api_server_takes_good_pools_and_shows_their_columns(world: World) -> None:
    for kind, spec in GOOD.items():
        await world.client.create(KINDS[kind], body(world, "columns", spec))
    assert await asyncio.to_thread(columns, world, "ippools") == [
        ["NAME", "SUBNET", "GATEWAY", "BLOCK SIZE"],
        ["columns", "10.0.0.0/24", "10.0.0.1", "24"],
    ]
    assert await asyncio.to_thread(columns, world, "cidrpools") == [
        ["NAME", "CIDR", "GATEWAY INDEX", "PER NODE NETWORK PREFIX"],
        ["columns", "10.0.0.0/16", "3", "24"],
    ]


def columns(world: World, plural: str) -> list[list[str]]:
    program = programs.built("kubectl")
    words = [str(program), f"--kubeconfig={world.server.kubeconfig}", "-n", world.namespace, "get", plural]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    return [re.split(r" {2,}", line.strip()) for line in shown.strip().splitlines()]


@pytest.mark.parametrize(("kind", "change"), BAD)
async def test_an_api_server_refuses_what_the_schema_forbids(world: World, kind: str, change: dict[str, Any]) -> None:
    spec = {key: value for key, value in (GOOD[kind] | change).items() if value is not None}
    with pytest.raises(errors.Invalid):
        await world.client.create(KINDS[kind], body(world, "bad", spec))


SELECTOR: dict[str, Any] = {"nodeSelectorTerms": []}
# A spec that the rules of the definition refuse -> the field that they name.
RULED: list[tuple[str, dict[str, Any], str]] = [
    ("IPPool", {"subnet": "10.0.0.0"}, "subnet"),
    ("IPPool", {"subnet": ""}, "subnet"),
    ("IPPool", {"subnet": "10.0.0.0/24 "}, "subnet"),
    ("IPPool", {"perNodeBlockSize": 0}, "perNodeBlockSize"),
    ("IPPool", {"perNodeBlockSize": -1}, "perNodeBlockSize"),
    ("IPPool", {"gateway": "gw.example"}, "gateway"),
    ("IPPool", {"gateway": None, "defaultGateway": True}, "defaultGateway"),
    ("IPPool", {"gateway": "", "routes": [{"dst": "10.1.0.0/16"}]}, "routes"),
    ("IPPool", {"perNodeExclusions": [{"startIndex": 0, "endIndex": 24}]}, "perNodeExclusions"),
    ("IPPool", {"nodeSelector": SELECTOR}, "nodeSelector"),
    ("CIDRPool", {"cidr": "net"}, "cidr"),
    ("CIDRPool", {"perNodeNetworkPrefix": 0}, "perNodeNetworkPrefix"),
    ("CIDRPool", {"perNodeNetworkPrefix": -3}, "perNodeNetworkPrefix"),
    ("CIDRPool", {"perNodeNetworkPrefix": 129}, "perNodeNetworkPrefix"),
    ("CIDRPool", {"gatewayIndex": -1}, "gatewayIndex"),
    ("CIDRPool", {"gatewayIndex": None, "defaultGateway": True}, "defaultGateway"),
    ("CIDRPool", {"gatewayIndex": None, "routes": [{"dst": "10.1.0.0/16"}]}, "routes"),
    ("CIDRPool", {"nodeSelector": SELECTOR}, "nodeSelector"),
]
TAKEN: list[tuple[str, dict[str, Any]]] = [
    ("IPPool", {"gateway": None, "defaultGateway": False, "routes": []}),
    ("IPPool", {"gateway": ""}),
    ("IPPool", {"subnet": "fd52:2eb5:44::/48", "gateway": "fd52:2eb5:44::1", "perNodeBlockSize": 500}),
    ("IPPool", {"subnet": "::ffff:10.0.0.0/120", "gateway": None}),
    ("IPPool", {"perNodeExclusions": [{"startIndex": 0, "endIndex": 23}], "defaultGateway": True}),
    ("CIDRPool", {"cidr": "fd52:2eb5:44::/48", "perNodeNetworkPrefix": 128, "gatewayIndex": 0}),
    ("CIDRPool", {"gatewayIndex": None, "routes": []}),
]


def changed(kind: str, change: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in (GOOD[kind] | change).items() if value is not None}


def problems(kind: str, spec: dict[str, Any]) -> list[str]:
    if kind == "IPPool":
        found = validation.ippool_problems("p", msgspec.convert(spec, pools.IPPoolSpec))
    else:
        found = validation.cidrpool_problems("p", msgspec.convert(spec, pools.CIDRPoolSpec))
    return [problem.path for problem in found]


@pytest.mark.parametrize(("kind", "change", "field"), RULED)
def test_a_rule_refuses_only_what_the_webhook_refuses(kind: str, change: dict[str, Any], field: str) -> None:
    paths = problems(kind, changed(kind, change))
    assert any(path.startswith(f"spec.{field}") for path in paths), paths


async def test_without_a_webhook_the_rules_refuse_what_needs_no_arithmetic(own_server: servers.Server) -> None:
    async with Client(find(str(own_server.kubeconfig), {})) as client:
        for kind in GOOD:
            await client.create(CRD_REF, definition(kind))
        for kind, spec in GOOD.items():
            await until(lambda kind=kind, spec=spec: is_taken(client, kind, spec), f"{kind} is served")
        for kind, change in TAKEN:
            await client.create(KINDS[kind], pool(changed(kind, change)))
        for kind, change, field in RULED:
            with pytest.raises(errors.Invalid) as refusal:
                await client.create(KINDS[kind], pool(changed(kind, change)))
            assert f"spec.{field}" in str(refusal.value), (kind, change)


async def is_taken(client: Client, kind: str, spec: dict[str, Any]) -> bool:
    try:
        await client.create(KINDS[kind], pool(spec))
    except errors.NotFound:
        return False
    return True


def pool(spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"generateName": "p-", "namespace": "default"}, "spec": spec}
