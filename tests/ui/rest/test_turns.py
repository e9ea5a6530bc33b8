"""Turns over HTTP: a node takes and gives its own, people look and release, and others wait for a failed one."""

from __future__ import annotations

import asyncio
import pathlib

import aiohttp
import pytest
from tests.ui.rest.serving import Served, served
from tests.waiting import DEADLINE_S

from bedplate.api.headapi import Failure, Result
from bedplate.client import HeadClient
from bedplate.core import errors

GROUP = "etcd:kube-default"
FAILURE = Failure(kind="service", name="etcd", verb="restarted", text="unit not found")


async def test_two_nodes_take_turns(server: Served, client: HeadClient) -> None:
    async with server.client("node001") as one, server.client("node002") as two:
        assert (await one.take_turn("node001", GROUP)).is_granted
        refused = await two.take_turn("node002", GROUP)
        assert (refused.is_granted, refused.holder) == (False, "node001")
        waiting = asyncio.create_task(two.take_turn("node002", GROUP, wait_s=120, lasts_s=60))
        await asyncio.sleep(0.1)
        (state,) = await client.turns()
        assert (state.group, state.node, state.waiting) == (GROUP, "node001", ["node002"])
        with pytest.raises(errors.Denied):
            await two.end_turn("node001", GROUP)
        with pytest.raises(errors.Denied):
            await two.take_turn("node001", GROUP)
        with pytest.raises(errors.Denied):
            await two.release_turn(GROUP)
        assert (await two.end_turn("node002", GROUP)).node == "node001", "nobody gives back what another has"
        await one.end_turn("node001", GROUP)
        async with asyncio.timeout(DEADLINE_S):
            assert (await waiting).is_granted
        with pytest.raises(errors.NotFound):
            await client.take_turn("node099", GROUP)


async def test_a_node_takes_only_turns_of_groups_that_it_has_a_service_in(server: Served, client: HeadClient) -> None:
    """Else a compromised one could stop the restarts of all others."""
    async with server.client("node001") as one:
        for group in ("etcd:other", "kube-default", "etcd:kube-defaul"):
            with pytest.raises(errors.Denied, match="has no service that takes turns with"):
                await one.take_turn("node001", group)
        assert await client.turns() == []
        assert (await one.take_turn("node001", GROUP)).is_granted
        await one.end_turn("node001", GROUP)
        # Once its role is gone, so is its right.
        overlay = await client.get("configurationoverlay", "kube-default-etcd")
        (name, _), *_ = overlay.children["roles"].items()
        await client.patch("configurationoverlay", "kube-default-etcd", {}, children={"roles": {name: None}})
        with pytest.raises(errors.Denied):
            await one.take_turn("node001", GROUP)


async def test_a_waiting_node_that_is_revoked_is_out_at_once(server: Served) -> None:
    async with server.client("node001") as one, server.client("node002") as two:
        await one.take_turn("node001", GROUP)
        waiting = asyncio.create_task(two.take_turn("node002", GROUP, wait_s=300))
        await asyncio.sleep(0.1)
        token = next(one for one in server.service.access.tokens.list() if one.subject == "node002")
        await server.service.access.tokens.revoke(token.id)
        async with asyncio.timeout(15):
            with pytest.raises(errors.Denied):
                await waiting


async def test_others_wait_until_the_node_that_failed_is_well_again(server: Served) -> None:
    async with server.client("node001") as one, server.client("node002") as two:
        wanted = await one.desired("node001")
        assert wanted is not None
        await one.take_turn("node001", GROUP)
        await one.report("node001", failures=[FAILURE])
        await one.end_turn("node001", GROUP, failed=True, text="unit not found")
        sick, well = (Result(check="etcd", status=status) for status in ("FAIL", "PASS"))
        for report in (
            {"results": [well]},
            {"digest": "another"},
            {"digest": wanted.etag, "applied": 1, "failures": [FAILURE]},
            {"digest": wanted.etag, "applied": 1, "results": [sick]},
        ):
            await one.report("node001", **report)  # type: ignore[arg-type]
            answer = await two.take_turn("node002", GROUP)
            assert (answer.is_granted, answer.failed) == (False, "node001"), report
        await one.report("node001", results=[well])
        assert (await two.take_turn("node002", GROUP)).is_granted
    told = [one.text for one in server.notices.latest() if "Turn" in one.text]
    assert told[0] == f"Turns of {GROUP} go on: node001 is well again" and "failed on node001" in told[1]


async def test_an_operator_releases_and_an_auditor_looks(server: Served) -> None:
    async with server.client("node001") as one, server.client("olga") as olga, server.client("arno") as arno:
        await one.take_turn("node001", GROUP)
        await one.end_turn("node001", GROUP, failed=True)
        assert [state.failed for state in await arno.turns()] == ["node001"]
        with pytest.raises(errors.Denied):
            await arno.release_turn(GROUP)
        assert (await olga.release_turn(GROUP)).failed == ""
        with pytest.raises(errors.NotFound):
            await olga.release_turn(GROUP)


async def test_a_node_that_is_removed_stops_nobody_any_more(server: Served, client: HeadClient) -> None:
    await client.take_turn("node007", GROUP)
    await client.end_turn("node007", GROUP, failed=True)
    await client.ask_errand(["node007"], "reboot")
    await client.delete("device", "node007")
    async with asyncio.timeout(DEADLINE_S):
        while await client.turns() or await client.errands():
            await asyncio.sleep(0.01)
    assert (await client.take_turn("node001", GROUP)).is_granted


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"group": ""},
        {"group": "a/b"},
        {"group": "a", "wait": 301},
        {"group": "a", "wait": -1},
        {"group": "a", "lasts": 0},
        {"group": "a", "lasts": 10**6},
        {"group": "a", "more": 1},
    ],
)
async def test_a_turn_that_cannot_be_is_refused(http: aiohttp.ClientSession, body: dict[str, object]) -> None:
    async with http.post("/api/v1/nodes/node001/turns", json=body) as answer:
        assert answer.status == 400


async def test_turns_outlive_the_head(tmp_path: pathlib.Path) -> None:
    async with served(tmp_path) as server, server.client("node001") as one:
        await one.take_turn("node001", GROUP, lasts_s=3600)
    async with served(tmp_path) as server, server.client() as client:
        assert [state.node for state in await client.turns()] == ["node001"]
        assert not (await client.take_turn("node002", GROUP)).is_granted
