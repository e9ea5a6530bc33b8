"""Nodes without a disk on the agent's own loop: they hold what the head says, report it, and put right what drifts."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator

import pytest
from tests.head.committing import commit_session
from tests.ui.rest.serving import Served, served
from tests.waiting import until

from bedplate.agent.files import Present, Written
from bedplate.agent.link import Login
from bedplate.agent.node import Pace
from bedplate.head.objects import Obj
from bedplate.sim.nodeagents import MemoryRoot, MemoryState, Node


@pytest.fixture
async def server(tmp_path: pathlib.Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as opened:
        yield opened


@contextlib.asynccontextmanager
async def living(server: Served, folder: pathlib.Path, name: str) -> AsyncIterator[Node]:
    token = folder / f"{name}.token"
    token.write_text(server.tokens[name])
    node = Node(Login(name, (server.url,), token_file=str(token)), Pace(drift_s=0.05, gather_s=0.0))
    task = asyncio.create_task(node.run())
    try:
        yield node
    finally:
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled(), task.exception()


async def test_a_node_holds_what_the_head_says_reports_it_and_follows(server: Served, tmp_path: pathlib.Path) -> None:
    async with living(server, tmp_path, "node001") as node, server.client() as client:

        async def is_settled(revision: int) -> bool:
            (state,) = await client.nodes(["node001"])
            return state.applied >= revision and not state.pending

        await until(lambda: is_settled(1))
        assert node.root.read("/etc/kubernetes/kubelet.env").content.startswith(b"KUBELET_EXTRA_ARGS=")
        session = server.head.session()
        file = Obj("Customization", "motd", {"filename": "/etc/motd", "content": "hello\n"})
        session.put(("configurationoverlay", "kube-default-master", "customizations", "motd"), file)
        await commit_session(server.head, session)
        await until(lambda: node.root.read("/etc/motd").content == b"hello\n")
        await until(lambda: is_settled(2))

        node.root.write("/etc/motd", b"wrong\n", Written())
        await until(lambda: node.root.read("/etc/motd").content == b"hello\n")
        await until(lambda: any("/etc/motd was restored" in notice.text for notice in server.notices.latest()))

        session = server.head.session()
        session.put(("configurationoverlay", "kube-default-master", "customizations", "motd"), None)
        await commit_session(server.head, session)
        await until(lambda: node.root.stat("/etc/motd") is None)


def test_what_was_there_before_comes_back() -> None:
    root, state = MemoryRoot(), MemoryState()
    root.write("/etc/a", b"theirs", Written(0o600))
    original = state.keep_original("/etc/a", root.read("/etc/a"))
    assert (original.kind, original.mode) == ("file", 0o600)
    root.write("/etc/a", b"ours", Written())
    about = root.stat("/etc/a")
    assert about is not None and about.st_size == 4
    root.remove("/etc/a")
    assert root.read("/etc/a") == Present("absent")
