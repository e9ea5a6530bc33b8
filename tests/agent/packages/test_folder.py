"""Packages from a folder: laid below the root, and taken away without a trace."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.agent.machines import Machine

from bedplate.agent.packages.folder import Folder


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "node")


@pytest.fixture
def folder(tmp_path: Path, machine: Machine) -> Folder:
    source = tmp_path / "packages"
    program = source / "app/opt/app/bin/run"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (source / "app/opt/app/current").symlink_to("bin")
    with tarfile.open(source / "other.tar.gz", "w:gz") as archive:
        archive.add(program, "usr/bin/other")
    return Folder(str(source), machine.root, str(tmp_path / "lists"))


async def test_trees_and_archives_are_installed_and_removed_without_a_trace(folder: Folder, machine: Machine) -> None:
    machine.put("/opt/theirs", "x")
    before = machine.tree()
    for name in ("app", "other"):
        assert await folder.install(name) is None
    assert await folder.installed(["app", "other", "none"]) == {"app", "other"}
    assert machine.at("/opt/app/current/run").stat().st_mode & 0o777 == 0o755
    assert machine.at("/usr/bin/other").exists()
    for name in ("app", "other", "none"):
        assert await folder.remove(name) is None
    assert machine.tree() == before
    assert await folder.installed(["app"]) == set()


async def test_folders_that_a_package_owns_are_made_and_go_with_all_that_is_in_them(
    folder: Folder, machine: Machine, tmp_path: Path
) -> None:
    (tmp_path / "packages/app.owns").write_text("/var/log/app\n/srv/theirs\n/\nnot/absolute\n")
    machine.put("/srv/theirs/kept", "x")
    before = machine.tree()
    assert await folder.install("app") is None
    machine.put("/var/log/app/today/error.log", "it was running")
    machine.put("/srv/theirs/new", "y")
    assert await folder.remove("app") is None
    machine.at("/srv/theirs/new").unlink()
    assert machine.tree() == before


async def test_a_package_that_is_not_there_is_named(folder: Folder) -> None:
    assert "there is no package none" in str(await folder.install("none"))
    assert "not the name of a package" in str(await folder.install("../app"))


async def test_files_of_others_are_not_written_over(folder: Folder, machine: Machine) -> None:
    machine.put("/opt/app/bin/run", "theirs")
    assert "would overwrite /opt/app/bin/run" in str(await folder.install("app"))
    assert machine.at("/opt/app/bin/run").read_text() == "theirs"


async def test_an_interrupted_installation_is_finished(
    folder: Folder, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = machine.tree()
    rename = os.rename

    def killed(source: Any, target: Any, **more: Any) -> None:
        if str(target).endswith("run"):
            raise KeyboardInterrupt
        rename(source, target, **more)

    monkeypatch.setattr(os, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        await folder.install("app")
    monkeypatch.undo()
    assert await folder.installed(["app"]) == set()
    assert await folder.install("app") is None
    assert await folder.remove("app") is None
    machine.root.clear_trial("/opt/app/bin/run")
    assert machine.tree() == before


@pytest.mark.parametrize("first", ["app", "engine"])
async def test_what_two_packages_bring_alike_goes_with_the_last_of_them(
    folder: Folder, machine: Machine, tmp_path: Path, first: str
) -> None:
    engine = tmp_path / "packages/engine/opt/app/bin"
    engine.mkdir(parents=True)
    (engine / "run").write_text("#!/bin/sh\n")
    (engine / "engine").write_text("x")
    before = machine.tree()
    for name in ("app", "engine"):
        assert await folder.install(name) is None
    assert await folder.remove(first) is None
    assert machine.at("/opt/app/bin/run").exists()
    assert machine.at("/opt/app/bin/engine").exists() == (first == "app")
    for name in ("app", "engine"):
        assert await folder.remove(name) is None
    assert machine.tree() == before


async def test_what_two_packages_bring_differently_is_refused(folder: Folder, tmp_path: Path) -> None:
    engine = tmp_path / "packages/engine/opt/app/bin"
    engine.mkdir(parents=True)
    (engine / "run").write_text("#!/bin/other\n")
    assert await folder.install("app") is None
    assert "would overwrite /opt/app/bin/run" in str(await folder.install("engine"))


async def test_another_version_replaces_its_files_and_leaves_what_the_program_wrote(
    folder: Folder, machine: Machine, tmp_path: Path
) -> None:
    before = machine.tree()
    later = tmp_path / "packages" / "app=2.0" / "opt/app/bin"
    later.mkdir(parents=True)
    (later / "run").write_text("#!/bin/sh\nexit 2\n")
    (later / "more").write_text("new")
    assert "is not installed" in (await folder.upgrade("app", "2.0") or "")
    assert await folder.install("app") is None
    was = machine.at("/opt/app/bin/run").read_text()
    assert await folder.upgrade("app", "2.0", only_fetch=True) is None
    assert machine.at("/opt/app/bin/run").read_text() == was
    assert "there is no package app=3.0" in (await folder.upgrade("app", "3.0", only_fetch=True) or "")
    for _ in range(2):
        assert await folder.upgrade("app", "2.0") is None
    assert machine.at("/opt/app/bin/run").read_text() != was
    assert await folder.install("app") is None, "it is installed"
    assert machine.at("/opt/app/bin/run").read_text() != was
    assert await folder.remove("app") is None
    assert machine.tree() == before


async def test_another_version_does_not_overwrite_what_is_of_no_package(
    folder: Folder, machine: Machine, tmp_path: Path
) -> None:
    later = tmp_path / "packages" / "app=2.0" / "etc"
    later.mkdir(parents=True)
    (later / "theirs").write_text("new")
    machine.put("/etc/theirs", "x")
    assert await folder.install("app") is None
    assert "would overwrite /etc/theirs" in (await folder.upgrade("app", "2.0") or "")
    assert machine.at("/etc/theirs").read_text() == "x"
