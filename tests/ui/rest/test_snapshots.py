"""Snapshots of etcd between nodes and the head: only for whom was asked, whole or not at all."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
from typing import Any

import pytest
from tests.ui.rest.serving import Served

from bedplate.api.headapi import Care
from bedplate.client import HeadClient
from bedplate.client.http import Lost
from bedplate.core import errors
from bedplate.head.clusters.snapshots import Snapshots

_BODY = bytes(range(256)) * 4096
DATA = _BODY + hashlib.sha256(_BODY).digest()
ABOUT = {"size": len(DATA), "sha256": hashlib.sha256(DATA).hexdigest(), "revision": 7, "keys": 3, "hash": 1}


async def asked(server: Served, care: str, node: str = "node001") -> str:
    work: Any = {node: {"care": care, "cluster": "default", "snapshot": "one"}}
    assert server.service.fleet is not None
    (errand,) = await server.service.fleet.errands.ask([node], "care", by="test", lasts_s=600, work=work)
    return errand.id


@pytest.fixture
def snapshots(server: Served, tmp_path: pathlib.Path) -> Snapshots:
    assert server.service.clusters is not None
    server.service.clusters.snapshots = Snapshots(tmp_path)
    return server.service.clusters.snapshots


async def give(server: Served, id_: str, about: dict[str, Any], data: bytes, node: str = "node001") -> str:
    said = b""
    async with server.client(node) as own, own.transfer_snapshot("node001", id_, wait_s=5.0) as duplex:
        await duplex.send(json.dumps(about).encode() + b"\n")
        for start in range(0, len(data), 1 << 16):
            await duplex.send(data[start : start + (1 << 16)])
        await duplex.end()
        try:
            async for chunk in duplex.chunks:
                said += chunk
        except Lost:
            return said.decode() or "lost"
    return said.decode()


async def test_item_181_a_member_gives_a_snapshot_and_gets_it_with_the_restore_it_is_for(
    server: Served, snapshots: Snapshots
) -> None:
    assert await give(server, await asked(server, "snapshot"), ABOUT, DATA) == ""
    (kept,) = snapshots.list("default")
    assert (kept.name, kept.member, kept.revision, kept.size) == ("one", "node001", 7, len(DATA))
    id_ = await asked(server, "fetch")
    async with server.client("node001") as own, own.transfer_snapshot("node001", id_, wait_s=5.0) as duplex:
        await duplex.end()
        line, _, rest = b"".join([chunk async for chunk in duplex.chunks]).partition(b"\n")
    told = json.loads(line)
    assert rest == DATA and told["sha256"] == ABOUT["sha256"] and told["restore"]


async def test_item_181_what_is_damaged_on_its_way_is_not_kept_and_the_member_is_told(
    server: Served, snapshots: Snapshots
) -> None:
    id_ = await asked(server, "snapshot")
    for about, data, why in (
        (ABOUT, DATA[:-600], "cut off"),
        (ABOUT, b"x" + DATA[1:], "damaged"),
        ({**ABOUT, "size": 1}, DATA, "larger than the 1 bytes"),
        ({**ABOUT, "size": len(DATA) + 1}, DATA, "not what its member sent"),
        ({**ABOUT, "size": 1 << 60}, DATA, "has room for"),
        ({**ABOUT, "member": "x" * (1 << 20)}, DATA, "too long"),
    ):
        assert why in await give(server, id_, about, data)
    assert list(snapshots.list("default")) == []


async def test_only_the_node_that_was_asked_opens_it_while_it_was(
    server: Served, snapshots: Snapshots, client: HeadClient
) -> None:
    id_ = await asked(server, "snapshot")
    for user, id_of in (("node002", id_), ("admin", id_), ("node001", "other")):
        with pytest.raises(errors.BedplateError):
            await give(server, id_of, ABOUT, DATA, user)
    with pytest.raises(errors.NotFound):
        await give(server, await asked(server, "fetch"), ABOUT, DATA)
    assert list(snapshots.list("default")) == []


async def test_a_request_is_for_members_of_the_cluster_and_for_administrators(
    server: Served, client: HeadClient
) -> None:
    cluster = next(iter(server.head.tree.mode("kubernetes")))
    with pytest.raises(errors.Invalid, match="belong together"):
        await client.ask_errand(["node001"], "care")
    with pytest.raises(errors.NotFound):
        await client.ask_errand(["node001"], "care", care=Care(action="renew", cluster="none"))
    with pytest.raises(errors.Invalid):
        await client.ask_errand(["node001"], "care", care=Care(action="snapshot", cluster=cluster))
    with pytest.raises(errors.BedplateError):
        async with server.client("olga") as other:
            await other.ask_errand(["node001"], "care", care=Care(action="inspect", cluster=cluster))


async def test_a_node_that_is_shut_out_or_silent_is_cut_off(server: Served, snapshots: Snapshots) -> None:
    id_ = await asked(server, "snapshot")
    async with server.client("node001") as own, own.transfer_snapshot("node001", id_, wait_s=5.0) as duplex:
        await duplex.send(json.dumps(ABOUT).encode() + b"\n" + DATA[:1000])
        (token,) = [each for each in server.service.access.tokens.list() if each.subject == "node001"]
        await server.service.access.tokens.revoke(token.id, by="admin")
        await duplex.send(DATA[1000:])
        with pytest.raises(Lost):
            async for chunk in duplex.chunks:
                assert b"revoked" in chunk
    object.__setattr__(server.service, "limits", dataclasses.replace(server.service.limits, stall_s=0.01))
    id_ = await asked(server, "snapshot", "node002")
    said = b""
    async with server.client("node002") as own, own.transfer_snapshot("node002", id_, wait_s=5.0) as duplex:
        await duplex.send(json.dumps(ABOUT).encode() + b"\n" + DATA[:1000])
        with pytest.raises(Lost):
            async for chunk in duplex.chunks:
                said += chunk
    assert b"nothing of the snapshot arrived" in said or b"did not arrive" in said
    assert list(snapshots.list("default")) == []
