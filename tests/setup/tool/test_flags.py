"""Flags that unlock, stop, fail or allow something: what they do, and when they are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.setup.conftest import tool
from tests.setup.engine import fakes
from tests.setup.places import MINIMAL, answers, site
from tests.setup.tool.driving import Tool

from bedplate.head import Obj
from bedplate.setup.answers import declaration, document
from bedplate.setup.tool import caretaking, operations
from bedplate.setup.tool.command import PROGRAM, command
from bedplate.setup.tool.flags import DEV_FLAGS, DEV_GROUP
from bedplate.setup.wizard.steps import Steps

__all__ = ["tool"]


def test_help_shows_what_dev_unlocks_with_dev_alone(tool: Tool) -> None:
    assert f"{DEV_GROUP}:" not in tool("--help", on_head=False).stdout
    for words in (("--help", "--dev"), ("--dev", "--help")):
        shown = tool(*words, on_head=False).stdout
        section = shown.partition(f"{DEV_GROUP}:")[2]
        assert all(f"--{flag.name} " in section for flag in DEV_FLAGS)


@pytest.mark.parametrize("flag", [flag.name for flag in DEV_FLAGS])
def test_what_dev_unlocks_is_refused_without_it_and_for_stages_that_do_not_exist(tool: Tool, flag: str) -> None:
    done = tool.deploy(f"--{flag}", "first")
    assert done.exit_code == 2
    assert "give --dev as well" in done.stderr
    done = tool.deploy("--dev", f"--{flag}", "Nothing")
    assert done.exit_code == 2
    assert "there is no stage 'Nothing'" in done.stderr
    assert fakes.content(tool.world) == {}


def _names(tool: Tool) -> list[str]:
    return [stage.name for stage in tool.stages()]


def test_a_run_stops_after_a_stage_as_one_that_was_interrupted_and_is_resumed(tool: Tool) -> None:
    second = _names(tool)[1]
    done = tool.deploy("--dev", "--stop-after", second.lower())
    assert done.exit_code == 1
    assert f"Interrupted by --stop-after {second}" in done.stdout
    assert "Continue with --resume" in done.stdout
    states = {stage["name"]: stage["state"] for stage in tool.journal()["stages"]}
    assert states[second] == "done" and states[_names(tool)[-1]] == "pending"
    assert tool("--resume", "--log-file", tool.log).exit_code == 0


def test_a_run_fails_at_a_stage_and_is_undone(tool: Tool) -> None:
    last = _names(tool)[-1]
    done = tool.deploy("--dev", "--fail-at", last, "--on-error-action", "undo")
    assert done.exit_code == 1
    assert "it was asked to fail" in done.stdout
    assert "status: undone" in done.stdout
    assert fakes.content(tool.world) == {}


def test_the_last_stage_is_no_place_to_stop_after(tool: Tool) -> None:
    assert tool.deploy("--dev", "--stop-after", _names(tool)[-1]).exit_code == 0


def test_device_mapper_is_refused_from_a_file_and_not_offered_without_its_flag(tool: Tool) -> None:
    tool.answers.write_text(MINIMAL + "docker: {install: true, storage_backend: devicemapper}\n")
    done = tool.deploy()
    assert done.exit_code == 2
    assert "docker.storage_backend: devicemapper is deprecated" in done.stderr
    assert "--allow-device-mapper" in done.stderr
    assert tool.deploy("--allow-device-mapper").exit_code == 0
    question = declaration.by_path()["docker.storage_backend"]
    assert Steps(site(), document.defaults()).choices(question) == ("overlay2",)
    allowed = Steps(site(), document.defaults(), has_device_mapper=True)
    assert allowed.choices(question) == ("overlay2", "devicemapper")
    assert not allowed.is_asked(question)


def test_a_flag_takes_precedence_over_the_file(tool: Tool) -> None:
    tool.answers.write_text(MINIMAL + "    packages: false\n")
    assert tool.deploy("--skip-package-install", "--strict").exit_code == 0
    kubernetes = tool.journal()["answers"]["kubernetes"]
    assert (kubernetes["skip"]["packages"], kubernetes["strict"]) == (True, True)


def test_the_login_of_docker_hub_is_an_answer_whose_password_may_come_from_standard_input(tool: Tool) -> None:
    login = ("--docker-io-username", "robot", "--docker-io-password")
    done = tool.deploy(*login, "-", "--dev", "--stop-after", _names(tool)[1], stdin="hunter2\n")
    assert done.exit_code == 1, done.stderr
    assert tool.journal()["answers"]["kubernetes"]["docker_io"] == {"username": "robot", "password": "hunter2"}
    assert tool("--undo", "--log-file", tool.log).exit_code == 1
    assert "hunter2" not in done.stdout + tool.log.read_text()
    assert "hunter2" not in (tool.data / "setup" / "default" / "journal.json").read_text(), "the run is over"
    done = tool.deploy(*login[:2])
    assert done.exit_code == 2
    assert "kubernetes.docker_io.password: a login needs a user name and a password" in done.stderr


def test_ceph_storage_without_such_a_pool_is_refused_before_anything_is_changed(tool: Tool) -> None:
    tool.cluster("default")
    done = tool("--remove", "--yes-i-really-mean-it", "--remove-ceph-storage", "--log-file", tool.log)
    assert done.exit_code == 2
    assert "the cluster default has no Ceph add-on" in done.stderr
    assert fakes.content(tool.world) == {}
    assert "does not apply to a deployment" in tool.deploy("--remove-ceph-storage").stderr


def test_ceph_storage_without_the_program_is_refused(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"fsid": "2a5e3bbf-0f25-4dc5-9ab8-2a49eb8ae3ee", "pool": "kube"}
    environment = {name: Obj("ApplicationEnvironment", name, {"value": text}) for name, text in variables.items()}
    application = Obj("Application", "ceph", {}, {}, {"environment": environment})
    group = Obj("AppGroup", "system", {}, {}, {"applications": {"ceph": application}})
    tool.put(("kubernetes", Obj("KubeCluster", "default", {}, {}, {"app_groups": {"system": group}})))
    monkeypatch.setenv("PATH", str(Path(tool.world) / "nowhere"))
    done = tool("--remove", "--yes-i-really-mean-it", "--remove-ceph-storage", "--log-file", tool.log)
    assert done.exit_code == 2
    assert "there is no program ceph on this machine; nothing was changed" in done.stderr


def test_repositories_with_a_password_or_helm_without_a_key_do_not_fit(tool: Tool) -> None:
    tool.answers.write_text(MINIMAL + "  repositories: {base: 'https://a:b@mirror/k8s', helm: 'https://mirror/helm'}\n")
    done = tool.deploy()
    assert done.exit_code == 2
    assert "kubernetes.repositories.base (line 10): must have no user or password in it" in done.stderr
    assert re.search(r"kubernetes.repositories.key.*: packages of a repository of Helm", done.stderr)
    tool.answers.write_text(MINIMAL + "  repositories: {base: mirror}\n")
    assert "must be a URL" in tool.deploy().stderr
    assert answers()["kubernetes"]["repositories"] == {"base": "", "key": "", "helm": ""}


@pytest.mark.parametrize("flag", ["--list-versions", "--list-operators-versions"])
def test_lists_are_json_where_that_is_asked_for(tool: Tool, flag: str) -> None:
    told = tool(flag, on_head=False).stdout
    done = tool(flag, "--json", on_head=False)
    assert done.exit_code == 0
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(row["version"] in told for row in rows)
    assert len(rows) == len([line for line in told.splitlines() if not line.endswith(":")])


def test_what_was_chosen_in_the_wizard_gets_the_flags_that_were_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, object]] = []

    async def perform(action: str, values: Mapping[str, Any]) -> int:
        if action == "deploy":
            raise operations.Another("add-nodes", {"add_nodes": "node004", "control_plane": True})
        asked.append((action, (values["add_nodes"], values["control_plane"], values["remove_nodes"])))
        return 0

    monkeypatch.setattr(operations, "perform", perform)
    assert CliRunner().invoke(command, [], prog_name=PROGRAM).exit_code == 0
    assert asked == [("add-nodes", ("node004", True, None))]


@pytest.mark.parametrize(("action", "value"), [("etcd-snapshot", ""), ("certificates", True)])
def test_an_action_that_was_chosen_in_the_wizard_is_as_its_bare_flag(
    monkeypatch: pytest.MonkeyPatch, action: str, value: object
) -> None:
    asked: list[object] = []

    async def chosen(action_: str, values: Mapping[str, Any]) -> int:
        raise operations.Another(action, {})

    async def perform(action_: str, values: Mapping[str, Any]) -> int:
        asked.append(values[action.replace("-", "_")])
        return 0

    monkeypatch.setattr(operations, "perform", chosen)
    monkeypatch.setattr(caretaking, "perform", perform)
    assert CliRunner().invoke(command, [], prog_name=PROGRAM).exit_code == 0
    assert asked == [value]
