"""Nodes over HTTP: explanations, desired states, reports, conditions and histories."""

from __future__ import annotations

import asyncio
import pathlib
import re

import aiohttp
import msgspec
import pytest
from tests.ui.rest.serving import Served, served

from bedplate.api import headapi
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.core.clock import ManualClock


async def test_every_fact_names_its_cause_now_and_in_the_past(client: HeadClient) -> None:
    facts = {(one.kind, one.name): one for one in (await client.explain("node001")).facts}
    kubelet = facts["role", "kubelet"]
    assert (kubelet.source, kubelet.mode, kubelet.key) == (
        "overlay:kube-default-master",
        "configurationoverlay",
        "kube-default-master",
    )
    assert kubelet.next_best == "overlay:kube-default-worker"
    assert kubelet.revision == 1
    await client.delete("configurationoverlay", "kube-default-master")
    now = (await client.explain("node001", "kubelet")).facts
    assert {one.source for one in now} == {"overlay:kube-default-worker"}
    past = await client.explain("node001", "kubelet", at=1)
    assert past.revision == 1
    assert {one.source for one in past.facts} == {"overlay:kube-default-master"}


async def test_a_node_that_a_commit_means_nothing_to_sees_no_change(client: HeadClient) -> None:
    first = await client.desired("node001")
    assert first is not None
    assert first.state.node == "node001"
    assert first.state.files
    assert first.etag == first.state.digest
    await client.put("network", "other", {"base_address": "10.9.0.0"})
    assert await client.desired("node001", first.etag) is None
    held = await client.get("configurationoverlay", "kube-default-etcd")
    await client.put(
        "configurationoverlay",
        "kube-default-etcd",
        {**held.values, "nodes": ["node002", "node003"]},
        children=held.children,
        replace=True,
    )
    second = await client.desired("node001", first.etag)
    assert second is not None
    assert second.etag != first.etag
    assert await client.desired("node001", first.etag, at=1) is None


async def test_a_change_right_after_a_poll_has_looked_ends_the_poll(
    server: Served, client: HeadClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is between the look at what a node should be and the wait for another: no change is missed there."""
    first = await client.desired("node001")
    fleet = server.service.fleet
    assert first is not None and fleet is not None
    tag, looks = first.etag, 0

    def change() -> None:
        nonlocal tag
        tag = "another"
        for listener in fleet.errands.listeners:
            listener(["node001"])

    def looked(node: str) -> str:
        nonlocal looks
        looks += 1
        if looks == 1:
            asyncio.get_running_loop().call_soon(change)
        return tag

    monkeypatch.setattr(fleet.wants, "etag", looked)
    async with asyncio.timeout(60):
        second = await client.desired("node001", first.etag, wait_s=120)
    assert second is not None and looks == 2


async def test_an_agent_waits_for_a_change_that_means_something_to_its_node(client: HeadClient) -> None:
    first = await client.desired("node007")
    assert first is not None
    waiting = asyncio.create_task(client.desired("node007", first.etag, wait_s=120))
    await client.put("network", "other", {"base_address": "10.9.0.0"})
    held = await client.get("device", "node007")
    await asyncio.sleep(0)
    assert not waiting.done()
    await client.put("device", "node007", {**held.values, "category": "gpu-nodes"}, type="PhysicalNode", replace=True)
    async with asyncio.timeout(120):
        second = await waiting
    assert second is not None
    assert second.etag != first.etag
    assert second.state.revision == 3


async def test_waiting_ends_when_its_time_is_over(client: HeadClient) -> None:
    first = await client.desired("node007")
    assert first is not None
    assert await client.desired("node007", first.etag, wait_s=1) is None


async def test_a_report_becomes_results_and_notices(client: HeadClient, server: Served) -> None:
    async with server.client("node001") as node:
        await node.report(
            "node001",
            applied=1,
            digest="abc",
            actions=[
                headapi.Action(kind="service", name="nginx", verb="reloaded"),
                headapi.Action(kind="file", name="/etc/hosts", verb="written"),
            ],
            failures=[headapi.Failure(kind="service", name="etcd", verb="restarted", text="unit not found")],
            results=[
                headapi.Result(check="ManagedServicesOk", status="FAIL", value=1.0, info="etcd"),
                headapi.Result(check="DiskSpace", status="PASS", value=0.7),
            ],
        )
        await node.report("node001", results=[headapi.Result(check="ManagedServicesOk", status="PASS")])
    told = [(one.severity, one.host, one.text) for one in await client.notices()]
    assert told == [
        ("notice", "node001", "Check ManagedServicesOk passes again"),
        ("warning", "node001", "Check ManagedServicesOk failed: etcd"),
        ("warning", "node001", "Service etcd could not be restarted: unit not found"),
        ("notice", "node001", "File /etc/hosts was written"),
        ("notice", "node001", "Service nginx was reloaded"),
    ]
    assert [one.id for one in await client.notices(2, before=4)] == [3, 2]
    assert await client.notices(host="node002") == []
    health = await client.health("node001")
    assert (health.state.state, health.state.applied, health.state.digest) == ("UP", 1, "abc")
    assert {one.check: one.status for one in health.state.checks} == {"DiskSpace": "PASS", "ManagedServicesOk": "PASS"}
    history = {one.check: [sample.status for sample in one.samples] for one in health.history}
    assert history == {"DiskSpace": ["PASS"], "ManagedServicesOk": ["FAIL", "PASS"]}
    one = await client.health("node001", "DiskSpace")
    assert [(part.check, part.samples[0].value) for part in one.history] == [("DiskSpace", 0.7)]


async def test_a_report_of_nobody_is_refused_whole(client: HeadClient, server: Served) -> None:
    with pytest.raises(errors.NotFound):
        await client.report("node099", applied=1)
    assert server.notices.last == 0


async def test_a_report_may_not_hold_anything(http: aiohttp.ClientSession, server: Served) -> None:
    for body in (
        {"results": [{"check": "a/b", "status": "PASS"}]},
        {"results": [{"check": "a\n", "status": "PASS"}]},
        {"results": [{"check": "a", "status": "GOOD"}]},
        {"actions": [{"kind": "service", "name": "x\u0007", "verb": "reloaded"}]},
        {"applied": -1},
        {"results": [{"check": f"c{n}", "status": "PASS"} for n in range(101)]},
    ):
        async with http.post("/api/v1/nodes/node001/report", json=body) as answer:
            assert answer.status == 400, body
    assert server.health.of("node001") is None


async def test_what_a_newer_agent_says_beyond_what_this_head_knows_is_skipped(
    client: HeadClient, http: aiohttp.ClientSession
) -> None:
    """Agents may be updated before their head."""
    body = {
        "version": "99.0.0",
        "temperature": {"cpu": 40},
        "actions": [{"kind": "service", "name": "nginx", "verb": "reloaded", "took": 3}],
        "results": [{"check": "load", "status": "PASS", "unit": "1"}],
        "failures": [{"kind": "file", "name": "/etc/a", "verb": "written", "text": "full", "code": 28}],
        "errands": [{"id": "abc", "state": "accepted", "eta": 3}],
    }
    async with http.post("/api/v1/nodes/node001/report", json=body) as answer:
        assert answer.status == 200, await answer.text()
    (state,) = await client.nodes(["node001"])
    assert state.version == "99.0.0" and "full" in state.failures[0]


async def test_a_flood_of_reports_is_a_share_of_one_node(tmp_path: pathlib.Path) -> None:
    """104 reports of the largest size: a rate, a share of the notices, and a bound of what they cost, for each node."""
    lines = [{"kind": "file", "name": f"/etc/{number}" + "x" * 200, "verb": "written"} for number in range(500)]
    body = {
        "applied": 1,
        "actions": lines,
        "failures": [line | {"text": "y" * 200} for line in lines],
        "results": [{"check": "disk", "status": "FAIL", "info": "z" * 200}],
    }
    sent = msgspec.json.encode(body)
    clock = ManualClock()
    async with (
        served(tmp_path, clock=clock) as server,
        aiohttp.ClientSession(server.url) as http,
        server.client() as reader,
    ):

        async def report(node: str) -> tuple[int, str | None]:
            headers = {"Authorization": f"Bearer {server.tokens[node]}", "Content-Type": "application/json"}
            async with http.post(f"/api/v1/nodes/{node}/report", data=sent, headers=headers) as answer:
                return answer.status, answer.headers.get("Retry-After")

        answers = [await report("node001") for _ in range(104)]
        assert answers == [(200, None)] * 60 + [(429, "1")] * 44
        told = await reader.notices(1000, host="node001")
        assert len(told) == 100, "not the 60,000 that these reports would make"
        assert re.match(r"\d+ more events of this node were left out", told[0].text)
        assert sum(len(notice.text) for notice in told) < 100_000
        assert len(server.notices.latest(10**6)) == 100, "nothing else is in memory"
        assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 4 << 20, "nor on the disk; it was 82 MB"
        # Another node has a share of its own, and this one has it again after a while.
        assert await report("node002") == (200, None)
        await clock.advance(60.0)
        assert await report("node001") == (200, None)
        assert 110 <= len(await reader.notices(1000, host="node001")) <= 120


async def test_nodes_are_listed_with_what_is_known_of_them(tmp_path: pathlib.Path) -> None:
    clock = ManualClock()
    async with served(tmp_path, clock=clock) as server, server.client() as client:
        await client.report("node002", applied=1, results=[headapi.Result(check="a", status="PASS")])
        await clock.advance(100)
        await client.report("node003", applied=1, results=[headapi.Result(check="a", status="PASS")])
        known = {one.node: one for one in await client.nodes()}
        assert list(known)[:3] == ["basecm10", "node001", "node002"]
        assert {known[f"node00{n}"].state for n in (2, 3)} == {"UP"}
        assert known["node001"].state == "UNKNOWN"
        await clock.advance(250)
        known = {one.node: one for one in await client.nodes(["node002", "node003", "none"])}
        assert {name: one.state for name, one in known.items()} == {"node002": "DOWN", "node003": "UP"}
        assert known["node002"].checks[0].status == "UNKNOWN", "nobody has said so for a while"
        assert known["node003"].checks[0].status == "PASS"


async def test_a_removed_node_is_forgotten(client: HeadClient, server: Served) -> None:
    await client.report("node007", results=[headapi.Result(check="a", status="PASS")])
    await client.delete("device", "node007")
    async with asyncio.timeout(120):
        while server.health.of("node007") is not None:
            await asyncio.sleep(0.02)
        while await server.health.history("node007"):
            await asyncio.sleep(0.02)


async def test_a_node_says_what_its_machine_is_and_everything_else_of_it_is_refused(server: Served) -> None:
    system = headapi.System(id="rocky", version="9.4", packages="yum", memory=2**34, cores=8, reboot=True)
    async with server.client("node001") as node, server.client() as client:
        await node.report("node001", system=system)
        (state,) = await client.nodes(["node001"])
        assert state.system == system
        for wrong in ({"id": "Rocky Linux"}, {"version": "9\n"}, {"memory": -1}, {"packages": "pip"}):
            with pytest.raises(errors.Invalid):
                await node.report("node001", system=headapi.System(**wrong))  # type: ignore[arg-type]
