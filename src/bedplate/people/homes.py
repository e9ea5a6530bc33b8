"""Files in a person's home folder, written by root although the person may have put anything there.

In: an account. Out: the bytes of `~/.kube/config`, or the file replaced as a whole with mode 0600 and the person as its
owner. The person controls every name below the home folder and may change it at any moment, so nothing there is
followed: each step is opened below the one before it (`O_NOFOLLOW`), folders and files must be real ones that belong
to the person, and a new file takes its place by renaming. The path to the home folder itself is the administrator's.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator

from bedplate.core import errors
from bedplate.people.accounts import Account

__all__ = ["KUBECONFIG", "read", "replace"]

FOLDER, FILE = ".kube", "config"
KUBECONFIG = f"{FOLDER}/{FILE}"
MAX_BYTES = 16 << 20
_HINTS = {
    errno.EACCES: "run this as root, or as {user}",
    errno.EPERM: "run this as root, or as {user}",
    errno.ENOSPC: "free disk space",
    errno.EDQUOT: "free disk space of {user}, or raise the quota",
    errno.EROFS: "mount the file system writable, or run this where it is",
}
"""What to do after an error of the system."""
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def read(account: Account) -> bytes | None:
    """The file as it is; None where there is none. Raises `Invalid` unless it is a plain file that the person owns."""
    with _home(account) as home:
        try:
            folder = _open_folder(home, account)
        except FileNotFoundError:
            return None
        try:
            return _read(folder, account)
        finally:
            os.close(folder)


def replace(account: Account, content: bytes | None) -> None:
    """Write the file, or remove it where `content` is None."""
    with _home(account) as home:
        try:
            folder = _open_folder(home, account)
        except FileNotFoundError:
            if content is None:
                return
            folder = _make_folder(home, account)
        try:
            if content is None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(FILE, dir_fd=folder)
            else:
                _write(folder, account, content)
            os.fsync(folder)
        except OSError as err:
            raise _refused(account, err) from err
        finally:
            os.close(folder)


@contextlib.contextmanager
def _home(account: Account) -> Iterator[int]:
    try:
        home = os.open(account.home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError as err:
        raise errors.Invalid(
            f"the home folder {account.home} of {account.name} does not exist", hint=f"create it for {account.name}"
        ) from err
    except OSError as err:
        raise errors.Invalid(
            f"the home folder {account.home} of {account.name} cannot be opened: {err.strerror}"
        ) from err
    try:
        about = os.fstat(home)
        if about.st_uid != account.uid:
            raise errors.Invalid(
                f"the home folder {account.home} belongs to UID {about.st_uid}, not to {account.name}"
                f" (UID {account.uid})",
                hint=f"chown {account.name} {account.home}, or correct the account",
            )
        yield home
    finally:
        os.close(home)


def _open_folder(home: int, account: Account) -> int:
    """The folder `.kube`. Raises `FileNotFoundError`, and `Invalid` for anything but the person's own folder."""
    try:
        folder = os.open(FOLDER, _FOLDER_FLAGS, dir_fd=home)
    except FileNotFoundError:
        raise
    except OSError as err:
        raise errors.Invalid(
            f"{account.home / FOLDER} is not a folder (a link is not followed): {err.strerror}",
            hint=f"let {account.name} move it away",
        ) from err
    about = os.fstat(folder)
    if about.st_uid != account.uid:
        os.close(folder)
        raise errors.Invalid(
            f"{account.home / FOLDER} belongs to UID {about.st_uid}, not to {account.name}",
            hint=f"chown {account.name} {account.home / FOLDER}",
        )
    return folder


def _make_folder(home: int, account: Account) -> int:
    try:
        os.mkdir(FOLDER, 0o700, dir_fd=home)
        folder = os.open(FOLDER, _FOLDER_FLAGS, dir_fd=home)
        try:
            # Between the two lines above its owner may have put another one there: only an empty one of ours is given.
            about = os.fstat(folder)
            if about.st_uid not in (os.geteuid(), account.uid) or (about.st_uid != account.uid and os.listdir(folder)):
                raise PermissionError(1, "another process changes it at this moment")
            _give(folder, account)
        except OSError:
            os.close(folder)
            raise
    except OSError as err:
        raise _refused(account, err) from err
    return folder


def _read(folder: int, account: Account) -> bytes | None:
    path = account.home / KUBECONFIG
    try:
        # O_NONBLOCK: a pipe in its place must not stop us.
        file = os.open(FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise errors.Invalid(
            f"{path} cannot be read (a link is not followed): {err.strerror}",
            hint=f"let {account.name} move it away; its entries would be lost otherwise",
        ) from err
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != account.uid or about.st_nlink > 1:
            raise errors.Invalid(
                f"{path} must be a file of {account.name} alone, without a second name",
                hint=f"let {account.name} move it away",
            )
        with os.fdopen(file, "rb", closefd=False) as opened:
            content = opened.read(MAX_BYTES + 1)
    finally:
        os.close(file)
    if len(content) > MAX_BYTES:
        raise errors.Invalid(f"{path} is larger than {MAX_BYTES >> 20} MiB", hint=f"let {account.name} move it away")
    return content


def _write(folder: int, account: Account, content: bytes) -> None:
    temporary = f".{FILE}.{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=folder), "wb") as file:
            file.write(content)
            file.flush()
            _give(file.fileno(), account)
            os.fchmod(file.fileno(), 0o600)
            os.fsync(file.fileno())
        os.replace(temporary, FILE, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _give(descriptor: int, account: Account) -> None:
    """Make the person the owner, unless they write it themselves."""
    if os.geteuid() != account.uid:
        os.fchown(descriptor, account.uid, account.gid)


def _refused(account: Account, err: OSError) -> errors.Invalid:
    path = account.home / KUBECONFIG
    hint = _HINTS.get(err.errno or 0, f"look at {path.parent}")
    return errors.Invalid(f"cannot write {path}: {err.strerror}", hint=hint.format(user=account.name))
