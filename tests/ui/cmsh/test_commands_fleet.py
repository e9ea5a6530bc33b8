"""What the shell says to and about agents: enrolments, over a daemon; and what it says where none serves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.head.csrs import csr
from tests.ui.rest.serving import Served, served
from tests.ui.transcripts.driving import Desk

from bedplate.api.headapi import Facts, Failure
from bedplate.client import HeadClient
from bedplate.head.entities import SCHEMA
from bedplate.head.policy import ENROL
from bedplate.ui.remote import RemoteBackend


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as opened:
        yield opened


@pytest.fixture
async def desk(server: Served) -> AsyncIterator[Desk]:
    async with server.client() as client, RemoteBackend(client, SCHEMA) as backend:
        yield Desk(server.head, backend=backend)


async def waits(server: Served, node: str) -> HeadClient:
    """A machine that waits to be a node."""
    _, text = await server.service.access.tokens.create(ENROL, node, "", uses=1, lasts=timedelta(hours=1))
    async with HeadClient(server.url, token=text, attempts=1) as client:
        answer = await client.enrol(csr(), Facts(hostname=node, macs=["52:54:00:12:34:56"], serial="S-7"))
        assert answer.state == "pending"
    return HeadClient(server.url, token=text)


async def test_machines_that_wait_are_listed_approved_and_denied(server: Served, desk: Desk) -> None:
    await desk.do("category use default; set enrolment APPROVAL; commit")
    for node in ("node001", "node002", "node003"):
        await waits(server, node)
    table = await desk.table("device enrolments --pending")
    assert table.column("Node") == ["node001", "node002", "node003"]
    assert table.rows[0][3:6] == ["52:54:00:12:34:56", "node001", "S-7"]
    assert table.column("Why") == ["enrolments of the category default are approved by hand"] * 3
    said = await desk.do("device approve node00[1-2]")
    assert [line.partition(",")[0] for line in said.splitlines()] == ["node001: issued", "node002: issued"]
    assert await desk.do("device deny node003 -m 'not ours'") == "node003: denied\n"
    assert (await desk.table("device enrolments -p")).rows == []
    table = await desk.table("device enrolments")
    assert table.column("State") == ["issued", "issued", "denied"]
    assert table.column("Decided by") == ["admin"] * 3 and table.column("Why")[2] == "not ours"
    assert "denied already" in (await desk.fails("device approve node003")).err
    assert "nobody" in (await desk.fails("device approve nobody")).err
    assert (await desk.fails("device approve node00[")).code == 2
    assert (await desk.fails("approve node001")).code == 2


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("device enroltoken node001 -c default", 2),
        ("device enroltoken node001 --uses 3", 2),
        ("device enroltoken node001 -l never", 2),
        ("device enroltoken node001 -l 9000h", 2),
        ("device enroltoken -c default --uses 0", 2),
        ("device enroltoken", 2),
        ("device enroltoken nobody", 1),
        ("device enroltoken -c nothing", 1),
    ],
)
async def test_a_token_that_cannot_be_is_told(desk: Desk, line: str, code: int) -> None:
    assert (await desk.fails(line)).code == code


async def test_turns_are_shown_and_released(server: Served, desk: Desk) -> None:
    async with server.client("node001") as node:
        await node.take_turn("node001", "etcd:kube-default", lasts_s=60)
        assert (await desk.table("device turns")).column("Node") == ["node001"]
        await node.end_turn("node001", "etcd:kube-default", failed=True, text="unit not found")
    table = await desk.table("device turns")
    assert (table.column("Group"), table.column("Failed"), table.column("Why")) == (
        ["etcd:kube-default"],
        ["node001"],
        ["unit not found"],
    )
    assert await desk.do("device turns release etcd:kube-default") == "etcd:kube-default: the others go on\n"
    assert (await desk.table("device turns")).rows == []
    assert "etcd:kube-default" in (await desk.fails("device turns release etcd:kube-default")).err
    for line in ("device turns etcd:kube-default", "device turns release", "turns"):
        assert (await desk.fails(line)).code == 2


async def apply(server: Served, *names: str) -> None:
    """Nodes apply what they should be, and say so."""
    async with server.client() as client:
        for name in names:
            wanted = await client.desired(name)
            assert wanted is not None
            await client.report(name, applied=wanted.state.revision, digest=wanted.etag)


async def test_status_and_pending_show_what_nodes_have_still_to_do(server: Served, desk: Desk) -> None:
    await apply(server, "node004", "node007")
    assert (await desk.table("device pending")).rows == []
    await desk.do("device use node007; set category gpu-nodes; commit; /")
    async with server.client("node001") as node:
        await node.report("node001", failures=[Failure(kind="file", name="/x", verb="written", text="no space")])
    states = json.loads(await desk.do("device status node001,node004,node007 -d {}"))
    assert [(state["Revision"], state["Pending"]) for state in states] == [("", ""), (1, ""), (1, 2)]
    assert [state["Failures"] for state in states] == ["File /x could not be written: no space", "", ""]
    table = await desk.table("device pending")
    assert set(table.column("Hostname (key)")) == {"node007"} and table.rows
    assert (await desk.table("device pending node007")).rows == table.rows
    assert (await desk.table("device pending node004")).rows == []
    await apply(server, "node007")
    assert (await desk.table("device pending -n node00[4-7]")).rows == []


async def test_a_commit_waits_over_a_daemon_until_nodes_have_applied_or_failed_it(server: Served, desk: Desk) -> None:
    await apply(server, "node005", "node006")

    async def work() -> None:
        while server.head.revision < 2:
            await asyncio.sleep(0.01)
        await apply(server, "node005")
        async with server.client() as client:
            await client.report(
                "node006", failures=[Failure(kind="file", name="/x", verb="written", text="no space")], tried=2
            )

    working = asyncio.create_task(work())
    said = await desk.type("category use gpu-nodes; set softwareimage my-new-image; commit --wait")
    await working
    lines = said.out.splitlines()
    assert said.code == 1 and lines[-1] == "node006: failed: File /x could not be written: no space"
    assert lines[-2] == "revision 2: applied on 1 of 2 nodes, 1 failed"
    await apply(server, "node006")


async def test_a_commit_in_batches_is_shown_paused_resumed_and_undone(server: Served, desk: Desk) -> None:
    await apply(server, "node005", "node006")
    fleet = server.service.fleet
    assert fleet is not None
    await desk.do("category use gpu-nodes; set softwareimage my-new-image; commit --batch 1 --settle 0; /")
    assert json.loads(await desk.do("rollout -d {}")) == [
        {"Hostname": "node005", "State": "pending", "Why": ""},
        {"Hostname": "node006", "State": "held", "Why": ""},
    ]
    states = json.loads(await desk.do("device status node005,node006 -d {}"))
    assert [state["Pending"] for state in states] == [2, "held"]
    said = await desk.do("rollout pause")
    assert said == "revision 2: paused (paused by admin); 1 of 2 nodes have it, 1 at a time: 1 pending, 1 held\n"
    assert (await desk.fails("rollout pause")).code == 1
    assert "running" in await desk.do("rollout resume")
    await apply(server, "node005")
    await fleet.rollouts.look()
    assert "2 of 2 nodes have it" in await desk.do("rollout status")
    assert "undone" in await desk.do("rollout undo")
    assert await desk.do("category use gpu-nodes; get softwareimage; /") == "default-image\n"
    assert (await desk.fails("rollout undo")).code == 1
    for line in ("rollout on", "commit --batch 0", "commit --batch 200%", "commit --settle 3", "commit --max-failed 1"):
        await desk.do("category use gpu-nodes; set notes x")
        assert (await desk.fails(line)).code == 2, line
        await desk.do("revert; /")


async def test_a_stopped_roll_out_ends_waiting_for_it(server: Served, desk: Desk) -> None:
    await apply(server, "node005", "node006")
    fleet = server.service.fleet
    assert fleet is not None

    async def work() -> None:
        while server.head.revision < 2:
            await asyncio.sleep(0.01)
        async with server.client() as client:
            await client.report("node005", failures=[Failure(kind="file", name="/x", verb="written")], tried=2)
        await fleet.rollouts.look()

    working = asyncio.create_task(work())
    said = await desk.type("category use gpu-nodes; set softwareimage my-new-image; commit --batch 1 --wait")
    await working
    assert said.code == 1
    assert "the roll-out is stopped: node005: File /x could not be written; rollout resume goes on" in said.out
    assert "node005: failed: File /x could not be written\n" in said.out and "node006:" not in said.out


async def test_machines_are_rebooted_and_switched_off_through_their_agents(server: Served, desk: Desk) -> None:
    await apply(server, "node001")
    said = await desk.do("device reboot -n node00[1-2]")
    assert [line.partition(",")[0] for line in said.splitlines()] == [
        "node001: reboot asked for",
        "node002: reboot asked for",
    ]
    await desk.do("device use node004; power off; /")
    table = await desk.table("device power status node001,node002,node004,node007")
    assert table.column("Power") == ["ON", "UNKNOWN", "UNKNOWN", "UNKNOWN"]
    assert table.column("Asked for") == ["reboot", "reboot", "off", ""]
    assert table.column("State") == ["waiting", "waiting", "waiting", ""]
    assert "management controller" in (await desk.fails("device power on node001")).err
    for line in ("device power", "device power upwards node001", "device reboot", "device power off", "reboot node001"):
        assert (await desk.fails(line)).code == 2, line
    assert (await desk.fails("device reboot nobody")).code == 1


async def test_without_a_daemon_nobody_enrols_or_takes_turns(server: Served) -> None:
    for line in (
        "device enrolments",
        "device approve node001",
        "device enroltoken node001",
        "device turns",
        "rollout",
        "device reboot node001",
    ):
        assert "no daemon serves" in (await Desk(server.head).fails(line)).err
