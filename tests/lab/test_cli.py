"""The command line, as far as it needs no lab."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bedplate.core import errors
from bedplate.lab import cli, state
from bedplate.lab.plan import Options, make_plan


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("BEDPLATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path


@pytest.mark.parametrize("words", [[], ["up"], ["status"], ["kubectl"], ["exec"], ["load-image"], ["down"], ["list"]])
def test_every_command_explains_itself(words: list[str]) -> None:
    answer = CliRunner().invoke(cli.lab, [*words, "--help"])
    assert answer.exit_code == 0
    assert "Usage:" in answer.output


@pytest.mark.parametrize("words", [["status"], ["kubectl", "--", "get", "nodes"], ["exec", "node-1", "--", "true"]])
def test_a_lab_that_is_not_there_is_named_with_the_command_that_makes_it(words: list[str]) -> None:
    answer = CliRunner().invoke(cli.lab, [words[0], "--name", "ghost", *words[1:]])
    assert isinstance(answer.exception, errors.NotFound)
    assert str(answer.exception) == "there is no lab 'ghost'"
    assert answer.exception.hint == "start one: bedplate lab up --name ghost"


def test_kubectl_waits_for_nobody(folders: Path) -> None:
    state.Shelf().write(state.Record("starting", 1, make_plan(Options(name="young"), [])))
    answer = CliRunner().invoke(cli.lab, ["kubectl", "--name", "young", "--", "get", "nodes"])
    assert isinstance(answer.exception, errors.Unavailable)
    assert "still starting" in str(answer.exception)


def test_a_record_without_processes_is_listed_as_stopped(folders: Path) -> None:
    state.Shelf().write(state.Record("ready", 1, make_plan(Options(name="old", nodes=2), [])))
    answer = CliRunner().invoke(cli.lab, ["list", "-o", "json"])
    assert json.loads(answer.output) == [
        {
            "name": "old",
            "phase": "stopped",
            "kubernetes": "v1.35.4",
            "controlPlane": "process",
            "nodes": "2",
            "subnet": "10.77.0.0/24",
        }
    ]
    table = CliRunner().invoke(cli.lab, ["list"]).output.splitlines()
    assert table[0].split() == ["NAME", "PHASE", "KUBERNETES", "CONTROL", "PLANE", "NODES", "SUBNET"]
    assert table[1].split() == ["old", "stopped", "v1.35.4", "process", "2", "10.77.0.0/24"]


def test_down_of_nothing_is_fine() -> None:
    answer = CliRunner().invoke(cli.lab, ["down", "--name", "ghost"])
    assert answer.exit_code == 0
    assert "there was no lab 'ghost'" in answer.output


def test_cached_programs_are_listed_and_found(folders: Path) -> None:
    path = folders / "cache/kubernetes/v1.34.4/bin/kubectl"
    path.parent.mkdir(parents=True)
    path.write_text("")
    path.chmod(0o755)
    (path.parent / "kubectl.123.part").write_text("")
    listing = CliRunner().invoke(cli.binaries, ["list", "-o", "json"])
    assert json.loads(listing.output) == [{"program": "kubectl", "version": "v1.34.4", "path": str(path)}]
    found = CliRunner().invoke(cli.binaries, ["get", "kubectl", "--kubernetes", "1.34"])
    assert found.output == f"{path}\n"


def test_what_is_for_kubernetes_is_refused_on_a_managed_lab(folders: Path, tmp_path: Path) -> None:
    state.Shelf().write(state.Record("ready", 1, make_plan(Options(name="bare", managed=True), [])))
    archive = tmp_path / "image.tar"
    archive.write_bytes(b"")
    for words in (["kubectl", "--name", "bare", "--", "get", "nodes"], ["load-image", "--name", "bare", str(archive)]):
        answer = CliRunner().invoke(cli.lab, words)
        assert isinstance(answer.exception, errors.Invalid)
        assert "is managed: it has no Kubernetes" in str(answer.exception)


def test_the_status_of_a_managed_lab_names_its_head_and_the_shell(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def states(*_: object) -> None:
        raise errors.Unavailable("no answer")

    monkeypatch.setattr("bedplate.lab.managed.states", states)
    state.Shelf().write(state.Record("ready", 1, make_plan(Options(name="bare", managed=True, nodes=2), [])))
    answer = CliRunner().invoke(cli.lab, ["status", "--name", "bare"])
    lines = answer.output.splitlines()
    assert lines[0].split() == ["name:", "bare"]
    assert any(line.startswith("head:") and "https://10.77.0.2:8081 unreachable: no answer" in line for line in lines)
    assert any(line.split()[1:3] == ["cmsh", "--data"] for line in lines if line.startswith("shell:"))
    assert not any(line.startswith(("kubeconfig:", "api:", "pod cidr:")) for line in lines)
    assert lines[-1].split()[:3] == ["node002", "10.77.0.12", "Unknown"]


def test_a_managed_lab_needs_root_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    answer = CliRunner().invoke(cli.lab, ["up", "--managed"])
    assert isinstance(answer.exception, errors.Denied)
    assert "a lab needs root" in str(answer.exception)
