"""Folders that root trusts, at every door that runs programs or reads keys from one."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from bedplate.apiserver import server
from bedplate.core import errors, folders
from bedplate.head.folder import creation
from bedplate.head.folder.datafolder import Folder
from bedplate.lab import binaries, state

ROOT = Path(__file__).parents[2]
OTHER = 65_534


class Stat:
    """What `lstat` says of a folder, with another owner or mode."""

    def __init__(self, about: os.stat_result, mode: int, uid: int, gid: int) -> None:
        self.st_mode = about.st_mode & ~0o7777 | mode
        self.st_uid, self.st_gid = uid, gid


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Make a folder as root sees it, although the test may not be root."""
    shown: dict[Path, tuple[int, int, int]] = {}
    lstat = Path.lstat

    def seen(path: Path) -> Stat:
        return Stat(lstat(path), *shown.get(path, (0o755, 0, 0)))

    def build(mode: int, uid: int = 0, gid: int = 0, name: str = "f") -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True, exist_ok=True)
        shown[folder] = (mode, uid, gid)
        return folder

    monkeypatch.setattr(Path, "lstat", seen)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return build


@pytest.mark.parametrize(
    ("mode", "uid", "gid"), [(0o777, 0, 0), (0o775, 0, OTHER), (0o755, OTHER, 0), (0o1777, 0, 0), (0o700, OTHER, OTHER)]
)
def test_root_refuses_a_folder_that_others_may_write(make: Callable[..., Path], mode: int, uid: int, gid: int) -> None:
    folder = make(mode, uid, gid)
    with pytest.raises(errors.Invalid, match="not safe to use as root") as refusal:
        folders.check_trusted(folder, "choose another")
    assert str(folder) in str(refusal.value) and refusal.value.hint == "choose another"


@pytest.mark.parametrize(("mode", "uid", "gid"), [(0o700, 0, 0), (0o755, 0, OTHER), (0o775, 0, 0)])
def test_root_takes_its_own_folders(make: Callable[..., Path], mode: int, uid: int, gid: int) -> None:
    folders.check_trusted(make(mode, uid, gid), "")


@pytest.mark.parametrize(("mode", "is_trusted"), [(0o1777, True), (0o777, False), (0o755, True)])
def test_the_folders_above_count(make: Callable[..., Path], mode: int, is_trusted: bool) -> None:
    above = make(mode, name="above")
    for folder in (make(0o755, name="above/f"), above / "new" / "one"):
        if is_trusted:
            folders.check_trusted(folder, "")
        else:
            with pytest.raises(errors.Invalid, match="above"):
                folders.check_trusted(folder, "")


def test_a_link_is_followed(make: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(make(0o777))
    with pytest.raises(errors.Invalid):
        folders.check_trusted(tmp_path / "link", "")


def test_another_user_is_not_held_to_it(make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(0o777)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    folders.check_trusted(folder, "")


async def test_every_door_refuses(make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(0o777)
    environ = {"BEDPLATE_CACHE": str(folder), "XDG_STATE_HOME": str(folder)}
    with pytest.raises(errors.Invalid, match="not safe"):
        binaries.cached("kubectl", environ=environ)
    with pytest.raises(errors.Invalid, match="not safe"):
        binaries.ensure(["kubectl"], environ=environ)
    with pytest.raises(errors.Invalid, match="not safe"):
        state.state_folder(environ)
    with pytest.raises(errors.Invalid, match="not safe"):
        async with server.ApiServer(server.Options(data=folder)):
            pass
    head = make(0o755, OTHER, name="head")
    (head / "head.yaml").write_text("name: h1\n")
    for attempt in (lambda: Folder.find(head), lambda: creation.check_empty(head)):
        with pytest.raises(errors.Invalid, match="not safe") as refusal:
            attempt()
        assert "sudo -u USER" in refusal.value.hint
    with pytest.raises(errors.Invalid, match="not safe"):
        await creation.make(folder, name="h1", nodes=1)


def crates() -> ModuleType:
    spec = importlib.util.spec_from_file_location("crates", ROOT / "tools" / "crates.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_native_parts_are_not_taken_from_a_folder_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = crates()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    tmp_path.chmod(0o777)
    with pytest.raises(tool.Left, match="others may write"):
        tool.check_trusted(tmp_path)
