"""Files below a root: whole or not at all, and never outside."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from bedplate.agent.files import FileProblem, Present, Root, Written


@pytest.fixture
def root(tmp_path: Path) -> Root:
    (tmp_path / "node").mkdir()
    return Root(str(tmp_path / "node"), is_privileged=False)


def below(root: Root, path: str) -> Path:
    return Path(root.folder) / path.lstrip("/")


def test_a_file_is_written_with_its_mode_and_folders(root: Root) -> None:
    root.write("/etc/a/b/conf", b"one", Written(0o640), folder_mode=0o750)
    assert below(root, "/etc/a/b/conf").read_bytes() == b"one"
    assert below(root, "/etc/a/b/conf").stat().st_mode & 0o7777 == 0o640
    assert [below(root, path).stat().st_mode & 0o7777 for path in ("/etc", "/etc/a", "/etc/a/b")] == [0o750] * 3
    assert os.listdir(below(root, "/etc/a/b")) == ["conf"]


def test_the_umask_does_not_change_what_the_head_says(root: Root) -> None:
    before = os.umask(0o077)
    try:
        root.write("/a/conf", b"", Written(0o666), folder_mode=0o777)
    finally:
        os.umask(before)
    assert below(root, "/a/conf").stat().st_mode & 0o777 == 0o666
    assert below(root, "/a").stat().st_mode & 0o777 == 0o777


def test_a_file_belongs_to_whom_the_head_says_before_it_has_its_name(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are those of the node, not of the machine that the test runs on."""
    given: list[tuple[str, int, int]] = []

    def fchown(handle: int, uid: int, gid: int) -> None:
        given.append((os.readlink(f"/proc/self/fd/{handle}"), uid, gid))

    monkeypatch.setattr(os, "fchown", fchown)
    root.write("/etc/passwd", b"app:x:812:813::/:/bin/false\n", Written(), folder_mode=0o755)
    root.write("/etc/group", b"app:x:814:\n", Written())
    assert given == [], "who is not root sets no owner"
    owning = Root(root.folder, is_privileged=True)
    owning.write("/etc/conf", b"x", Written(0o640, "app", "app"))
    assert given == [(str(below(root, "/etc/.conf.bedplate-new")), 812, 814)]


def test_what_is_written_is_on_the_disk_before_it_has_its_name(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a loss of power leaves an empty file in place of the former one."""
    did: list[str] = []
    fsync, rename = os.fsync, os.rename

    def synced(handle: int) -> None:
        did.append(f"sync {Path(os.readlink(f'/proc/self/fd/{handle}')).name}")
        fsync(handle)

    def renamed(source: str, target: str, **more: Any) -> None:
        did.append(f"rename {source}")
        rename(source, target, **more)

    below(root, "/etc").mkdir()
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    root.write("/etc/conf", b"x", Written())
    root.put_back("/etc/conf", Present("file", b"y", 0o644))
    assert did == ["sync .conf.bedplate-new", "rename .conf.bedplate-new", "sync etc"] * 2


def test_without_a_mode_the_folder_must_be_there(root: Root) -> None:
    with pytest.raises(FileProblem, match="cannot write /none/conf: no such file") as failure:
        root.write("/none/conf", b"", Written())
    assert "folder" in failure.value.hint
    assert not below(root, "/none").exists()


@pytest.mark.parametrize("path", ["etc/conf", "/", "", "/etc/..", "/a\0b"])
def test_what_is_not_the_path_of_a_file_is_refused(root: Root, path: str) -> None:
    with pytest.raises(FileProblem, match="not the absolute path"):
        root.write(path, b"", Written(), folder_mode=0o755)


@pytest.mark.parametrize("target", ["/outside", "../../../outside", "/../../outside", "../node/../../outside"])
def test_a_link_in_a_folder_leads_nowhere_but_below_the_root(root: Root, tmp_path: Path, target: str) -> None:
    (tmp_path / "outside").mkdir()
    below(root, "/etc").symlink_to(target)
    root.write("/etc/conf", b"x", Written(), folder_mode=0o755)
    assert list((tmp_path / "outside").iterdir()) == []
    assert root.read("/etc/conf").content == b"x"


def test_dots_do_not_lead_out_of_the_root(root: Root, tmp_path: Path) -> None:
    root.write("/../../x/../conf", b"x", Written(), folder_mode=0o755)
    assert below(root, "/conf").read_bytes() == b"x"
    assert not (tmp_path / "conf").exists()


def test_a_link_as_the_machine_has_it_is_followed(root: Root) -> None:
    below(root, "/usr/lib").mkdir(parents=True)
    below(root, "/lib").symlink_to("usr/lib")
    root.write("/lib/conf", b"x", Written())
    assert below(root, "/usr/lib/conf").read_bytes() == b"x"
    assert below(root, "/lib").is_symlink()


def test_an_absolute_link_starts_at_the_root(root: Root) -> None:
    below(root, "/a").mkdir()
    below(root, "/c").mkdir()
    below(root, "/a/b").symlink_to("/c")
    root.write("/a/b/conf", b"x", Written())
    assert below(root, "/c/conf").read_bytes() == b"x"


def test_links_that_go_in_a_circle_are_refused(root: Root) -> None:
    below(root, "/a").symlink_to("b")
    below(root, "/b").symlink_to("a")
    with pytest.raises(FileProblem, match="too many levels"):
        root.write("/a/conf", b"", Written(), folder_mode=0o755)


def test_a_link_to_the_root_folder_is_not_followed(root: Root) -> None:
    below(root, "/motd").symlink_to("/")
    with pytest.raises(FileProblem, match="/motd is a link to the root folder"):
        root.read("/motd", follow=True)


def test_a_link_in_place_of_the_file_is_replaced_not_written_through(root: Root) -> None:
    root.write("/other", b"other", Written())
    below(root, "/conf").symlink_to("other")
    root.write("/conf", b"new", Written())
    assert below(root, "/other").read_bytes() == b"other"
    assert not below(root, "/conf").is_symlink()


def test_a_link_that_appears_while_a_folder_is_opened_is_refused(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below(root, "/etc").mkdir()
    (tmp_path / "outside").mkdir()
    resolve = root._resolved

    def swapped(*args: Any, **more: Any) -> tuple[list[str], str]:
        resolved = resolve(*args, **more)
        below(root, "/etc").rmdir()
        below(root, "/etc").symlink_to(tmp_path / "outside")
        return resolved

    monkeypatch.setattr(root, "_resolved", swapped)
    with pytest.raises(FileProblem):
        root.write("/etc/conf", b"x", Written())
    assert list((tmp_path / "outside").iterdir()) == []


def test_item_218_a_full_disk_leaves_the_old_file_and_says_what_to_do(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.write("/conf", b"old", Written())

    def full(*args: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(FileProblem, match="no space left") as failure:
        root.write("/conf", b"new", Written())
    assert "free space" in failure.value.hint
    assert root.read("/conf").content == b"old"
    assert os.listdir(root.folder) == ["conf"]


def test_item_218_whoever_reads_while_a_file_is_written_finds_the_old_one_or_the_new_one(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = b"old\n" * 1000, b"new\n" * 2000
    root.write("/conf", old, Written())
    found = []

    def watched(real: Any) -> Any:
        def call(*args: Any, **given: Any) -> Any:
            found.append((Path(root.folder) / "conf").read_bytes())
            return real(*args, **given)

        return call

    with monkeypatch.context() as patch:
        for name in ("write", "fchown", "fchmod", "fsync", "rename", "unlink"):
            patch.setattr(os, name, watched(getattr(os, name)))
        root.write("/conf", new, Written())
    found.append((Path(root.folder) / "conf").read_bytes())
    assert len(found) > 4 and found[0] == old and found[-1] == new
    assert set(found) == {old, new}
    assert found == sorted(found, key=[old, new].index), "the old one is there until the new one is"


def test_a_write_that_is_cut_short_by_the_kernel_is_gone_on_with(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, bytes(data)[:3]))
    root.write("/conf", b"0123456789", Written())
    assert root.read("/conf").content == b"0123456789"


@pytest.mark.parametrize("name", ["a b", "ü" * 127, "-rf", "$(x)`y`", "q\"'", "line\nfeed", ".hidden", "x" * 255])
def test_a_file_may_have_any_name_that_the_machine_allows(root: Root, name: str) -> None:
    root.write(f"/etc/{name}", b"one", Written(), folder_mode=0o755)
    root.write(f"/etc/{name}", b"two", Written())
    assert os.listdir(os.path.join(root.folder, "etc")) == [name]
    assert root.read(f"/etc/{name}").content == b"two"
    root.remove(f"/etc/{name}")
    assert os.listdir(os.path.join(root.folder, "etc")) == []


def test_a_folder_in_place_of_a_file_is_named(root: Root) -> None:
    below(root, "/conf").mkdir()
    with pytest.raises(FileProblem, match="is a directory"):
        root.write("/conf", b"", Written())
    assert os.listdir(root.folder) == ["conf"]


def test_what_is_no_file_is_not_read(root: Root) -> None:
    os.mkfifo(below(root, "/conf"))
    with pytest.raises(FileProblem, match="not a regular file"):
        root.read("/conf")


def test_what_was_there_is_put_back_to_the_byte(root: Root) -> None:
    root.write("/conf", b"old\r\n\0", Written(0o604))
    os.utime(below(root, "/conf"), ns=(5, 12345678901234567))
    before = root.read("/conf")
    root.write("/conf", b"new", Written(0o600))
    root.put_back("/conf", before)
    assert root.read("/conf") == before


def test_a_link_is_put_back(root: Root) -> None:
    below(root, "/conf").symlink_to("elsewhere")
    before = root.read("/conf")
    root.write("/conf", b"new", Written(0o600))
    root.put_back("/conf", before)
    assert os.readlink(below(root, "/conf")) == "elsewhere"


def test_folders_are_taken_away_while_they_are_empty(root: Root) -> None:
    made = root.missing_folders("/a/b/c/conf")
    assert made == ("/a", "/a/b", "/a/b/c")
    root.write("/a/b/c/conf", b"", Written(), folder_mode=0o755)
    root.write("/a/other", b"", Written())
    root.remove("/a/b/c/conf")
    root.remove_folders(made)
    assert sorted(os.listdir(below(root, "/a"))) == ["other"]


def test_a_trial_stands_beside_the_file_and_goes(root: Root) -> None:
    root.write("/etc/conf", b"old", Written(), folder_mode=0o755)
    with root.trial("/etc/conf", b"new", Written()) as place:
        assert Path(place).read_bytes() == b"new"
        assert os.path.dirname(place) == str(below(root, "/etc"))
        assert os.path.basename(place).startswith(".")
        assert root.read("/etc/conf").content == b"old"
    assert os.listdir(below(root, "/etc")) == ["conf"]


def test_what_an_interrupted_write_left_is_cleared(root: Root) -> None:
    root.write("/conf", b"old", Written())
    below(root, "/.conf.bedplate-new").write_bytes(b"half")
    root.write("/conf", b"new", Written())
    below(root, "/.conf.bedplate-new").write_bytes(b"half")
    root.clear_trial("/conf")
    assert os.listdir(root.folder) == ["conf"]


def test_what_is_missing_is_absent(root: Root) -> None:
    assert root.read("/none/conf") == Present("absent")
    assert root.stat("/none/conf") is None
    root.remove("/none/conf")


def test_a_sandbox_has_users_of_its_own(root: Root) -> None:
    root.write("/etc/passwd", b"etcd:x:961:962::/:/bin/false\n", Written(), folder_mode=0o755)
    root.write("/etc/group", b"etcd:x:962:\n", Written())
    assert (root.user_id("etcd"), root.group_id("etcd"), root.user_id("77")) == (961, 962, 77)
    with pytest.raises(FileProblem, match="the user nobody-here does not exist"):
        root.user_id("nobody-here")
