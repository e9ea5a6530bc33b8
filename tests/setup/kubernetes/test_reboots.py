"""Nodes whose system asks for a reboot, and nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.setup import places
from tests.setup.kubernetes.grounds import Ground, ground
from tests.waiting import until

from bedplate.api.headapi import ErrandTold, System
from bedplate.core import errors
from bedplate.setup.engine.stage import Context
from bedplate.setup.kubernetes import nodes, reboots

STAGE = "Reboot Nodes"


def test_only_nodes_that_have_to_are_rebooted_and_never_one_of_another_cluster_or_a_head() -> None:
    place = places.site(clusters={"first": 10443}, members={"node002": "first"})
    have_to = System(reboot=True)
    present = {"basecm10": have_to, "node001": have_to, "node002": have_to, "node003": System(), "node004": None}
    rebooted, left = reboots.chosen(present, place, "default")
    assert rebooted == ("node001",)
    assert left == (
        "basecm10 has to reboot; a head node is not rebooted by this tool",
        "node002 has to reboot, and is a member of the cluster first; it is left alone",
    )


async def _reboot(on: Ground, state: str) -> list[str]:
    """An agent that does what it is asked for, once the stage waits for it."""
    assert on.served.service.fleet is not None
    errands = on.served.service.fleet.errands
    await until(lambda: "reboots" in on.notes, "the stage waits")
    asked = [item for item in errands.list(()) if item.kind == "reboot"]
    for item in asked:
        await errands.told(item.node, [ErrandTold(id=item.id, state="accepted")])
        await errands.told(item.node, [ErrandTold(id=item.id, state=state, text="no")])  # type: ignore[arg-type]
        await on.tells(item.node, reboot=False)
    return [item.node for item in asked]


async def test_a_node_is_rebooted_and_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ground(tmp_path, monkeypatch) as on:
        await on.tells("node001", reboot=False)
        await on.tells("node002", reboot=True)
        agent = asyncio.create_task(_reboot(on, "done"))
        await on.do(STAGE)
        assert await agent == ["node002"]
        assert on.said == ["Rebooted: node002"]
        await on.tells("node002", reboot=True)
        await on.do(STAGE)  # a run that was killed asks nobody twice
        assert on.said[-1] == "Rebooted: node002"
        assert on.served.service.fleet is not None
        assert len([item for item in on.served.service.fleet.errands.list(()) if item.kind == "reboot"]) == 1


async def test_a_request_that_a_killed_run_did_not_note_is_waited_for_and_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ground(tmp_path, monkeypatch) as on:
        await on.tells("node002", reboot=True)
        await on.backend.fleet.ask_errand(["node002"], "reboot", lasts_s=300.0)
        agent = asyncio.create_task(_reboot(on, "done"))
        await on.do(STAGE)
        assert await agent == ["node002"]
        assert on.said == ["Rebooted: node002"]
        assert on.served.service.fleet is not None
        assert len([item for item in on.served.service.fleet.errands.list(()) if item.kind == "reboot"]) == 1


async def test_a_node_that_starts_again_while_the_stage_looks_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ground(tmp_path, monkeypatch) as on:
        await on.tells("node002", reboot=True)
        await on.backend.fleet.ask_errand(["node002"], "reboot", lasts_s=300.0)
        look = nodes.systems

        async def started_again(context: Context, names: Sequence[str]) -> dict[str, System | None]:
            on.notes["reboots"] = {}
            await _reboot(on, "done")
            del on.notes["reboots"]
            return await look(context, names)

        monkeypatch.setattr(nodes, "systems", started_again)
        await on.do(STAGE)
        assert on.said == ["Rebooted: node002"]
        assert on.served.service.fleet is not None
        assert len([item for item in on.served.service.fleet.errands.list(()) if item.kind == "reboot"]) == 1


async def test_nobody_is_asked_where_no_system_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ground(tmp_path, monkeypatch) as on:
        await on.tells("node001", reboot=False)
        await on.do(STAGE)
        assert on.said == ["No node has to reboot"]
        assert on.served.service.fleet is not None
        assert list(on.served.service.fleet.errands.list(())) == []
        await on.undo(STAGE)


async def test_a_node_that_is_not_rebooted_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ground(tmp_path, monkeypatch) as on:
        await on.tells("node002", reboot=True)
        agent = asyncio.create_task(_reboot(on, "failed"))
        with pytest.raises(errors.Unavailable, match="nodes were not rebooted: node002: no"):
            await on.do(STAGE)
        await agent


async def test_a_node_that_does_not_come_back_in_time_is_named_with_the_flag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ground(tmp_path, monkeypatch) as on:
        await on.tells("node002", reboot=True)
        on.answers["kubernetes"]["reboot_timeout"] = 1
        with pytest.raises(errors.Unavailable, match="node002 has not come back within 1 s") as late:
            await on.do(STAGE)
        assert "--min-reboot-timeout" in late.value.hint
