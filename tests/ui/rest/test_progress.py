"""How far nodes are with a revision, and what is pending on each."""

from __future__ import annotations

import pathlib

import pytest
from tests.ui.rest.serving import Served, served

from bedplate.api.headapi import Failure
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.head.health import Health
from bedplate.head.wants import Base

FAILURE = Failure(kind="file", name="/etc/x", verb="written", text="no space left")


async def settle(client: HeadClient, *names: str) -> None:
    """Nodes apply what they should be, and say so."""
    for name in names:
        wanted = await client.desired(name)
        assert wanted is not None
        await client.report(name, applied=wanted.state.revision, digest=wanted.etag)


async def test_every_node_of_a_revision_is_told_with_how_far_it_is(tmp_path: pathlib.Path) -> None:
    clock = ManualClock()
    async with served(tmp_path, clock=clock) as server, server.client() as client:
        await settle(client, "node003")
        await clock.advance(400)
        await settle(client, "node001", "node002", "node007")
        await client.patch("category", "default", {"software_image": "my-new-image"})
        await settle(client, "node001", "basecm10", "node005")
        await client.report("node002", failures=[FAILURE])
        progress = await client.progress(2)
        assert (progress.revision, progress.total, progress.applied, progress.is_settled) == (2, 5, 1, False)
        assert [(one.node, one.state, one.text) for one in progress.nodes] == [
            ("node002", "failed", "File /etc/x could not be written: no space left"),
            ("node003", "DOWN", ""),
            ("node004", "UNKNOWN", ""),
            ("node007", "pending", ""),
        ]
        await settle(client, "node007")
        assert (await client.progress(2)).is_settled
        await settle(client, "node002", "node003", "node004")
        assert (await client.progress(2)).nodes == []
        with pytest.raises(errors.NotFound):
            await client.progress(77)


async def test_who_is_what_it_should_be_has_applied_what_was_taken_back_meanwhile(client: HeadClient) -> None:
    await settle(client, "node007")
    await client.patch("device", "node007", {"category": "gpu-nodes"})
    await client.undo(2)
    assert (await client.progress(2)).nodes == [], "nothing is left to do for it"


async def test_a_node_that_was_held_back_has_not_applied_what_it_did_not_receive(
    client: HeadClient, server: Served
) -> None:
    """It hears of the newest revision with every report, and takes "nothing changed" for having it."""
    await settle(client, "node007")
    before, fleet = server.head.tree, server.service.fleet
    assert fleet is not None
    await client.patch("device", "node007", {"category": "gpu-nodes"})
    fleet.wants.leaving = {"node007": Base(1, before, frozenset({"node007"}), "leaves its cluster")}
    wanted = await client.desired("node007")
    assert wanted is not None and wanted.state.revision == 1
    newest = await client.report("node007", applied=1, digest=wanted.etag)
    await client.report("node007", applied=newest, digest=wanted.etag)
    await client.report("node007", applied=2, digest=wanted.etag)
    fleet.wants.leaving = {}
    assert [(each.node, each.state) for each in (await client.progress(2)).nodes] == [("node007", "pending")]
    await settle(client, "node007")
    assert (await client.progress(2)).nodes == []


async def test_the_state_of_a_node_tells_what_is_pending_and_what_failed(client: HeadClient, server: Served) -> None:
    await settle(client, "node001", "node007")
    await client.patch("device", "node007", {"category": "gpu-nodes"})
    await client.report("node007", failures=[FAILURE])
    states = {one.node: one for one in await client.nodes()}
    assert (states["node007"].applied, states["node007"].pending) == (1, 2)
    assert states["node007"].failures == ["File /etc/x could not be written: no space left"]
    assert (states["node001"].pending, states["node004"].pending) == (0, 0)
    await client.report("node007", applied=1)
    assert (await client.nodes(["node007"]))[0].failures, "what holds is still the revision before"
    await settle(client, "node007")
    (state,) = await client.nodes(["node007"])
    assert (state.applied, state.pending, state.failures) == (2, 0, [])
    await client.report("node007", failures=[FAILURE], tried=2)
    async with Health(server.store) as again:
        assert again.of("node007") == server.health.of("node007"), "other heads know it, too"


async def test_what_is_pending_on_a_node_is_the_difference_to_what_it_has(client: HeadClient) -> None:
    whole = await client.pending("node007")
    assert whole.revision == 0 and {one.verb for one in whole.actions} == {"add"}, "it never applied anything"
    await settle(client, "node007")
    assert (await client.pending("node007")).actions == []
    await client.patch("device", "node007", {"category": "gpu-nodes"})
    await client.patch("category", "default", {"notes": "x"})
    pending = await client.pending("node007")
    assert pending.revision == 1
    assert {one.node for one in pending.actions} == {"node007"}
    between = (await client.plan_between(1)).actions
    assert pending.actions == [one for one in between if one.node == "node007"] != []
    with pytest.raises(errors.NotFound):
        await client.pending("nobody")
