"""`bedplate agent` at a command line: what holds, what is pending, what the checks say, and its exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.ui.rest.serving import Served, served

from bedplate.agent import settings as options
from bedplate.agent.link import Link
from bedplate.agent.loop import Agent
from bedplate.cli.agent import _alone, agent
from bedplate.core import errors


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Served]:
    (tmp_path / "head").mkdir()
    async with served(tmp_path / "head") as opened:
        yield opened


@pytest.fixture
def node(tmp_path: Path) -> Path:
    folder = tmp_path / "node001"
    folder.mkdir()
    return folder


def call(*words: object) -> Result:
    return CliRunner().invoke(agent, [str(word) for word in words])


async def asked(server: Served, node: Path, *words: object) -> Result:
    token = node.parent / "token"
    token.write_text(server.tokens["node001"])
    head = ("--root", node, "--node", "node001", "--url", server.url, "--token", token)
    return await asyncio.to_thread(call, words[0], *head, *words[1:])


async def test_the_steps_that_are_pending_are_shown_and_nothing_is_touched(server: Served, node: Path) -> None:
    result = await asked(server, node, "dry-run")
    assert result.exit_code == 0, result.output
    assert re.search(r"^write +file +/etc/kubernetes/kubelet.env$", result.output, re.MULTILINE)
    assert list(node.iterdir()) == []
    assert (await asked(server, node, "dry-run", "--exit-code")).exit_code == 1
    plan = json.loads((await asked(server, node, "dry-run", "-o", "json")).output)
    assert plan["node"] == "node001"
    assert {"verb": "install", "kind": "package", "name": "cm-etcd", "because": []} in plan["steps"]
    assert "write" in (await asked(server, node, "run", "--dry-run")).output
    assert json.loads((await asked(server, node, "--dry-run", "-o", "json")).output)["steps"] == plan["steps"]


async def test_a_node_that_is_what_it_should_be_has_nothing_to_do(server: Served, node: Path) -> None:
    (node.parent / "token").write_text(server.tokens["node001"])
    given = {"node": "node001", "urls": [server.url], "token": str(node.parent / "token")}
    settings = options.read(str(node), "", given)
    async with Link(options.login(settings)) as link:
        one = Agent(options.effects(settings), link)
        await one.recover()
        wanted = await link.desired("", 0.0)
        assert wanted is not None
        await one._settle(wanted)
    # There are no units in a sandbox: services are what is left.
    plan = json.loads((await asked(server, node, "dry-run", "-o", "json")).output)
    assert {step["kind"] for step in plan["steps"]} == {"service"}
    result = await asyncio.to_thread(call, "status", "--root", node, "-o", "json")
    about = json.loads(result.output)
    assert (result.exit_code, about["pending"], about["running"]) == (1, True, False)
    (node / "etc/kubernetes/kubelet.env").write_text("by hand")
    text = (await asyncio.to_thread(call, "status", "--root", node)).output
    assert "/etc/kubernetes/kubelet.env   was changed by hand" in text


def test_a_new_node_holds_nothing(node: Path) -> None:
    result = call("status", "--root", node)
    assert result.exit_code == 0, result.output
    assert "the agent does not run, no state yet holds, 0 files" in result.output


def test_checks_are_run_once_and_a_failure_is_an_exit_code(node: Path) -> None:
    result = call("check", "load", "disk-space", "--root", node, "-o", "json")
    assert [one["check"] for one in json.loads(result.output)] == ["load", "disk-space"]
    script = node / "etc/bedplate/checks.d/raid"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\necho degraded\nexit 1\n")
    script.chmod(0o755)
    result = call("check", "raid", "--root", node)
    assert (result.exit_code, "degraded" in result.output) == (1, True)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("run",), "no head is named"),
        (("run", "--url", "https://head"), "no credential"),
        (("run", "--url", "https://head", "--token", "/none"), "/none cannot be read"),
        (("run", "--config", "/none.toml"), "/none.toml does not exist"),
        (("run", "--packages", "odd", "--url", "http://h", "--token", "/dev/null"), "'odd' is not known"),
    ],
)
def test_every_problem_is_named_before_anything_starts(node: Path, words: tuple[str, ...], problem: str) -> None:
    result = call(*words, "--root", node)
    assert isinstance(result.exception, errors.Terminal)
    assert problem in errors.describe(result.exception)


def test_settings_come_from_a_file_and_options_say_it_instead(node: Path) -> None:
    place = node / "etc/bedplate/agent.toml"
    place.parent.mkdir(parents=True)
    place.write_text('node = "n1"\nurls = ["https://a"]\nedits = "report"\n[edit_paths]\n"/etc/motd" = "keep"\n')
    settings = options.read(str(node), "", {"node": "", "urls": ("https://b",), "services": None})
    assert (settings.node, settings.urls, settings.edits) == ("n1", ("https://b",), "report")
    assert options.effects(settings).edits.of("/etc/motd") == "keep"
    place.write_text("colour = 1\n")
    with pytest.raises(errors.Invalid, match="colour"):
        options.read(str(node))


def test_enrolment_writes_settings_and_leaves_the_rest(node: Path) -> None:
    place = node / "agent.toml"
    place.write_text('node = "old"\ntoken = "/t"\nedits = "keep"\n[edit_paths]\n"/etc/motd" = "keep"\n')
    options.write(str(place), "n1", ["https://a:1", "https://b:1"], "/ca", "/pair")
    settings = options.read(str(node), str(place))
    assert (settings.node, settings.urls, settings.token, settings.edits) == (
        "n1",
        ("https://a:1", "https://b:1"),
        "",
        "keep",
    )
    assert settings.edit_paths == {"/etc/motd": "keep"}


def test_settings_that_cannot_be_written_are_told_with_what_to_do(node: Path) -> None:
    (node / "file").touch()
    with pytest.raises(errors.Terminal, match="cannot be written: not a directory") as told:
        options.write(str(node / "file/agent.toml"), "n1", ["https://a:1"], "/ca", "/pair")
    assert "the same token" in told.value.hint


def test_garbage_in_place_of_a_token_is_told_as_such(node: Path) -> None:
    (node / "token").write_bytes(bytes(range(128, 256)))
    result = call("enrol", "--root", node, "--url", "https://127.0.0.1:9", "--token-file", node / "token")
    assert isinstance(result.exception, errors.Invalid) and "not a token" in str(result.exception)


def test_a_secret_of_the_node_that_others_can_read_is_told(node: Path) -> None:
    places = {name: node / name for name in ("agent.pem", "agent.key", "agent.token", "agent.crt")}
    for place in places.values():
        place.touch(0o600)
    assert list(options.loose(options.Settings(cert=str(places["agent.pem"]), token=str(places["agent.token"])))) == []
    for place in places.values():
        place.chmod(0o644)
    for given, name in (
        ({"cert": "agent.pem"}, "agent.pem"),
        ({"token": "agent.token"}, "agent.token"),
        ({"cert": "agent.crt", "key": "agent.key"}, "agent.key"),
    ):
        settings = options.Settings(**{word: str(places[file]) for word, file in given.items()})
        assert list(options.loose(settings)) == [
            f"{places[name]} has mode 0644: other users of this machine can be this node; chmod 600 {places[name]}"
        ]
    assert list(options.loose(options.Settings(token="/none"))) == []


def test_a_node_with_a_token_has_no_certificate_to_renew(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(node)
    place = node / "etc/bedplate/agent.toml"
    place.parent.mkdir(parents=True)
    place.write_text('node = "n1"\nurls = ["http://127.0.0.1:9"]\ntoken = "/dev/null"\n')
    result = call("renew", "--root", node)
    assert isinstance(result.exception, errors.Invalid) and "n1 has no certificate" in str(result.exception)
    assert [path.name for path in node.iterdir()] == ["etc"], "nothing is left in the folder that somebody is in"


def test_a_second_agent_on_the_same_root_is_refused(node: Path, tmp_path: Path) -> None:
    effects = options.effects(options.read(str(node)))
    effects.state.open()
    with _alone(effects):
        # A lock of the same process counts as its own: the kernel is asked on behalf of another one.
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with _alone(effects):
                    pass
            except errors.AlreadyExists:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
