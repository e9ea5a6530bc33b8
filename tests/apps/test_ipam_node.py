"""The program `ipam-node` as it is installed: what it says, and how it ends, before it needs a cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests import forkserver

from bedplate import __version__

PROGRAM = Path(sys.executable).with_name("ipam-node")


@pytest.fixture(autouse=True)
def installed() -> None:
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM.name} is not installed beside this Python")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return forkserver.run([str(PROGRAM), *words], capture_output=True, text=True, timeout=120, check=False)


def test_it_says_its_version() -> None:
    # Started as a user does; the others are forked.
    command = [str(PROGRAM), "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"ipam-node v{__version__}\n", "")


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_its_help_has_groups_and_examples(word: str) -> None:
    ended = run(word)
    assert (ended.returncode, ended.stderr) == (0, "")
    for text in ("Examples:", "Node daemon flags:", "CNI plugin flags:", "--node-name", "--static-ip-check"):
        assert text in ended.stdout


def test_what_is_wrong_is_said_together_without_a_traceback(tmp_path: Path) -> None:
    ended = run("argument", f"--store-file={tmp_path}/none/store", "--bind-address=x")
    assert (ended.returncode, ended.stdout) == (1, "")
    for text in ("'argument'", "--node-name", "--store-file", "--bind-address"):
        assert text in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_cluster_that_cannot_be_found_is_said_after_files_were_installed(tmp_path: Path) -> None:
    for name in ("bin", "conf"):
        (tmp_path / name).mkdir()
    plugin = tmp_path / "plugin"
    plugin.write_text("plugin")
    ended = run(
        "--node-name=n",
        f"--kubeconfig={tmp_path}/none",
        f"--store-file={tmp_path}/store",
        f"--bind-address=unix://{tmp_path}/s",
        f"--cni-bin-dir={tmp_path}/bin",
        f"--cni-conf-dir={tmp_path}/conf",
        f"--cni-log-file={tmp_path}/log",
        f"--cni-nv-ipam-bin-file={plugin}",
    )
    assert ended.returncode == 1
    assert f"{tmp_path}/none" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert (tmp_path / "bin" / "nv-ipam").read_text() == "plugin"
