"""Which cluster a command is about: the one that is named, else that of `bedplate up` in this folder."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from tests.apps.test_help import COMMANDS

from bedplate.cli import cluster


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


@pytest.mark.parametrize("path", ["bedplate doctor", "bedplate doctor ipam", "bedplate sim nodes", "bedplate ipam"])
def test_commands_that_ask_a_cluster_find_it_in_the_same_way(path: str) -> None:
    names = [name for name in COMMANDS if name == path or name.startswith(f"{path} ")]
    options = [each for name in names for each in COMMANDS[name].params if "--kubeconfig" in each.opts]
    assert options
    for option in options:
        assert isinstance(option, click.Option) and ".bedplate/kubeconfig of `bedplate up`" in (option.help or "")
