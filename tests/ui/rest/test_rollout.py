"""A commit that reaches nodes in batches, over HTTP: who gets it when, what stops it, and what survives the head."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator, Sequence
from functools import partial

import aiohttp
import pytest
from tests.ui.rest.serving import Served, served
from tests.waiting import DEADLINE_S

from bedplate.api.headapi import Edit, Failure, Result
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.head.fleet import Fleet
from bedplate.head.policy import Identity
from bedplate.head.rollout import Batches
from bedplate.head.session import Edit as SessionEdit
from bedplate.head.site import first_tree
from bedplate.store.interface import Op

NODES = ["node001", "node002", "node003", "node004", "node007"]
"""Those of the category that is changed."""
FAILURE = Failure(kind="file", name="/etc/x", verb="written", text="no space left")


class Site:
    def __init__(self, server: Served, client: HeadClient, clock: ManualClock) -> None:
        self.server, self.client, self.clock = server, client, clock
        assert server.service.fleet is not None
        self.rollouts = server.service.fleet.rollouts

    async def commit(self, image: str = "my-new-image", **options: object) -> None:
        present = await self.client.get("category", "default")
        values = {**present.values, "software_image": image}
        edit = Edit(mode="category", key="default", base=present.revision, object={"values": values})
        await self.client.commit([edit], **{"batch": "2", "settle_s": 0, **options})  # type: ignore[arg-type]

    async def apply(self, *names: str) -> None:
        for name in names:
            wanted = await self.client.desired(name)
            assert wanted is not None
            await self.client.report(name, applied=wanted.state.revision, digest=wanted.etag)

    async def with_it(self) -> list[str]:
        """The nodes that are told to have the new image."""
        names = []
        for name in NODES:
            wanted = await self.client.desired(name)
            assert wanted is not None
            if wanted.state.settings.get("software_image", "") == "my-new-image":
                names.append(name)
        return names

    def told(self) -> list[str]:
        return [notice.text for notice in self.server.notices.latest() if "Roll-out" in notice.text]


@pytest.fixture
async def site(tmp_path: pathlib.Path) -> AsyncIterator[Site]:
    clock = ManualClock()
    async with served(tmp_path, clock=clock) as server, server.client() as client:
        site = Site(server, client, clock)
        await site.apply(*NODES)
        yield site


async def test_nodes_get_it_in_batches_and_those_who_wait_are_told_when_it_is_their_turn(site: Site) -> None:
    before = await site.client.desired("node003")
    assert before is not None
    waiting = asyncio.create_task(site.client.desired("node003", before.etag, wait_s=200))
    await site.commit()
    assert await site.with_it() == ["node001", "node002"]
    await asyncio.sleep(0.1)
    assert not waiting.done(), "it is held back"
    progress = await site.client.progress(2)
    assert [(node.node, node.state) for node in progress.nodes] == [
        *((name, "pending") for name in NODES[:2]),
        *((name, "held") for name in NODES[2:]),
    ]
    states = {state.node: state for state in await site.client.nodes()}
    assert states["node003"].is_held and not states["node003"].pending and states["node001"].pending == 2
    await site.rollouts.look()
    assert await site.with_it() == NODES[:2], "nobody has applied it yet"
    await site.apply("node001", "node002")
    await site.rollouts.look()
    async with asyncio.timeout(DEADLINE_S):
        woken = await waiting
    assert woken is not None and woken.state.revision == 2
    assert await site.with_it() == NODES[:4]
    await site.apply(*NODES)
    await site.rollouts.look()
    await site.apply(*NODES)
    await site.rollouts.look()
    state = await site.client.rollout()
    assert (state.state, state.released, state.total, state.nodes) == ("done", 5, 5, [])
    assert (await site.client.progress(2)).nodes == []
    assert site.told() == [
        "Roll-out of revision 2 is done: all 5 nodes",
        "Roll-out of revision 2 goes on: 5 of 5 nodes",
        "Roll-out of revision 2 goes on: 4 of 5 nodes",
        "Roll-out of revision 2 begins: 2 of 5 nodes",
    ]


@pytest.mark.parametrize("kind", ["failure", "check"])
async def test_a_node_that_fails_it_stops_it_and_the_others_stay_as_they_were(site: Site, kind: str) -> None:
    await site.commit()
    await site.apply("node001")
    if kind == "failure":
        await site.client.report("node002", failures=[FAILURE])
    else:
        await site.apply("node002")
        await site.client.report("node002", results=[Result(check="Docker", status="FAIL", info="dead")])
    await site.rollouts.look()
    state = await site.client.rollout()
    assert state.state == "stopped" and state.text.startswith("node002: ")
    assert {node.node: node.state for node in state.nodes} == {
        "node001": "applied",
        "node002": "failed",
        **dict.fromkeys(NODES[2:], "held"),
    }
    assert (await site.client.progress(2)).stopped.startswith("is stopped: node002")
    await site.rollouts.look()
    assert await site.with_it() == NODES[:2]
    assert "rollout resume goes on" in site.told()[0]
    await site.client.act_on_rollout("resume")
    await site.rollouts.look()
    assert await site.with_it() == NODES[:4]


async def test_undo_takes_it_back_everywhere(site: Site) -> None:
    await site.commit()
    await site.apply("node001", "node002")
    state = await site.client.act_on_rollout("undo")
    assert (state.state, state.text) == ("undone", "undone by admin")
    assert await site.with_it() == []
    newest = await site.client.revision(3)
    assert newest.undoes == 2
    with pytest.raises(errors.NotFound):
        await site.client.act_on_rollout("resume")
    await site.apply(*NODES)
    await site.commit()
    assert (await site.client.rollout()).revision == 4, "another one may begin"


async def test_pause_and_resume_are_for_those_who_may_edit(site: Site) -> None:
    with pytest.raises(errors.NotFound):
        await site.client.rollout()
    await site.commit()
    for user, allowed in (("arno", False), ("node001", False), ("olga", True)):
        async with site.server.client(user) as other:
            if allowed:
                assert (await other.act_on_rollout("pause")).text == "paused by olga"
                with pytest.raises(errors.Conflict):
                    await other.act_on_rollout("pause")
            else:
                with pytest.raises(errors.Denied):
                    await other.act_on_rollout("pause")
    await site.apply(*NODES)
    await site.rollouts.look()
    assert await site.with_it() == NODES[:2]
    await site.client.act_on_rollout("resume")
    with pytest.raises(errors.Conflict):
        await site.client.act_on_rollout("resume")


async def test_a_commit_that_is_refused_holds_nobody_back_and_one_is_rolled_out_at_a_time(site: Site) -> None:
    with pytest.raises(errors.Invalid):
        await site.commit("nowhere")
    with pytest.raises(errors.NotFound):
        await site.client.rollout()
    await site.commit()
    with pytest.raises(errors.Conflict, match="being rolled out"):
        await site.commit("default-image")
    assert site.server.head.revision == 2
    await site.client.patch("device", "node003", {"notes": "an ordinary commit"})
    assert await site.with_it() == NODES[:2]


async def test_a_commit_that_means_nothing_to_nodes_is_not_rolled_out(site: Site) -> None:
    edit = Edit(mode="network", key="x", object={"values": {"base_address": "10.9.0.0"}})
    assert await site.client.commit([edit], batch="10%") is not None
    with pytest.raises(errors.NotFound):
        await site.client.rollout()


async def test_a_share_of_the_nodes_and_a_wrong_one(site: Site) -> None:
    headers = {"Authorization": f"Bearer {site.server.tokens['admin']}"}
    async with aiohttp.ClientSession(site.server.url, headers=headers) as http:
        for batch in ("0", "0%", "101%", "x", "10 %", "-1"):
            async with http.post("/api/v1/commits", json={"edits": [], "batch": batch}) as answer:
                assert answer.status == 400, batch
    await site.commit(batch="50%")
    assert await site.with_it() == NODES[:3]


async def test_it_survives_the_head_and_another_head_goes_on_with_it(tmp_path: pathlib.Path) -> None:
    clock = ManualClock()
    async with served(tmp_path, clock=clock) as server, server.client() as client:
        site = Site(server, client, clock)
        await site.apply(*NODES)
        await site.commit()
    async with served(tmp_path, clock=clock) as server, server.client() as client:
        site = Site(server, client, clock)
        assert await site.with_it() == NODES[:2]
        running = asyncio.create_task(site.rollouts.run())
        await site.apply("node001", "node002")
        for _ in range(5000):
            await asyncio.sleep(0.01)
            await clock.advance(0.5)
            if (await client.rollout()).released == 4:
                break
        running.cancel()
        assert await site.with_it() == NODES[:4]


async def test_one_whose_revision_was_never_made_is_forgotten(tmp_path: pathlib.Path) -> None:
    clock = ManualClock()
    async with served(tmp_path, clock=clock) as server, server.client() as client:
        site = Site(server, client, clock)
        tree = server.head.tree
        category = tree.get(("category", "default"))
        after = tree.with_object("category", "default", category.with_value("software_image", "my-new-image"))
        await site.rollouts.hold(Batches("2"), "anna", tree, after, 2)
        await site.rollouts.look()
        assert site.rollouts.current is not None, "it may be about to be made"
    async with served(tmp_path, clock=clock) as server, server.client() as client:
        site = Site(server, client, clock)
        with pytest.raises(errors.NotFound):
            await client.rollout()
        await site.rollouts.look()
        assert site.rollouts.current is None
        await client.patch("category", "default", {"software_image": "my-new-image"})
        assert await site.with_it() == NODES


async def test_a_passive_head_holds_back_whom_the_active_one_does(site: Site) -> None:
    server = site.server
    tokens = server.service.access.tokens
    other = Fleet(server.store, server.head, tokens, server.notices, server.health, clock=site.clock)
    await other.open()
    following = asyncio.create_task(other.rollouts.follow())
    await site.commit()
    async with asyncio.timeout(DEADLINE_S):
        while not other.wants.is_held("node003"):
            await asyncio.sleep(0.01)
    freed: list[str] = []
    other.rollouts.listeners.append(freed.extend)
    await site.apply("node001", "node002")
    await site.rollouts.look()
    async with asyncio.timeout(DEADLINE_S):
        while sorted(freed) != ["node003", "node004"]:
            await asyncio.sleep(0.01)
    following.cancel()


async def test_a_commit_in_batches_that_fails_meanwhile_takes_nothing_from_another(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is about to be written while another one, which waits for it, is given up."""
    write, go_on, reached = site.server.store.commit, asyncio.Event(), asyncio.Event()

    async def slowly(ops: Sequence[Op], *args: object, **options: object) -> int:
        if site.rollouts.current is not None and site.server.head.revision == 1:
            reached.set()
            await go_on.wait()
        return await write(ops, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(site.server.store, "commit", slowly)
    first = asyncio.create_task(site.commit())
    async with asyncio.timeout(DEADLINE_S):
        await reached.wait()
    other = asyncio.create_task(
        site.rollouts.committed(
            Batches("2"), "olga", partial(site.server.head.commit_as, Identity.local("olga"), [], "nothing")
        )
    )
    await asyncio.sleep(0)
    other.cancel()
    await asyncio.wait({other})
    looking = asyncio.create_task(site.rollouts.look())
    await asyncio.sleep(0)
    go_on.set()
    await first
    await looking
    assert site.rollouts.current is not None and site.rollouts.current.revision == 2
    assert await site.with_it() == NODES[:2]
    assert site.told() == ["Roll-out of revision 2 begins: 2 of 5 nodes"]


async def test_undo_while_it_is_paused(site: Site) -> None:
    await site.commit()
    await site.client.act_on_rollout("pause")
    assert (await site.client.act_on_rollout("undo")).state == "undone"
    assert await site.with_it() == []
    states = await site.client.nodes(NODES)
    assert not any(state.is_held for state in states)
    await site.apply(*NODES)
    assert all(not state.pending for state in await site.client.nodes(NODES))


async def test_an_undo_that_something_later_stands_in_the_way_of_leaves_it_as_it_is(site: Site) -> None:
    await site.commit()
    await site.client.act_on_rollout("pause")
    await site.client.patch("category", "default", {"software_image": "default-image"})
    with pytest.raises(errors.Conflict, match="revision 3"):
        await site.client.act_on_rollout("undo")
    state = await site.client.rollout()
    assert (state.state, state.released) == ("paused", 2)


async def test_an_undo_whose_head_died_before_the_roll_out_was_told_is_repeated(tmp_path: pathlib.Path) -> None:
    clock = ManualClock()
    async with served(tmp_path, clock=clock) as server, server.client() as client:
        site = Site(server, client, clock)
        await site.apply(*NODES)
        await site.commit()
        await client.act_on_rollout("pause")
        await server.head.undo_as(Identity.local("anna"), 2)
    async with served(tmp_path, clock=clock) as server, server.client() as client:
        site = Site(server, client, clock)
        assert (await client.rollout()).state == "paused"
        assert (await client.act_on_rollout("undo")).state == "undone"
        assert server.head.revision == 3, "it was taken back already"
        assert await site.with_it() == []


async def test_who_never_reports_is_passed_over_and_who_falls_silent_stops_it(tmp_path: pathlib.Path) -> None:
    clock = ManualClock()
    async with served(tmp_path, clock=clock) as server, server.client() as client:
        site = Site(server, client, clock)
        await site.apply(*NODES[1:])
        await site.commit()
        await site.apply("node002")
        await site.rollouts.look()
        state = await client.rollout()
        assert (state.released, state.nodes[0].state) == (4, "away")
        await site.apply("node003", "node007", "node002")
        await clock.advance(200)
        await site.apply("node003", "node002", "node007")
        await clock.advance(200)
        await site.rollouts.look()
        state = await client.rollout()
        assert (state.state, state.text) == ("stopped", "node004: it has stopped reporting")
        assert await site.with_it() == NODES[:4]
        await site.apply("node004")
        await client.act_on_rollout("resume")
        await site.rollouts.look()
        assert await site.with_it() == NODES


async def test_nodes_that_are_removed_meanwhile_keep_nobody_waiting(site: Site) -> None:
    await site.commit()
    tree, edits = site.server.head.tree, []
    for overlay in tree.mode("configurationoverlay").values():
        left = tuple(name for name in overlay.values.get("nodes", ()) if name not in ("node002", "node003"))  # type: ignore[union-attr]
        edits.append(SessionEdit("configurationoverlay", overlay.key, overlay, overlay.with_value("nodes", left)))
    edits += [SessionEdit("device", name, tree.get(("device", name)), None) for name in ("node002", "node003")]
    await site.server.head.commit_as(Identity.local("anna"), edits)
    await site.apply("node001")
    await site.rollouts.look()
    state = await site.client.rollout()
    assert (state.state, state.released) == ("running", 4)
    progress = await site.client.progress(2)
    assert {node.node for node in progress.nodes} == {"node004", "node007"}
    with pytest.raises(errors.NotFound):
        await site.client.desired("node003")
    await site.apply("node004", "node007")
    for _ in range(2):
        await site.rollouts.look()
        await site.apply("node007")
    await site.rollouts.look()
    assert (await site.client.rollout()).state == "done"


@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.soak)])
async def test_a_tenth_at_a_time_of_many_nodes(tmp_path: pathlib.Path, count: int) -> None:
    """Every node has it once, in ten steps, and no two steps at once."""
    tree = [(edit.mode, edit.new) for edit in first_tree(nodes=count) if edit.new is not None]
    names = [obj.key for mode, obj in tree if mode == "device" and obj.type == "PhysicalNode"]
    clock = ManualClock()
    async with served(tmp_path, clock=clock, tree=tree) as server, server.client() as client:
        assert server.service.fleet is not None
        wants, rollouts = server.service.fleet.wants, server.service.fleet.rollouts

        async def report(nodes: Sequence[str]) -> None:
            for name in nodes:
                state = wants.state(name)
                await server.health.record(name, applied=state.revision, digest=state.digest)

        await report(names)
        category = server.head.tree.get(("category", "default"))
        edit = SessionEdit("category", "default", category, category.with_value("install_mode", "FULL"))
        commit = partial(server.head.commit_as, Identity.local("anna"), [edit])
        await rollouts.committed(Batches("10%", settle_s=0.0), "anna", commit)
        steps = []
        while (state := await client.rollout()).state == "running":
            steps.append(state.released)
            fresh = [name for name in names if not wants.is_held(name) and wants.state(name).revision == 2]
            assert len(fresh) == state.released
            await report(fresh)
            await rollouts.look()
        assert list(dict.fromkeys(steps)) == [count // 10 * number for number in range(1, 11)]
        assert (await client.progress(2)).nodes == []
