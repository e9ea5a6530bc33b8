"""What machines are asked to do once: picked up with the desired state, never twice, and not after its time."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator

import pytest
from tests.ui.rest.serving import Served, served
from tests.waiting import DEADLINE_S

from bedplate.api import headapi
from bedplate.api.desired import Desired, Errand
from bedplate.api.headapi import ErrandTold
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.core.clock import ManualClock


@pytest.fixture
async def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def server(tmp_path: pathlib.Path, clock: ManualClock) -> AsyncIterator[Served]:
    async with served(tmp_path, clock=clock) as opened:
        yield opened


@pytest.fixture
async def client(server: Served) -> AsyncIterator[HeadClient]:
    async with server.client() as opened:
        yield opened


def test_errands_change_what_a_poll_compares_and_not_what_the_node_is() -> None:
    plain = Desired(node="a", revision=3)
    asked = Desired(node="a", revision=3, errands=(Errand(id="1", kind="reboot"),))
    other = Desired(node="a", revision=3, errands=(Errand(id="2", kind="reboot"),))
    assert plain.digest == asked.digest == plain.etag
    assert len({plain.etag, asked.etag, other.etag}) == 3
    assert asked.etag.partition("_")[0] == plain.digest


async def test_an_agent_that_waits_gets_it_at_once_and_only_until_it_has_accepted_it(
    server: Served, client: HeadClient
) -> None:
    async with server.client("node001") as node:
        first = await node.desired("node001")
        assert first is not None and first.state.errands == ()
        waiting = asyncio.create_task(node.desired("node001", first.etag, wait_s=200))
        await asyncio.sleep(0.1)
        (asked,) = await client.ask_errand(["node001"], "reboot")
        assert (asked.state, asked.kind, asked.by) == ("waiting", "reboot", "admin")
        assert await client.ask_errand(["node001"], "reboot") == [asked], "the same is not asked for twice"
        async with asyncio.timeout(DEADLINE_S):
            wanted = await waiting
        assert wanted is not None and wanted.state.errands == (Errand(id=asked.id, kind="reboot"),)
        await node.report("node001", applied=1, digest=wanted.etag)
        assert (await client.nodes(["node001"]))[0].pending == 0, "an errand is not part of the state"
        await node.report("node001", errands=[ErrandTold(id=asked.id, state="accepted")])
        again = await node.desired("node001", wanted.etag)
        assert again is not None and again.etag == first.etag and again.state.errands == ()
        await node.report("node001", errands=[ErrandTold(id=asked.id, state="done")])
        await node.report("node001", errands=[ErrandTold(id=asked.id, state="failed", text="too late")])
    (state,) = await client.errands(["node001"])
    assert (state.state, state.text) == ("done", "")
    texts = [notice.text for notice in server.notices.latest()]
    assert texts == [
        "node001 was asked by admin to reboot, and has done it",
        "node001 was asked by admin to reboot, and begins",
        "node001 was asked by admin to reboot",
    ]


async def test_what_is_asked_within_one_second_is_done_in_the_order_in_which_it_was_asked(
    server: Served, client: HeadClient
) -> None:
    wanted = [f"image-{number}" for number in range(12)]
    for image in wanted:
        await client.ask_errand(["node001"], "pullimages", pull=headapi.Pull(images=[image]))
    async with server.client("node001") as node:
        state = await node.desired("node001")
    assert state is not None
    assert [errand.images for errand in state.state.errands] == [(image,) for image in wanted]


async def test_a_node_speaks_for_its_own_errands_alone(server: Served, client: HeadClient) -> None:
    (asked,) = await client.ask_errand(["node002"], "off")
    async with server.client("node001") as node:
        await node.report("node001", errands=[ErrandTold(id=asked.id, state="done")])
    assert (await client.errands(["node002"]))[0].state == "waiting"
    assert await client.errands(["node001"]) == []


async def test_what_no_agent_takes_in_time_is_given_up(server: Served, client: HeadClient, clock: ManualClock) -> None:
    fleet = server.service.fleet
    assert fleet is not None
    await client.ask_errand(["node001", "node002"], "reset", lasts_s=60)
    clock.jump(61)
    wanted = await client.desired("node001")
    assert wanted is not None and wanted.state.errands == (), "a machine that comes back late does not reboot"
    await fleet.errands.lapse()
    assert {errand.state for errand in await client.errands()} == {"expired"}
    assert "did not respond in time" in server.notices.latest()[0].text
    clock.jump(90_000)
    await fleet.errands.lapse()
    assert await client.errands() == []


async def test_who_may_ask(server: Served, client: HeadClient) -> None:
    async with server.client("olga") as olga, server.client("arno") as arno, server.client("node001") as node:
        assert len(await olga.ask_errand(["node001", "node002"], "reboot")) == 2
        with pytest.raises(errors.Denied):
            await olga.ask_errand(["basecm10"], "reboot")
        for other in (arno, node):
            with pytest.raises(errors.Denied):
                await other.ask_errand(["node001"], "off")
        assert len(await arno.errands()) == 2
    with pytest.raises(errors.NotFound):
        await client.ask_errand(["node001", "nobody"], "off")
    assert len(await client.errands()) == 2, "all of them or none"


async def test_errands_are_known_after_a_restart(tmp_path: pathlib.Path, clock: ManualClock) -> None:
    async with served(tmp_path, clock=clock) as server, server.client() as client:
        (asked,) = await client.ask_errand(["node001"], "reboot")
    async with served(tmp_path, clock=clock) as server, server.client() as client:
        wanted = await client.desired("node001")
        assert wanted is not None and wanted.state.errands == (Errand(id=asked.id, kind="reboot"),)


async def test_a_machine_is_switched_on_by_a_management_controller_where_there_is_one(
    server: Served, client: HeadClient
) -> None:
    with pytest.raises(errors.Invalid, match="no agent that could switch it on"):
        await client.ask_errand(["node001"], "on")
    assert await client.errands() == []
    pressed: list[str] = []

    async def press(node: str) -> str | None:
        pressed.append(node)
        return "its fuse is blown" if node == "node002" else None

    assert server.service.fleet is not None
    server.service.fleet.errands.controller = press
    good, bad = await client.ask_errand(["node001", "node002"], "on")
    assert (good.state, bad.state, bad.text) == ("done", "failed", "its fuse is blown")
    assert pressed == ["node001", "node002"]
    async with server.client("node001") as node:
        state = await node.desired("node001")
    assert state is not None and state.state.errands == (), "an agent is not asked to switch its machine on"
    texts = [notice.text for notice in server.notices.latest()]
    assert "node001 was asked by admin to switch on, and has done it" in texts


async def test_a_machine_that_goes_is_down_at_once_and_up_when_it_reports_again(
    server: Served, client: HeadClient
) -> None:
    async with server.client("node001") as node:
        await node.report("node001", applied=1)
        (asked,) = await client.ask_errand(["node001"], "off")
        assert [state.state for state in await client.nodes(["node001"])] == ["UP"]
        await node.report("node001", errands=[ErrandTold(id=asked.id, state="accepted")])
        assert [state.state for state in await client.nodes(["node001"])] == ["DOWN"]
        await node.report("node001", applied=1)
        assert [state.state for state in await client.nodes(["node001"])] == ["UP"]


async def test_item_103_a_login_reaches_the_node_that_pulls_and_nobody_else(
    server: Served, client: HeadClient, tmp_path: pathlib.Path
) -> None:
    login = headapi.RegistryLogin(server="reg:5000", username="alice", password="s3cret-word")
    pull = headapi.Pull(images=["reg:5000/a"], logins=[login])
    (asked,) = await client.ask_errand(["node001"], "pullimages", pull=pull)
    assert asked.images == ["reg:5000/a"]
    async with server.client("node001") as node:
        answer = await node.desired("node001")
        assert answer is not None
        (errand,) = answer.state.errands
        assert [(each.server, each.password) for each in errand.logins] == [("reg:5000", "s3cret-word")]
        masked = answer.state.masked()
        assert masked.errands[0].logins == () and masked.errands[0].images == ("reg:5000/a",)
        shown = await client.desired("node001")
        assert shown is not None and [each.logins for each in shown.state.errands] == [()], "nor an administrator"
        await node.report("node001", errands=[ErrandTold(id=asked.id, state="accepted")])
    told = [*(await client.errands()), *(await client.notices())]
    assert "s3cret-word" not in repr(told)
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"s3cret-word" in file.read_bytes()]
    with pytest.raises(errors.Invalid, match="belong together"):
        await client.ask_errand(["node001"], "pullimages")
