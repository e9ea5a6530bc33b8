"""The way to a head: which credentials travel how, and what is wrong with the files they are in."""

from __future__ import annotations

import pathlib

import pytest
from tests.ui.rest.serving import served

from bedplate.core import errors
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
