"""A node's store as people look at it: the recorded stores of the original, broken ones, and doubtful ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.cli.ipam.makers import ippool, land, node

from bedplate.cli.ipam import stores, tables
from bedplate.core.explanation import State
from bedplate.ipam.node import storefile
from bedplate.ipam.node.reservations import Reservation
from bedplate.ipam.node.storefile import Document, Entry, PoolRecord
from bedplate.ipam.node.storeview import read_store

RECORDED = sorted((Path(__file__).resolve().parents[2] / "vectors/ipam/stores").glob("*.store"))
NOW = datetime(2026, 12, 1, tzinfo=UTC)


def written(path: Path, *reservations: Reservation) -> Path:
    pools: dict[str, PoolRecord] = {}
    for one in reservations:
        key = f"{one.container_id}_{one.interface_name}"
        entry = Entry(one, storefile.encode_entry(key, one))
        pools.setdefault(one.pool, PoolRecord(one.pool, {})).entries[key] = entry
    path.write_bytes(storefile.encode(Document(pools)))
    return path


def reservation(container: str, address: str, pool: str = "p", subnet: str = "10.0.0.0/24") -> Reservation:
    document = {"subnet": subnet, "startIP": subnet.replace("0/24", "1"), "endIP": subnet.replace("0/24", "9")}
    created = "2026-11-30T23:00:00.123456789+01:00"
    return Reservation(pool, container, "net1", address, created, "uid", "web", "default", "", json.dumps(document))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_stores_of_the_original_are_listed_and_well(path: Path) -> None:
    view = read_store(path)
    recorded = json.loads(path.read_text() or '{"pools": {}}')["pools"]
    wanted = {(pool, one["ip_address"]) for pool, page in recorded.items() for one in page["entries"].values()}
    assert {(row[1], row[0]) for row in stores.listed(view, NOW).rows} == wanted
    assert stores.check(path, view).state == State.GOOD


def test_a_broken_file_and_a_doubtful_content_stand_out(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text('{"version":1,"checksum":7,"pools":{}}')
    found = stores.check(broken, read_store(broken))
    assert found.state == State.BAD and "checksum" in found.findings[0].why
    twice = written(
        tmp_path / "twice",
        reservation("c1", "10.0.0.2"),
        reservation("c2", "10.0.0.2"),
        reservation("c3", "10.9.0.2"),
    )
    answers = {(one.topic, one.answer) for one in stores.check(twice, read_store(twice)).findings}
    assert {("twice", "10.0.0.2"), ("address", "10.9.0.2")} <= answers


def test_an_allocation_of_a_store_is_placed_on_the_node_whose_block_it_is_of(tmp_path: Path) -> None:
    path = written(tmp_path / "store", reservation("c1", "10.0.0.2"))
    pool = ippool("p", {"host-a": "10.0.0.1-10.0.0.10"}, subnet="10.0.0.0/24", perNodeBlockSize=10)
    where = land(pool, nodes=(node("host-a"),), stored=list(stores.holdings(path)))
    (row,) = tables.allocations(where).rows
    assert [str(cell) for cell in row[:5]] == ["10.0.0.2", "p", "host-a", "default/web", "net1"]
    assert row[6] == "store"
    assert where.views[0].used == 1
