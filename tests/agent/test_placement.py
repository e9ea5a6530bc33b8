"""Where the agent's versions are: the link changes whole, a set-up may be repeated, a removal leaves nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bedplate.agent.files import Root
from bedplate.agent.placement import Placement, own_home
from bedplate.core import errors


def version(root: Path, name: str) -> Path:
    home = root / "opt/bedplate-agent" / name
    (home / "share").mkdir(parents=True)
    (home / "share/bedplate-agent.service").write_text("[Service]\n")
    (home / "share/agent.toml").write_text("# settings\n")
    (home / "bin").mkdir()
    (home / "bin/bedplate-agent").write_text("#!/bin/sh\n")
    return home


@pytest.fixture
def placement(tmp_path: Path) -> Placement:
    return Placement(Root(str(tmp_path), is_privileged=False))


def test_a_set_up_puts_name_unit_and_settings_in_place_and_may_be_repeated(
    placement: Placement, tmp_path: Path
) -> None:
    assert (placement.current, placement.versions()) == ("", ())
    home = version(tmp_path, "0.8.0")
    assert placement.set_up(str(home)) == "0.8.0"
    program = tmp_path / "usr/bin/bedplate-agent"
    assert program.resolve() == home / "bin/bedplate-agent"
    (tmp_path / "etc/bedplate/agent.toml").write_text("node = 'mine'\n")
    assert placement.set_up(str(version(tmp_path, "0.9.0"))) == "0.9.0"
    assert (tmp_path / "etc/bedplate/agent.toml").read_text() == "node = 'mine'\n"
    assert program.resolve() == tmp_path / "opt/bedplate-agent/0.9.0/bin/bedplate-agent"
    assert (placement.current, placement.versions()) == ("0.9.0", ["0.8.0", "0.9.0"])
    placement.prune("0.9.0")
    assert placement.versions() == ["0.9.0"]


def test_a_version_elsewhere_is_not_set_up(placement: Placement, tmp_path: Path) -> None:
    home = version(tmp_path / "elsewhere", "0.8.0")
    with pytest.raises(errors.Invalid, match="is not a version below"):
        placement.set_up(str(home))
    assert not (tmp_path / "usr").exists()


def test_a_switch_that_was_interrupted_is_done_again(placement: Placement, tmp_path: Path) -> None:
    placement.set_up(str(version(tmp_path, "0.8.0")))
    version(tmp_path, "0.9.0")
    os.symlink("0.9.0", tmp_path / "opt/bedplate-agent/.current.new")
    assert placement.current == "0.8.0"
    placement.switch("0.9.0")
    assert placement.current == "0.9.0"
    assert placement.versions() == ["0.8.0", "0.9.0"]


def test_a_removal_keeps_settings_and_state_and_a_purge_leaves_nothing(placement: Placement, tmp_path: Path) -> None:
    placement.set_up(str(version(tmp_path, "0.8.0")))
    (tmp_path / "var/lib/bedplate-agent").mkdir(parents=True)
    (tmp_path / "etc/bedplate/agent.pem").write_text("pair")
    placement.remove(purge=False)
    files = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert files == ["etc/bedplate/agent.pem", "etc/bedplate/agent.toml"]
    placement.remove(purge=True)
    assert not [path for path in tmp_path.rglob("*") if not path.is_dir()]
    assert not (tmp_path / "etc/bedplate").exists() and not (tmp_path / "var/lib/bedplate-agent").exists()


def test_what_a_package_brought_is_left_to_the_package_manager(placement: Placement, tmp_path: Path) -> None:
    (tmp_path / "var/lib/dpkg/info").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/info/bedplate-agent.list").touch()
    placement.set_up(str(version(tmp_path, "0.8.0")))
    assert placement.current == "0.8.0" and not (tmp_path / "etc/systemd").exists()
    with pytest.raises(errors.Invalid, match="installed as a package"):
        placement.remove(purge=False)


def test_an_agent_that_does_not_run_from_its_archive_has_no_home() -> None:
    assert own_home() is None
