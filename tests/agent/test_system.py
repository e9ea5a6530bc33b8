"""What an agent says of its machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from bedplate.agent.apply import Effects
from bedplate.agent.files import Root
from bedplate.agent.packages.folder import Folder
from bedplate.agent.packages.native import APT, DNF, ZYPPER, Native
from bedplate.agent.state import State
from bedplate.agent.system import MARKERS, look, of_release

from .machines import Services


def _effects(folder: Path, packages: object) -> Effects:
    (folder / "etc").mkdir(exist_ok=True)
    return Effects(Root(str(folder)), State(str(folder / "state")), Services(), packages)  # type: ignore[arg-type]


def test_a_machine_tells_its_distribution_its_size_and_how_packages_come(tmp_path: Path) -> None:
    effects = _effects(tmp_path, Native(APT))
    (tmp_path / "etc/os-release").write_text('NAME="Debian"\nVERSION_ID="12"\nID=debian\n')
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       16000000 kB\nMemFree: 1 kB\n")
    system = look(effects, is_machine=True, meminfo=str(meminfo))
    assert system is not None
    assert (system.id, system.version, system.packages) == ("debian", "12", "apt")
    assert (system.memory, system.reboot) == (16000000 * 1024, False)
    assert system.cores > 0


@pytest.mark.parametrize("marker", [MARKERS[0], MARKERS[2]])
def test_a_marker_says_that_the_machine_has_to_reboot(tmp_path: Path, marker: str) -> None:
    effects = _effects(tmp_path, Native(DNF))
    (tmp_path / "run").mkdir()
    (tmp_path / marker.lstrip("/")).touch()
    system = look(effects, is_machine=True)
    assert system is not None and system.reboot and system.packages == "yum"


def test_what_cannot_be_read_is_left_empty_and_a_sandbox_says_nothing(tmp_path: Path) -> None:
    effects = _effects(tmp_path, Folder("/packages", Root(str(tmp_path)), str(tmp_path / "lists")))
    assert look(effects) is None
    system = look(effects, is_machine=True, meminfo=str(tmp_path / "none"))
    assert system is not None
    assert (system.id, system.version, system.memory, system.packages) == ("", "", 0, "folder")
    assert Native(ZYPPER).family == "zypper"


def test_links_that_lead_nowhere_do_not_keep_a_report_back(tmp_path: Path) -> None:
    effects = _effects(tmp_path, Native(APT))
    (tmp_path / "run").symlink_to("/run")
    (tmp_path / "etc").rmdir()
    (tmp_path / "etc").symlink_to("/etc")
    system = look(effects, is_machine=True)
    assert system is not None and system.id == "" and not system.reboot


def test_values_without_their_form_are_left_out() -> None:
    assert of_release("ID='sles'\nVERSION_ID=15.6\n") == {"ID": "sles", "VERSION_ID": "15.6"}
    assert of_release("ID=Bad Name\nVERSION_ID=\n") == {}
