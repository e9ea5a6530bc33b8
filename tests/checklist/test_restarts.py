"""Items 216 and 218: a daemon that is restarted in the middle of a commit; what agents do about hand edits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.agent.machines import FakeHead, Machine, desired, passing
from tests.head.folder.serving import serving
from tests.ui.transcripts.driving import Desk
from tests.waiting import until

from bedplate.agent.loop import Agent, Pace
from bedplate.api.desired import File
from bedplate.client import HeadClient
from bedplate.core.clock import ManualClock
from bedplate.head.entities import SCHEMA
from bedplate.head.folder import creation, datafolder
from bedplate.head.folder.datafolder import Folder
from bedplate.ui.cmsh.commands import commits
from bedplate.ui.remote import RemoteBackend

NODES = ("node001", "node002")
FILES = {"ca": "ca.crt", "cert": "admin.crt", "key": "admin.key"}


def connected(folder: Folder, url: str) -> HeadClient:
    files = {f"{kind}_file": str(folder.path / name) for kind, name in FILES.items()}
    return HeadClient(url, attempts=1, **files)


async def apply(client: HeadClient, node: str) -> None:
    wanted = await client.desired(node)
    assert wanted is not None
    await client.report(node, applied=wanted.state.revision, digest=wanted.etag)


async def test_item_216_a_commit_survives_a_restart_of_the_daemon_and_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "_POLL_S", 0.01)
    await creation.make(tmp_path / "data", name="basecm10", nodes=2)
    folder = Folder.find(tmp_path / "data")
    async with serving(folder) as daemon:
        url, port = daemon.local_url, urlsplit(daemon.local_url).port or 0
        client = await connected(folder, url).__aenter__()
        for node in NODES:
            await apply(client, node)
        backend = await RemoteBackend(client, SCHEMA).__aenter__()
        desk = Desk(None, backend=backend)  # type: ignore[arg-type]
        line = "configurationoverlay; add x; set nodes node001..node002; roles; assign docker::host; /; commit --wait"
        committing = asyncio.create_task(desk.type(line))
        await until(lambda: daemon.revision() == 2, "the commit is made")
        await apply(client, "node001")
        await until(lambda: "applied on 1 of 2" in "".join(desk._out), "one node has applied it")
    try:
        await until(lambda: "waiting for it" in "".join(desk._err), "the shell waits for the head")
        assert not committing.done()
        async with serving(folder, port) as again:
            assert again.revision() == 2
            async with connected(folder, url) as node:
                await apply(node, "node002")
            said = await committing
            assert said.code == 0, said
            assert said.out.splitlines()[-1] == "revision 2: applied on 2 of 2 nodes"
    finally:
        committing.cancel()
        await client.__aexit__(None, None, None)
    async with datafolder.open_head(folder.path) as opened:
        assert opened.head.revision == 2


async def test_item_218_what_people_change_is_kept_or_told_and_what_is_theirs_stays(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "node")
    machine.put("/etc/hosts", "127.0.0.1 localhost\n")
    whole = File(path="/etc/app.conf", content="one\n")
    state = desired(whole, File(path="/etc/hosts", content="10.0.0.1 a\n", block=True))
    head, clock = FakeHead(state), ManualClock()
    agent = asyncio.create_task(Agent(machine.effects, head, clock=clock, pace=Pace()).run())
    try:
        await clock.advance(1)
        await until(lambda: head.applied == 1, "the node is what it should be")
        machine.put("/etc/app.conf", "by hand\n")
        hosts = machine.at("/etc/hosts")
        hosts.write_text(hosts.read_text() + "10.0.0.9 theirs\n")
        await passing(clock, lambda: machine.at("/etc/app.conf").read_text() == "one\n")
        await clock.advance(1)
        assert head.told() == ["file /etc/app.conf was restored"]
        assert hosts.read_text().startswith("127.0.0.1 localhost\n") and "theirs" in hosts.read_text()
        kept = [place.read_text() for place in (Path(machine.state.folder) / "edited").iterdir()]
        assert kept == ["by hand\n"]
    finally:
        agent.cancel()
        await asyncio.gather(agent, return_exceptions=True)
