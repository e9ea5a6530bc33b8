"""What the daemon puts on the node: complete or not at all, with the right modes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bedplate.core import errors
from bedplate.ipam.node import install
from bedplate.ipam.node.options import Cni, read


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for name in ("bin", "conf"):
        (tmp_path / name).mkdir()
    plugin = tmp_path / "plugin"
    plugin.write_bytes(b"\x7fELF plugin" * 1000)
    plugin.chmod(0o751)
    return tmp_path


def chosen(folder: Path, *more: str) -> Cni:
    words = [
        "--node-name=n",
        f"--cni-bin-dir={folder}/bin",
        f"--cni-conf-dir={folder}/conf",
        f"--cni-nv-ipam-bin-file={folder}/plugin",
        *more,
    ]
    return read(words).options.cni


def put(folder: Path, *more: str) -> None:
    options = chosen(folder, *more)
    install.install(options, install.find_plugin(options))


def test_the_plugin_is_copied_with_its_mode(folders: Path) -> None:
    (folders / "bin" / "nv-ipam").write_text("an older one")
    put(folders)
    target = folders / "bin" / "nv-ipam"
    assert target.read_bytes() == (folders / "plugin").read_bytes()
    assert target.stat().st_mode & 0o7777 == 0o751
    assert os.listdir(folders / "bin") == ["nv-ipam"]


def test_the_configuration_has_five_keys(folders: Path) -> None:
    put(folders, "--cni-daemon-socket=unix:///x", "--cni-daemon-call-timeout=7", "--cni-force-pool-name")
    assert json.loads((folders / "conf" / "nv-ipam.conf").read_text()) == {
        "daemonSocket": "unix:///x",
        "daemonCallTimeoutSeconds": 7,
        "logFile": "/var/log/nv-ipam-cni.log",
        "logLevel": "info",
        "forcePoolName": True,
    }
    assert os.listdir(folders / "conf") == ["nv-ipam.conf"]


def test_the_configuration_allows_paths_of_networks_only_on_demand(folders: Path) -> None:
    put(folders)
    assert "allowNetworkPaths" not in json.loads((folders / "conf" / "nv-ipam.conf").read_text())
    put(folders, "--cni-allow-network-paths")
    assert json.loads((folders / "conf" / "nv-ipam.conf").read_text())["allowNetworkPaths"] is True


def test_texts_in_the_configuration_are_quoted(folders: Path) -> None:
    put(folders, '--cni-log-level=a"b\\c')
    assert json.loads((folders / "conf" / "nv-ipam.conf").read_text())["logLevel"] == 'a"b\\c'


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_the_configuration_may_be_read_as_the_umask_allows(folders: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        put(folders)
    finally:
        os.umask(before)
    assert (folders / "conf" / "nv-ipam.conf").stat().st_mode & 0o777 == mode


def test_what_is_not_wanted_is_not_put(folders: Path) -> None:
    put(folders, "--cni-skip-nv-ipam-binary-copy", "--cni-skip-nv-ipam-config-creation")
    assert not os.listdir(folders / "bin")
    assert not os.listdir(folders / "conf")


def test_a_failed_copy_leaves_nothing_behind(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folders / "bin" / "nv-ipam").write_text("the old one")

    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(errors.Invalid, match="No space left"):
        put(folders)
    assert os.listdir(folders / "bin") == ["nv-ipam"]
    assert (folders / "bin" / "nv-ipam").read_text() == "the old one"


def test_a_folder_that_cannot_be_written_is_said(folders: Path) -> None:
    (folders / "bin" / "nv-ipam").mkdir()
    with pytest.raises(errors.Invalid, match="cannot install"):
        put(folders)
    assert os.listdir(folders / "bin") == ["nv-ipam"]


def test_without_the_default_plugin_the_one_beside_the_program_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = tmp_path / "nv-ipam"
    beside.write_text("plugin")
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "ipam-node")])
    monkeypatch.setattr(install, "DEFAULT_PLUGIN", str(tmp_path / "none"))
    assert install.find_plugin(Cni(cni_nv_ipam_bin_file=str(tmp_path / "none"))) == beside
    assert install.find_plugin(Cni(cni_nv_ipam_bin_file=str(tmp_path / "other"))) is None


def test_a_running_plugin_can_be_replaced(folders: Path) -> None:
    shutil.copy("/bin/sleep", folders / "plugin")
    put(folders)
    running = subprocess.Popen([str(folders / "bin" / "nv-ipam"), "60"])
    try:
        put(folders)
    finally:
        running.kill()
        running.wait()
