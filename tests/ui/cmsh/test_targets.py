"""The way to a head: which credentials travel how, and what is wrong with the files they are in."""

from __future__ import annotations

import contextlib
import os
import pathlib

import pytest
from tests.ui.rest.serving import served

from bedplate.core import errors
from bedplate.head import Edit, Session
from bedplate.head.folder import administration, creation, datafolder
from bedplate.ui.backend import Backend
from bedplate.ui.cmsh import targets
from bedplate.ui.cmsh.usersettings import Identity, Target


async def test_a_token_over_plain_http_is_told_here_and_refused_elsewhere(tmp_path: pathlib.Path) -> None:
    file, said = tmp_path / "token", list[str]()
    async with served(tmp_path) as server:
        file.write_text(server.tokens["admin"])
        file.chmod(0o600)
        async with targets.reach(Target((server.url,), None, Identity(file)), said.append) as reached:
            assert reached.backend.revision == 1
    assert len(said) == 1 and said[0].startswith(f"warning: the connection to {server.url} is not encrypted")
    with pytest.raises(errors.Denied, match="the token is not sent to"):
        async with targets.reach(Target(("http://192.0.2.1:8081",), None, Identity(file)), said.append):
            pass


async def test_a_token_that_others_may_read_is_told(tmp_path: pathlib.Path) -> None:
    file, said = tmp_path / "token", list[str]()
    file.write_text("bph_x")
    file.chmod(0o644)
    with pytest.raises(errors.BedplateError):
        async with targets.reach(Target(("http://192.0.2.1:8081",), None, Identity(file)), said.append):
            pass
    assert f"warning: {file} is open to other users (mode 0644); chmod 600 {file} closes it" in said


async def test_two_shells_without_a_daemon_work_on_one_folder_and_the_second_outlives_the_first(
    tmp_path: pathlib.Path,
) -> None:
    data, said = tmp_path / ("long" * 30) / "data", list[str]()
    await creation.make(data, name="basecm10", nodes=2)
    target = Target((), data, Identity())
    async with contextlib.AsyncExitStack() as first_open, contextlib.AsyncExitStack() as second_open:
        first = await first_open.enter_async_context(targets.reach(target, said.append, shares=True))
        assert (data / "cmsh.sock").stat().st_mode & 0o777 == 0o600
        second = await second_open.enter_async_context(targets.reach(target, said.append, shares=True))
        status = await administration.status(datafolder.Folder(data))
        assert (status.daemon, status.revision) == (f"a shell (process {os.getpid()})", 1)
        with pytest.raises(errors.Unavailable, match="is in use by a shell") as held, datafolder.Folder(data).lock():
            pass
        assert held.value.hint == "leave it"
        by_second = await second.backend.commit(_noting(second.backend, "node001", "from the second"))
        assert by_second is not None and second.own(by_second.number) and not first.own(by_second.number)
        assert first.backend.tree.get(("device", "node001")).values["notes"] == "from the second"
        by_first = await first.backend.commit(_noting(first.backend, "node002", "from the first"))
        assert by_first is not None and by_first.author == by_second.author
        await second.backend.catch_up()
        edits = _noting(second.backend, "node001", "alone")
        await first_open.aclose()
        revision = await second.backend.commit(edits)
        assert revision is not None and revision.number == by_first.number + 1
        third = await second_open.enter_async_context(targets.reach(target, said.append))
        assert third.backend.tree.get(("device", "node001")).values["notes"] == "alone"
    assert datafolder.Folder(data).holder() is None
    assert not (data / "cmsh.sock").exists()
    assert [line for line in said if line.startswith("warning")] == []


def _noting(backend: Backend, node: str, notes: str) -> list[Edit]:
    session = Session(backend.tree)
    session.set(("device", node), "notes", notes)
    return session.edits()
