"""Software images in the shell: trials, writing, waiting, and the trees on the head node. No rsync runs here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import structs
from tests.agent.imaging import bare, grow
from tests.ui.rest.serving import Served, served
from tests.ui.transcripts.driving import Desk
from tests.waiting import until

from bedplate.api.headapi import ErrandState, ErrandTold
from bedplate.head.entities import SCHEMA
from bedplate.ui.cmsh.commands import images
from bedplate.ui.remote import RemoteBackend


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Served]:
    grow(tmp_path / "images" / "default-image", {"/etc/os-release": "ID=test"})
    async with served(tmp_path, tree=bare()) as opened:
        yield opened


@pytest.fixture
async def desk(server: Served) -> AsyncIterator[Desk]:
    async with server.client() as client, RemoteBackend(client, SCHEMA) as backend:
        yield Desk(server.head, backend=backend)


async def answered(server: Served, desk: Desk, line: str, states: dict[str, list[ErrandTold]]) -> str:
    """What a command says that waits, while agents tell what they have to tell."""
    fleet = server.service.fleet
    assert fleet is not None
    waiting = asyncio.create_task(desk.type(line))
    await until(lambda: len([item for item in fleet.errands.transfers() if item.state == "waiting"]) == len(states))
    for errand in fleet.errands.transfers():
        async with server.client(errand.node) as node:
            for told in states[errand.node]:
                item = ErrandTold(id=errand.id, state=told.state, text=told.text, lines=told.lines)
                await node.report(errand.node, errands=[item])
    return (await waiting).out


def told(state: str, text: str = "", *lines: str) -> ErrandTold:
    return ErrandTold(id="x", state=state, text=text, lines=list(lines))  # type: ignore[arg-type]


async def test_item_172_without_w_an_update_is_a_trial_and_its_files_are_shown(server: Served, desk: Desk) -> None:
    assert "has no .bedplate-image" in (await desk.fails("device imageupdate node001 -w")).err
    assert "is an image now" in await desk.do("softwareimage adopt default-image")
    said = await answered(
        server,
        desk,
        "device use node001; imageupdate --wait",
        {"node001": [told("accepted"), told("done", "would be 1 changed", "change /etc/os-release")]},
    )
    assert said.splitlines()[-2:] == ["node001: done: would be 1 changed", "  node001  change /etc/os-release"]
    said = await answered(
        server,
        desk,
        "device use node001; imageupdate -w --wait",
        {"node001": [told("done", "1 changed", "change /etc/os-release")]},
    )
    assert said.splitlines()[-1] == "node001: done: 1 changed", "files are shown with -v"
    errands = server.service.fleet.errands.list(["node001"]) if server.service.fleet is not None else ()
    assert sorted(errand.write for errand in errands) == [False, True]


async def test_item_175_only_the_nodes_that_are_named_are_asked(server: Served, desk: Desk) -> None:
    await desk.do("softwareimage adopt default-image")
    await desk.type("device imageupdate -n node001 -w")
    async with server.client() as client:
        assert [errand.node for errand in await client.errands()] == ["node001"]
        both = (await desk.type("device imageupdate -c default")).out
        assert {line.partition(":")[0] for line in both.splitlines()} >= {"node001", "node002"}


async def test_item_174_the_nodes_own_image_is_asked_for_and_clearing_it_restores_the_categorys(
    server: Served, desk: Desk
) -> None:
    await desk.do("softwareimage adopt default-image; softwareimage copytree default-image my-new-image")
    await desk.do("device use node001; set softwareimage my-new-image; commit")
    assert "imageupdate of my-new-image asked for" in (await desk.type("device imageupdate node001")).out
    await desk.do("device use node001; clear softwareimage; commit")
    assert "imageupdate of default-image asked for" in (await desk.type("device imageupdate node001")).out


async def test_a_failure_is_the_exit_code(server: Served, desk: Desk) -> None:
    await desk.do("softwareimage adopt default-image")

    async def fails() -> None:
        fleet = server.service.fleet
        assert fleet is not None
        await until(lambda: bool(fleet.errands.transfers()))
        (errand,) = fleet.errands.transfers()
        async with server.client("node001") as node:
            await node.report("node001", errands=[ErrandTold(id=errand.id, state="failed", text="the disk is full")])

    failing = asyncio.create_task(fails())
    failed = await desk.type("device imageupdate node001 -w --wait")
    await failing
    assert failed.code == 1 and "node001: failed: the disk is full" in failed.out


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("device imageupdate", 2),
        ("imageupdate node001", 2),
        ("device imageupdate node001 --confirm node00[", 2),
        ("device imageupdate basecm10", 1),
        ("device imageupdate node001 --full -w", 1),
        ("device grabimage node001 -i nothing", 1),
        ("device grabimage node001 node002", 2),
        ("softwareimage removetree default-image", 2),
        ("softwareimage removetree default-image --confirm", 1),
        ("softwareimage chroot default-image", 2),
        ("softwareimage chroot default-image true", 1),
        ("trees", 2),
    ],
)
async def test_what_cannot_be_is_told(desk: Desk, line: str, code: int) -> None:
    await desk.do("softwareimage adopt default-image")
    assert (await desk.fails(line)).code == code


async def test_trees_are_shown(server: Served, desk: Desk) -> None:
    await desk.do("softwareimage adopt default-image")
    await desk.type("device imageupdate node001 -w")
    table = await desk.table("softwareimage trees")
    assert (table.column("Tree"), table.column("Busy")) == (["ready", "missing"], ["imageupdate of node001", ""])


def test_of_many_nodes_one_line_tells_how_many_and_now_and_then_how_far_they_are() -> None:
    def errands(*texts: str) -> list[ErrandState]:
        moving = [
            ErrandState(id=str(number), node=f"node{number}", kind="imageupdate", state="accepted", asked="", until="",
                        by="", text=text)
            for number, text in enumerate(texts)
        ]  # fmt: skip
        return [*moving, *(structs.replace(moving[0], id=f"d{number}", state="done") for number in range(6))]

    said: dict[str, str] = {}
    assert images._news(errands("10%", "30%", "waits"), said, is_due=True) == ["3 under way (20%), 6 done"]
    assert images._news(errands("40%", "30%", "waits"), said, is_due=False) == [], "not every time that one moves"
    assert images._news(errands("40%", "30%", "waits"), said, is_due=True) == ["3 under way (35%), 6 done"]
    assert images._news(errands("40%", "30%", "waits"), said, is_due=True) == [], "nor twice the same"
    assert images._news(errands("40%", "30%"), said, is_due=False) == ["2 under way (35%), 6 done"], "a change at once"
