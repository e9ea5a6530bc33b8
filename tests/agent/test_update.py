"""The agent replaces itself: by what the head names and nothing else, and back again when that fails."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import io
import os
import random
import shutil
import signal
import subprocess
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.machines import FakeHead, Machine, desired
from tests.agent.test_kill import child, plant
from tests.agent.test_loop import QUICK
from tests.deploy.conftest import load_tool
from tests.ui.rest.serving import Served, served
from tests.waiting import until

from bedplate.agent.link import Link, Login
from bedplate.agent.loop import Agent
from bedplate.agent.placement import HOME, Placement
from bedplate.agent.update import Trial, Unreported, Updates
from bedplate.client import HeadClient
from bedplate.client.http import Headers, Streamed
from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.head.agentarchives import Archives

OLD, NEW = "0.8.0", "0.9.0"
PROGRAM = "#!/bin/sh\necho bedplate-agent, version {version}\n"


def archive(version: str = NEW, program: str = "", **more: str) -> bytes:
    """An archive of the agent, as far as it has to be one."""
    files = {f"{version}/bin/bedplate-agent": program or PROGRAM.format(version=version), **more}
    packed = io.BytesIO()
    # Two of them are alike whenever they are made: by itself gzip writes the time into its head.
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as made:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.mode, info.size = 0o755, len(text.encode())
            if text.startswith("-> "):
                info.type, info.linkname, info.size = tarfile.SYMTYPE, text[3:], 0
            made.addfile(info, io.BytesIO(text.encode()))
    return packed.getvalue()


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Source:
    """A head with one archive; `sent` is what it really sends."""

    def __init__(self, content: bytes) -> None:
        self.sent = content
        self.asked: list[str] = []

    @contextlib.asynccontextmanager
    async def archive(self, digest: str) -> AsyncIterator[Streamed]:
        self.asked.append(digest)

        async def chunks() -> AsyncIterator[bytes]:
            for place in range(0, len(self.sent), 100):
                yield self.sent[place : place + 100]

        yield Streamed(200, Headers(), chunks())


class Node:
    """A machine whose agent was unpacked from an archive."""

    def __init__(self, folder: Path, content: bytes = b"", *, is_new: bool = True) -> None:
        self.machine = Machine(folder)
        self.home = self.machine.at(HOME)
        self.placement = Placement(self.machine.root)
        for version in ("0.7.0", OLD) if is_new else ():
            (self.home / version / "bin").mkdir(parents=True)
            (self.home / version / "bin/bedplate-agent").write_text(PROGRAM.format(version=version))
            self.placement.switch(version)
        self.machine.state.open()
        self.content = content or archive()
        self.source = Source(self.content)

    def updates(self, version: str = OLD, **more: Any) -> Updates:
        options: dict[str, Any] = {"home": str(self.home / version), "is_kept": True, "machine": "x86_64", **more}
        return Updates(self.placement, self.machine.state, self.source, version=version, **options)

    def settings(self, version: str = NEW, of: str = "amd64") -> dict[str, str]:
        return {"agent_version": version, "agent_archives": f"arm64={'0' * 64},{of}={digest(self.content)}"}

    @property
    def trial(self) -> Trial | None:
        return self.updates()._read_trial()

    def left(self) -> list[str]:
        return sorted(path.name for path in self.home.iterdir())


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "node")


async def test_the_version_that_the_head_names_is_put_in_place_on_trial(node: Node) -> None:
    updates = node.updates()
    assert await updates.follow({}) is None and not updates.is_placed
    assert await updates.follow(node.settings(OLD)) is None and not updates.is_placed
    assert await updates.follow(node.settings()) is None
    assert updates.is_placed and node.placement.current == NEW
    assert node.trial == Trial(NEW, OLD, digest(node.content), 0)
    assert node.source.asked == [digest(node.content)]
    assert node.left() == [".trial", "0.7.0", OLD, NEW, "current"]


async def test_a_version_that_reported_is_good_and_older_ones_go(node: Node) -> None:
    await node.updates().follow(node.settings())
    new = node.updates(NEW)
    new.recover()
    assert node.trial is not None
    new.reported()
    assert node.trial is None and node.left() == [OLD, NEW, "current"]
    await new.limited(ManualClock())
    assert await new.follow(node.settings()) is None and not new.is_placed


async def test_a_version_that_did_not_report_goes_and_is_not_tried_again(node: Node) -> None:
    await node.updates().follow(node.settings())
    clock, new = ManualClock(), node.updates(NEW)
    new.recover()
    waiting = asyncio.create_task(new.limited(clock))
    await clock.advance(1000)
    with pytest.raises(Unreported, match="did not report to the head within 300 s"):
        await waiting
    old = node.updates()
    old._write_trial(Trial(NEW, OLD, digest(node.content), 3))
    old.recover()
    assert node.placement.current == OLD and node.trial is None
    why = await old.follow(node.settings())
    assert why is not None and why.startswith(f"{NEW} did not report to the head after 3 starts; {OLD} runs again")
    assert node.source.asked == [digest(node.content)], "it is not fetched again"
    node.content = node.source.sent = archive(**{f"{NEW}/better": "yes"})
    assert await old.follow(node.settings()) is None and old.is_placed, "another archive is"


async def test_an_agent_that_was_killed_before_the_switch_tries_again(node: Node) -> None:
    node.updates()._write_trial(Trial(NEW, OLD, digest(node.content), 0))
    again = node.updates()
    again.recover()
    assert node.trial is None and node.placement.current == OLD
    assert await again.follow(node.settings()) is None and again.is_placed


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (archive(program="#!/bin/sh\nexit 3\n"), "the archive does not start as 0.9.0: exit code 3"),
        (archive(program=PROGRAM.format(version="0.9.1")), "the archive does not start as 0.9.0: bedplate-agent, ver"),
        (archive("0.9.1"), "the archive is not one of version 0.9.0: it has 0.9.1/bin/bedplate-agent"),
        (archive(**{"../evil": "x"}), "the archive is not one of version 0.9.0: it has ../evil"),
        (archive(**{f"{NEW}/../../evil": "x"}), "outside the destination"),
        (archive(**{f"{NEW}/out": "-> /etc"}), "is a link to an absolute path"),
        (archive(**{f"{NEW}/out": "-> ../../../x"}), "outside the destination"),
        (b"no archive", "not a gzip file"),
        (archive()[:-30], "Compressed file ended"),
    ],
)
async def test_what_is_no_good_archive_changes_nothing(tmp_path: Path, content: bytes, why: str) -> None:
    node = Node(tmp_path / "node", content)
    updates = node.updates()
    told = await updates.follow(node.settings())
    assert told is not None and why in told
    assert not updates.is_placed and node.placement.current == OLD
    assert node.left() == ["0.7.0", OLD, "current"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["node"]


async def test_what_is_not_as_the_desired_state_says_is_not_even_looked_at(node: Node) -> None:
    node.source.sent = archive(**{f"{NEW}/more": "x"})
    updates = node.updates()
    assert "is not the archive that it names" in str(await updates.follow(node.settings()))
    assert not updates.is_placed and node.left() == ["0.7.0", OLD, "current"]


async def test_who_cannot_be_replaced_says_so(node: Node) -> None:
    for updates, settings, why in (
        (node.updates(home=None), node.settings(), "does not run from its archive"),
        (node.updates(is_kept=False), node.settings(), "is not run as a service"),
        (node.updates(), node.settings(of="riscv64"), "has no archive for amd64"),
        (node.updates(), {"agent_version": NEW}, "has no archive for amd64"),
    ):
        assert why in str(await updates.follow(settings))
    assert node.source.asked == []


def test_the_launcher_counts_starts_and_gives_way_to_the_version_before(tmp_path: Path) -> None:
    """A version that does not even get to its own code: three starts of it, then the one before it."""
    trial = load_tool("packages")._TRIAL
    for version, rest in ((NEW, "exit 1\n"), (OLD, 'echo old "$@"\n')):
        program = tmp_path / version / "bin/bedplate-agent"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\nhere={tmp_path}/{version}\n{trial}{rest}")
        program.chmod(0o755)

    def start(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            [tmp_path / NEW / "bin/bedplate-agent", *words], capture_output=True, text=True, timeout=60
        )
        return done.returncode, done.stdout

    assert start("run") == (1, ""), "without a trial nothing is counted"
    (tmp_path / ".trial").write_text(f"{NEW} {OLD} abc 0\n")
    assert start("--version") == (1, "")
    for count in (1, 2, 3):
        assert start("run", "--root", "/") == (1, "")
        assert (tmp_path / ".trial").read_text() == f"{NEW} {OLD} abc {count}\n"
    assert start("run", "--root", "/") == (0, "old run --root /\n")


# Killed


def killed_at(number: int, folder: Path) -> int:
    """Let an agent put another version in place until its `number`th change of the machine; how it ended."""

    def work() -> None:
        plant(number)
        node = Node(folder, is_new=False)
        updates = node.updates()
        updates.recover()
        asyncio.run(updates.follow(node.settings()))

    return child(work)


def check_kills(tmp_path: Path, numbers: list[int]) -> int:
    kills = 0
    for number in numbers:
        folder = tmp_path / f"node{number}"
        Node(folder)
        kills += killed_at(number, folder) == -signal.SIGKILL
        node = Node(folder, is_new=False)
        # There is always one whole version that is started.
        program = node.home / "current/bin/bedplate-agent"
        assert program.read_text() == PROGRAM.format(version=node.placement.current), number
        if node.placement.current == OLD:
            again = node.updates()
            again.recover()
            assert asyncio.run(again.follow(node.settings())) is None and again.is_placed, number
        assert node.trial == Trial(NEW, OLD, digest(node.content), 0), number
        new = node.updates(NEW)
        new.recover()
        new.reported()
        assert node.placement.current == NEW, number
        assert node.left() == [OLD, NEW, "current"], number
    return kills


def test_an_agent_that_is_killed_while_it_replaces_itself_leaves_one_that_runs(
    tmp_path: Path, rng: random.Random
) -> None:
    assert check_kills(tmp_path, sorted(rng.sample(range(1, 20), 4))) >= 1


@pytest.mark.soak
def test_an_agent_that_is_killed_at_every_step_of_it_leaves_one_that_runs(tmp_path: Path) -> None:
    assert check_kills(tmp_path, list(range(1, 40))) >= 10


# With the loop


async def test_the_agent_ends_for_the_next_version_which_tells_the_head(node: Node) -> None:
    head = FakeHead(desired(settings=node.settings()))
    head.archive = node.source.archive  # type: ignore[method-assign]
    old = Agent(node.machine.effects, head, pace=QUICK, updates=node.updates())
    await old.run()
    assert node.placement.current == NEW and not old.held.is_whole and head.applied == 0
    new = Agent(node.machine.effects, head, pace=QUICK, updates=node.updates(NEW))
    task = asyncio.create_task(new.run())
    try:
        await until(lambda: head.applied == 1)
        assert head.reports[-1].version == NEW and node.trial is None
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_version_that_cannot_be_had_is_a_failure_that_the_head_is_told(node: Node) -> None:
    head = FakeHead(desired(settings=node.settings()))
    node.source = head  # type: ignore[assignment]
    agent = Agent(node.machine.effects, head, pace=QUICK, updates=node.updates())
    task = asyncio.create_task(agent.run())
    try:
        await until(lambda: head.told() == [f"agent {NEW} could not be started"])
        assert head.applied == 0 and head.reports[-1].version == OLD
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


# With a head


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as opened:
        assert opened.service.fleet is not None
        opened.service.fleet.archives = Archives(tmp_path / "agents")
        yield opened


@pytest.fixture
async def client(server: Served) -> AsyncIterator[HeadClient]:
    async with server.client() as opened:
        yield opened


async def test_a_head_hands_out_what_the_desired_state_of_a_node_names_to_that_node(
    server: Served, client: HeadClient, tmp_path: Path, node: Node
) -> None:
    assert server.service.fleet is not None
    file = tmp_path / f"bedplate-agent-{NEW}-linux-amd64.tar.gz"
    file.write_bytes(node.content)
    added = server.service.fleet.archives.add(file)
    assert added == (NEW, "amd64", digest(node.content))
    (tmp_path / "token").write_text(server.tokens["node001"])
    link = Link(Login("node001", (server.url,), token_file=str(tmp_path / "token")))
    node.source = link  # type: ignore[assignment]
    async with link:
        told = await node.updates().follow(node.settings())
        assert told is not None and "is not to run the archive" in told
        values = {"agent_version": NEW, "agent_archives": [f"amd64={added.digest}"]}
        await client.patch("category", "default", values)
        wanted = await link.desired("", 0.0)
        assert wanted is not None
        updates = node.updates()
        assert await updates.follow(wanted.state.settings) is None and updates.is_placed
        for name in ("node002", "admin"):
            async with server.client(name) as other:
                with pytest.raises(errors.BedplateError):
                    async with other.agent_archive("node001", added.digest) as answer:
                        assert [chunk async for chunk in answer.chunks] == []
        shutil.rmtree(tmp_path / "agents")
        node.placement.switch(OLD)
        told = await node.updates().follow(wanted.state.settings)
        assert told is not None and "this head has no archive of the agent" in told


async def test_the_version_of_an_agent_is_known_to_people(server: Served, client: HeadClient) -> None:
    async with server.client("node001") as node:
        await node.report("node001", version=OLD)
        await node.report("node001")
    (state,) = await client.nodes(["node001"])
    assert state.version == OLD


def test_an_archive_is_kept_under_its_digest(tmp_path: Path) -> None:
    archives = Archives(tmp_path / "agents")
    wrong = tmp_path / "agent.tar.gz"
    wrong.write_bytes(b"x")
    with pytest.raises(errors.Invalid, match="not named like an archive"):
        archives.add(wrong)
    for name in ("../x", "0" * 64, ""):
        with pytest.raises(errors.NotFound):
            archives.place(name)
    good = wrong.rename(tmp_path / "bedplate-agent-1.0-linux-arm64.tar.gz")
    added = archives.add(good)
    assert archives.place(added.digest).read_bytes() == b"x"
    assert os.listdir(tmp_path / "agents") == [added.digest]
