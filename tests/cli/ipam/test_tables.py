"""Rows and JSON of pools, blocks and allocations."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from tests.cli.ipam.makers import attached, cidrpool, ippool, land, node, pod

from bedplate.cli.ipam import tables

BLOCKS = {"host-a": "192.168.0.1-192.168.0.100", "host-b": "192.168.0.101-192.168.0.200"}
POOL = ippool("pool1", BLOCKS, subnet="192.168.0.0/24", perNodeBlockSize=100, gateway="192.168.0.1")
SAME_NAME = cidrpool("pool1", {"host-a": ("fd00::/64", "")}, cidr="fd00::/48", perNodeNetworkPrefix=64)
WEB = pod("web", "host-a", "10.0.0.5", status=attached("192.168.0.7"))
WHERE = land(POOL, SAME_NAME, nodes=(node("host-a"),), pods=(WEB,))


def data_of(table: tables.Table) -> Any:
    return json.loads(msgspec.json.encode(table.data))


def test_both_kinds_of_pools_are_listed_with_numbers_that_fit() -> None:
    table = tables.pools(WHERE)
    assert [row[:2] for row in table.rows] == [("IPPool", "pool1"), ("CIDRPool", "pool1")]
    first, second = data_of(table)
    assert first["blocks"] == {
        "total": 2,
        "given": 2,
        "free": 0,
        "quarantined": 0,
        "reserved": 0,
        "excluded": 0,
    }
    assert first["addresses"] == {"used": 1, "usable": 199}
    assert first["state"] == "no free block" and second["state"] == "ok"
    assert second["addresses"]["usable"] == 2**64 - 1


def test_blocks_can_be_chosen_by_pool_and_node() -> None:
    assert [row[2] for row in tables.blocks(WHERE, "pool1").rows] == ["host-a", "host-b", "host-a"]
    assert [row[1] for row in tables.blocks(WHERE, "cidrpool/pool1").rows] == ["CIDRPool"]
    assert [row[0] for row in tables.blocks(WHERE, "", "host-b").rows] == ["pool1"]


def test_allocations_are_those_of_pools_alone() -> None:
    table = tables.allocations(WHERE)
    assert [(str(row[0]), row[3], row[5]) for row in table.rows] == [("192.168.0.7", "default/web", "4m")]
    assert data_of(table)[0]["since"] == "2026-01-02T03:00:05Z"
    assert tables.allocations(WHERE, pod="default/other").rows == []
    assert tables.allocations(WHERE, node="host-b").rows == []
    assert tables.allocations(WHERE, pool="cidrpool/pool1").rows == []


def test_large_numbers_are_short() -> None:
    assert (tables.count(999_999_999), tables.count(2**64)) == ("999999999", "1.8e+19")
