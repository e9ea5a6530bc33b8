"""Set-up does what it can, names what it left out in one line, and does nothing twice."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
from tests import programs

ROOT = Path(__file__).resolve().parents[2]
PIP_OFFLINE = """WARNING: Retrying after connection broken by 'NewConnectionError: Temporary failure in name resolution'
ERROR: Could not find a version that satisfies the requirement aiohttp==3.14.5 (from versions: none)
ERROR: No matching distribution found for aiohttp==3.14.5
"""
GO_OFFLINE = """   0.1s  building kubectl v1.35.4 (1/1)
bedplate: could not fetch k8s.io/kubernetes:
\t"Error": "dial tcp: lookup proxy: network is unreachable"
  next: is the Go module proxy reachable?
"""


class Commands:
    """Stands for the commands of the machine: remembers them, and answers as told."""

    def __init__(self, answers: dict[str, tuple[bool, str]]) -> None:
        self.ran: list[str] = []
        self._answers = answers

    def __call__(self, *command: object, **_options: object) -> tuple[bool, str]:
        line = " ".join(str(part) for part in command)
        self.ran.append(line)
        return next((answer for piece, answer in self._answers.items() if piece in line), (True, ""))


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """tools/setup.py for a checkout in a folder of the test's own."""
    spec = importlib.util.spec_from_file_location("bedplate_setup", ROOT / "tools/setup.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "build").mkdir()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    places = {"VENV": ".venv", "PYTHON": ".venv/bin/python", "STAMP": ".venv/stamp", "BUILD": "build"}
    for name, place in (places | {"NO_KUBECTL": "build/no-kubectl"}).items():
        monkeypatch.setattr(module, name, tmp_path / place)
    return module


def play(setup: ModuleType, monkeypatch: pytest.MonkeyPatch, **answers: tuple[bool, str]) -> Commands:
    commands = Commands({piece.replace("_", " "): answer for piece, answer in answers.items()})
    monkeypatch.setattr(setup, "run", commands)
    return commands


def test_a_virtual_environment_that_fits_is_left_alone(setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = play(setup, monkeypatch)
    setup.PYTHON.touch()
    setup.make_venv()
    assert any("--require-hashes" in line for line in commands.ran)
    commands.ran.clear()
    setup.make_venv()
    assert commands.ran == []


def test_a_checkout_in_a_folder_with_an_umlaut_works_in_every_locale(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = setup.VENV / "lib/python3.11/site-packages/bedplate.pth"
    file.parent.mkdir(parents=True)
    file.write_text("/home/größe/src\n/usr/lib/other\n", encoding="utf-8")
    play(setup, monkeypatch)
    assert setup.install_pins() == ""
    code, other = file.read_text(encoding="ascii").splitlines()
    paths: list[str] = []
    monkeypatch.setattr("sys.path", paths)
    exec(code)
    assert ([os.fsencode(path) for path in paths], other) == (["/home/größe/src".encode()], "/usr/lib/other")


def test_a_moved_checkout_gets_a_new_environment(setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = play(setup, monkeypatch)
    setup.PYTHON.touch()
    setup.STAMP.write_text(f"elsewhere\n{setup.pins()}\n")
    setup.make_venv()
    assert "-m venv --clear" in commands.ran[0]


def test_another_python_does_not_cost_a_working_environment(setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = play(setup, monkeypatch)
    setup.PYTHON.touch()
    setup.STAMP.write_text(f"{setup.VENV}\n{setup.pins()}\n")
    monkeypatch.setattr(setup.sys, "executable", "another-python")
    setup.make_venv()
    assert commands.ran == []


def test_a_new_environment_without_a_network_is_no_environment(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(setup, monkeypatch, **{"--require-hashes": (False, PIP_OFFLINE)})
    setup.PYTHON.touch()
    setup.STAMP.write_text(f"elsewhere\n{setup.pins()}\n")
    with pytest.raises(SystemExit, match="could not be installed"):
        setup.make_venv()


def test_changed_pins_without_a_network_leave_what_there_was(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play(setup, monkeypatch, **{"--require-hashes": (False, PIP_OFFLINE)})
    setup.PYTHON.touch()
    setup.STAMP.write_text(f"{setup.VENV}\nother pins\n")
    setup.make_venv()
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
    assert "no network?" in line


def test_a_first_install_without_a_network_fails_with_one_line(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(setup, monkeypatch, **{"--require-hashes": (False, PIP_OFFLINE)})
    setup.PYTHON.touch()
    with pytest.raises(SystemExit) as stopped:
        setup.make_venv()
    assert "no network?" in str(stopped.value)
    assert "\n" not in str(stopped.value)


@pytest.mark.parametrize(
    "output",
    [
        "The virtual environment was not created successfully because ensurepip is not available.",
        "/usr/bin/python3: No module named venv",
    ],
)
def test_a_python_without_venv_is_told_which_package_brings_it(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    play(setup, monkeypatch, **{"-m venv": (False, output)})
    with pytest.raises(SystemExit, match="apt-get install python3-venv"):
        setup.make_venv()


def test_make_up_tries_once_to_get_kubectl_and_says_so_afterwards(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = play(setup, monkeypatch, binaries_get=(False, GO_OFFLINE))
    monkeypatch.setattr(setup.shutil, "which", lambda _name, path=None: None)
    setup.get_kubectl()
    setup.get_kubectl()
    first, second = capsys.readouterr().err.splitlines()
    assert first == "setup: left out: kubectl 1.35 (no network? could not fetch k8s.io/kubernetes)"
    assert second.startswith("setup: left out: kubectl (none here")
    assert len(commands.ran) == 1


def test_a_kubectl_of_the_cache_stands_beside_our_programs(setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    play(setup, monkeypatch, binaries_get=(True, "   0.1s  building kubectl v1.35.4 (1/1)\n/cache/bin/kubectl\n"))
    monkeypatch.setattr(setup.shutil, "which", lambda _name, path=None: None)
    link = setup.VENV / "bin" / "kubectl"
    link.symlink_to("/a/cache/that/is/gone/kubectl")
    setup.get_kubectl()
    assert str(link.readlink()) == "/cache/bin/kubectl"
    assert not setup.NO_KUBECTL.exists()


def test_nothing_is_built_where_a_kubectl_is_found(setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = play(setup, monkeypatch)
    monkeypatch.setattr(setup.shutil, "which", lambda _name, path=None: "kubectl")
    setup.get_kubectl()
    assert commands.ran == []


def test_without_root_the_missing_packages_are_named_and_left_out(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = play(setup, monkeypatch)
    monkeypatch.setattr(setup, "is_there", lambda probe: probe not in ("containerd", "nft"))
    monkeypatch.setattr(setup.os, "geteuid", lambda: 1000)
    setup.install_packages()
    assert capsys.readouterr().err.startswith("setup: left out: containerd, nftables (Debian packages need root")
    assert commands.ran == []


def test_as_root_the_packages_are_named_before_they_are_installed(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = play(setup, monkeypatch)
    monkeypatch.setattr(setup, "is_there", lambda probe: probe != "containerd")
    monkeypatch.setattr(setup.os, "geteuid", lambda: 0)
    monkeypatch.setattr(setup.shutil, "which", lambda _name, path=None: "apt-get")
    setup.install_packages()
    assert "setup: installing Debian packages: containerd" in capsys.readouterr().err
    assert commands.ran == ["apt-get install --yes --quiet --no-install-recommends containerd"]


@pytest.mark.external
def test_make_lab_without_root_ends_before_anything_is_built(tmp_path: Path) -> None:
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    command = [str(programs.on_path("make")), "-C", str(ROOT), "lab", "PYTHON=/no/such/python"]
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ, timeout=60)
    assert done.returncode != 0
    assert "a lab needs root" in done.stderr and "no/such/python" not in done.stderr
