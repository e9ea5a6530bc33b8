"""The kubeconfig in a home folder whose owner may have put anything there."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from bedplate.core import errors
from bedplate.people import homes
from bedplate.people.accounts import Account


@pytest.fixture
def account(tmp_path: Path) -> Account:
    """An account of whoever runs the tests."""
    home = tmp_path / "home"
    home.mkdir()
    return Account("john", os.getuid(), (os.getgid(),), home)


def test_the_file_is_the_users_alone(account: Account) -> None:
    homes.replace(account, b"one")
    path = account.home / ".kube/config"
    about = path.stat()
    assert (stat.S_IMODE(about.st_mode), about.st_uid) == (0o600, account.uid)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert homes.read(account) == b"one"
    assert [entry.name for entry in path.parent.iterdir()] == ["config"]


def test_a_file_with_a_wider_mode_becomes_private(account: Account) -> None:
    (account.home / ".kube").mkdir()
    (account.home / ".kube/config").write_text("old")
    (account.home / ".kube/config").chmod(0o644)
    homes.replace(account, b"new")
    assert stat.S_IMODE((account.home / ".kube/config").stat().st_mode) == 0o600


def test_nothing_is_there_at_first_and_nothing_after_removal(account: Account) -> None:
    assert homes.read(account) is None
    homes.replace(account, None)
    homes.replace(account, b"one")
    homes.replace(account, None)
    assert homes.read(account) is None


def test_a_linked_folder_is_not_followed(account: Account, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (account.home / ".kube").symlink_to(tmp_path / "elsewhere")
    for attempt in (lambda: homes.read(account), lambda: homes.replace(account, b"x")):
        with pytest.raises(errors.Invalid, match="link is not followed"):
            attempt()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_linked_file_is_neither_read_nor_written_through(account: Account, tmp_path: Path) -> None:
    target = tmp_path / "shadow"
    target.write_text("secret")
    (account.home / ".kube").mkdir()
    (account.home / ".kube/config").symlink_to(target)
    with pytest.raises(errors.Invalid, match="link is not followed"):
        homes.read(account)
    # A link that is put there after the file was read is replaced, not followed.
    homes.replace(account, b"x")
    assert target.read_text() == "secret"
    assert not (account.home / ".kube/config").is_symlink()


def test_a_second_name_of_another_file_is_refused(account: Account, tmp_path: Path) -> None:
    (tmp_path / "shadow").write_text("secret")
    (account.home / ".kube").mkdir()
    os.link(tmp_path / "shadow", account.home / ".kube/config")
    with pytest.raises(errors.Invalid, match="second name"):
        homes.read(account)


def test_a_pipe_does_not_stop_the_tool(account: Account) -> None:
    (account.home / ".kube").mkdir()
    os.mkfifo(account.home / ".kube/config")
    with pytest.raises(errors.Invalid, match="must be a file"):
        homes.read(account)


def test_a_folder_in_place_of_the_file_is_refused(account: Account) -> None:
    (account.home / ".kube/config").mkdir(parents=True)
    with pytest.raises(errors.Invalid):
        homes.read(account)


def test_an_absent_home_and_the_home_of_another_are_refused(account: Account) -> None:
    with pytest.raises(errors.Invalid, match="does not exist"):
        homes.read(Account("john", account.uid, account.gids, account.home / "absent"))
    with pytest.raises(errors.Invalid, match="belongs to UID"):
        homes.read(Account("john", account.uid + 1, account.gids, account.home))


def test_a_file_that_is_too_large_is_refused(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    homes.replace(account, b"x" * 100)
    monkeypatch.setattr(homes, "MAX_BYTES", 99)
    with pytest.raises(errors.Invalid, match="larger than"):
        homes.read(account)


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "free disk space"),
        (errno.EROFS, "mount the file system writable"),
        (errno.EACCES, "run this as root, or as john"),
        (errno.EIO, "look at"),
    ],
)
def test_a_file_that_cannot_be_written_says_what_to_do_and_leaves_the_old_one(
    account: Account, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    homes.replace(account, b"before")

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(errors.Invalid, match=os.strerror(number)) as caught:
        homes.replace(account, b"after")
    assert remedy in str(caught.value.hint)
    assert [path.name for path in (account.home / ".kube").iterdir()] == ["config"]
    assert homes.read(account) == b"before"
