"""Which cluster a command is about: the one that is named, else that of `bedplate up` in this folder."""

from __future__ import annotations

import socket
from pathlib import Path

import click
import pytest
from click import testing
from tests import servers
from tests.apps.test_help import COMMANDS

from bedplate.apiserver import certificates
from bedplate.apps.bedplate import root
from bedplate.cli import cluster
from bedplate.core import clock, errors


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return tmp_path


def test_without_up_in_this_folder_the_environment_is_as_it_was(folder: Path) -> None:
    assert "KUBECONFIG" not in cluster.environ()


def test_the_cluster_of_up_is_taken_where_no_other_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / ".bedplate").mkdir()
    (folder / ".bedplate/kubeconfig").touch()
    assert cluster.environ()["KUBECONFIG"] == str(folder / ".bedplate/kubeconfig")
    monkeypatch.setenv("KUBECONFIG", "/mine")
    assert cluster.environ()["KUBECONFIG"] == "/mine"


def left_by_up(folder: Path, port: int) -> Path:
    """What `bedplate up` leaves that had its API server at this port."""
    file = folder / ".bedplate/kubeconfig"
    file.parent.mkdir(exist_ok=True)
    pki = certificates.ensure(folder / "pki", ["127.0.0.1"], clock.SystemClock())
    file.write_bytes(certificates.kubeconfig(pki, f"https://127.0.0.1:{port}"))
    (file.parent / cluster.PORT_FILE).write_text(str(port))
    return file


@pytest.mark.parametrize("is_named", [True, False])
def test_a_cluster_of_up_that_does_not_run_is_told_with_the_command_that_starts_it(
    is_named: bool, folder: Path
) -> None:
    file = left_by_up(folder, servers.free_port())
    with pytest.raises(errors.Unavailable, match=r"\.bedplate is not running") as told:
        cluster.connection(str(file) if is_named else "")
    assert told.value.hint.endswith(f"bedplate up --data {folder / '.bedplate'}")


def test_a_cluster_of_up_that_runs_is_asked(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        left_by_up(folder, port)
        assert cluster.connection("").server == f"https://127.0.0.1:{port}"


def test_a_kubeconfig_of_another_server_beside_that_of_up_is_not_refused(folder: Path) -> None:
    file = left_by_up(folder, servers.free_port())
    file.write_text(file.read_text().replace("127.0.0.1", "192.0.2.1"))
    assert cluster.connection("").server.startswith("https://192.0.2.1:")


@pytest.mark.parametrize("line", ["ccm explain node node001", "ccm explain service a/b", "ipam pools", "doctor"])
def test_commands_beside_an_up_that_does_not_run_say_so(line: str, folder: Path) -> None:
    left_by_up(folder, servers.free_port())
    done = testing.CliRunner().invoke(root, line.split())
    text = f"{done.output}{errors.describe(done.exception)}" if done.exception is not None else done.output
    assert done.exit_code != 0
    assert "is not running" in text and "bedplate up --data" in text
    assert "address and the network" not in text


@pytest.mark.parametrize("line", ["ccm explain node node001", "ipam pools", "doctor", "sim nodes"])
def test_where_no_cluster_is_found_the_place_of_up_is_named_too(
    line: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    done = testing.CliRunner().invoke(root, line.split())
    text = f"{done.output}{errors.describe(done.exception)}" if done.exception is not None else done.output
    assert "KUBECONFIG is not set" in text and "no `bedplate up` has left .bedplate/kubeconfig in this folder" in text


@pytest.mark.parametrize(
    ("words", "is_told"),
    [(["get", "nodes"], True), (["get", "nodes", "--kubeconfig=f"], False), (["--server", "x", "version"], False)],
)
def test_kubectl_in_the_wrong_folder_says_where_no_cluster_was_found(
    words: list[str], is_told: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr("os.execve", lambda program, arguments, environ: None)
    monkeypatch.setattr("bedplate.cli.kubectl._find", lambda: "kubectl")
    note = "there is neither the .bedplate/kubeconfig of a `bedplate up` in this folder nor a ~/.kube/config"
    assert (note in testing.CliRunner().invoke(root, ["kubectl", *words]).output) is is_told
    (folder / ".kube").mkdir()
    (folder / ".kube/config").touch()
    assert testing.CliRunner().invoke(root, ["kubectl", *words]).output == ""


@pytest.mark.parametrize("path", ["bedplate doctor", "bedplate doctor ipam", "bedplate sim nodes", "bedplate ipam"])
def test_commands_that_ask_a_cluster_find_it_in_the_same_way(path: str) -> None:
    names = [name for name in COMMANDS if name == path or name.startswith(f"{path} ")]
    options = [each for name in names for each in COMMANDS[name].params if "--kubeconfig" in each.opts]
    assert options
    for option in options:
        assert isinstance(option, click.Option) and ".bedplate/kubeconfig of `bedplate up`" in (option.help or "")
