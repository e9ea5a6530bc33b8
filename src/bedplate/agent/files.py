"""Files below a root folder: read, written, removed, so that nobody ever sees half of one.

In: absolute paths as the node has them (`/etc/nginx/nginx.conf`), contents, modes, owners. Out: the same files below
`root`, which is `/` on a machine and a folder of its own in a sandbox. A file is written beside its place and renamed
over it once it is on the disk. Links in the folders of a path are followed as the machine would follow them, but never
out of the root; a link in place of the file is replaced, not written through. Owners are set by root alone.

    FileProblem    a file could not be read or written; the text names the path and says what to do
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import stat
from collections import deque
from collections.abc import Iterator
from typing import Literal, NamedTuple

from bedplate.core import errors

__all__ = ["FileProblem", "Kind", "Present", "Root", "Written"]

_LINKS = 40
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_RDONLY
_LARGEST = 64 << 20

Kind = Literal["absent", "file", "link"]


class FileProblem(errors.Terminal):
    """A file could not be read or written."""


class Present(NamedTuple):
    """What is at a path. A link is known by its target."""

    kind: Kind
    content: bytes = b""
    mode: int = 0
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    target: str = ""

    @property
    def is_there(self) -> bool:
        return self.kind != "absent"


class Written(NamedTuple):
    """Who may do what with a file, as the head says it: names or numbers."""

    mode: int = 0o644
    owner: str = "root"
    group: str = "root"


class Root:
    """All file work of the agent; `folder` is `/` or a sandbox. `is_privileged`: owners can be set."""

    def __init__(self, folder: str = "/", *, is_privileged: bool | None = None) -> None:
        self.folder = os.path.abspath(folder)
        self.is_privileged = os.geteuid() == 0 if is_privileged is None else is_privileged

    @property
    def is_machine(self) -> bool:
        """Whether this is the machine itself, not a sandbox."""
        return self.folder == "/"

    def place(self, path: str) -> str:
        """Where a path is for this process, links in its folders resolved below the root."""
        parts, name = self._resolved(path)
        return os.path.join(self.folder, *parts, name)

    # Reading

    def read(self, path: str, *, follow: bool = False) -> Present:
        """What is at a path; with `follow` a link in place of the file is followed. Raises `FileProblem`."""
        with _told(path, "read"):
            try:
                folder, name = self._open(self._resolved(path, follow=follow))
            except FileNotFoundError:
                return Present("absent")
            try:
                return _present(folder, name, path)
            finally:
                os.close(folder)

    def stat(self, path: str) -> os.stat_result | None:
        """Size, times and owner of what is at a path, a link itself; None when nothing is."""
        with _told(path, "read"):
            try:
                folder, name = self._open(self._resolved(path))
            except FileNotFoundError:
                return None
            try:
                return os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                return None
            finally:
                os.close(folder)

    def missing_folders(self, path: str) -> tuple[str, ...]:
        """The folders that a file at this path needs and that are not there, outermost first."""
        parts, _ = self._resolved(path)
        missing = []
        for count in range(1, len(parts) + 1):
            place = os.path.join(self.folder, *parts[:count])
            if not os.path.lexists(place):
                missing.append("/" + "/".join(parts[:count]))
        return tuple(missing)

    # Writing

    def write(
        self, path: str, content: bytes, written: Written, *, folder_mode: int | None = None, follow: bool = False
    ) -> None:
        """Put a whole file in place. Folders are made with `folder_mode`; without it they must exist."""
        with self._new(path, content, written, folder_mode, follow) as (folder, name):
            os.rename(_temporary(name), name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)

    @contextlib.contextmanager
    def trial(self, path: str, content: bytes, written: Written, *, folder_mode: int | None = None) -> Iterator[str]:
        """The place of a file with the new content, beside the one it would replace; gone when the block ends."""
        with self._new(path, content, written, folder_mode, False) as (_, name):
            yield os.path.join(self.folder, *self._resolved(path)[0], _temporary(name))

    @contextlib.contextmanager
    def _new(
        self, path: str, content: bytes, written: Written, folder_mode: int | None, follow: bool
    ) -> Iterator[tuple[int, str]]:
        """The new content, whole and on the disk, under its temporary name, which is gone when the block ends."""
        owner, group = self._ids(path, written)
        with _told(path, "write"):
            resolved = self._resolved(path, follow=follow)
            if folder_mode is not None:
                self._make(resolved[0], folder_mode)
            folder, name = self._open(resolved)
            try:
                _refuse_folder(folder, name)
                self._put(folder, _temporary(name), content, written.mode, owner, group)
                yield folder, name
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(_temporary(name), dir_fd=folder)
                os.close(folder)

    def _put(self, folder: int, name: str, content: bytes, mode: int, owner: int, group: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(name, flags, 0o600, dir_fd=folder)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(handle, view) :]
            if self.is_privileged:
                os.fchown(handle, owner, group)
            os.fchmod(handle, mode)
            os.fsync(handle)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
            raise
        finally:
            os.close(handle)

    def put_back(self, path: str, present: Present) -> None:
        """Make a path what it was: bytes, mode, owner and time, or the link it was."""
        with _told(path, "restore"):
            folder, name = self._open(self._resolved(path))
            try:
                new = _temporary(name)
                if present.kind == "link":
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(new, dir_fd=folder)
                    os.symlink(present.target, new, dir_fd=folder)
                    if self.is_privileged:
                        os.chown(new, present.uid, present.gid, dir_fd=folder, follow_symlinks=False)
                else:
                    self._put(folder, new, present.content, present.mode, present.uid, present.gid)
                times = (present.mtime_ns, present.mtime_ns)
                os.utime(new, ns=times, dir_fd=folder, follow_symlinks=False)
                os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
                os.fsync(folder)
            finally:
                os.close(folder)

    def remove(self, path: str) -> None:
        """Take a file away; nothing happens where there is none."""
        with _told(path, "remove"):
            try:
                folder, name = self._open(self._resolved(path))
            except FileNotFoundError:
                return
            try:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)
                    os.fsync(folder)
            finally:
                os.close(folder)

    def clear_trial(self, path: str) -> None:
        """Take away what an interrupted write left beside a path."""
        with contextlib.suppress(FileProblem):
            folder, _, name = path.rpartition("/")
            self.remove(f"{folder}/{_temporary(name)}")

    def remove_folders(self, folders: tuple[str, ...]) -> None:
        """Take away folders that were made for a file, innermost first, as long as they are empty."""
        for path in reversed(folders):
            with _told(path, "remove"):
                try:
                    os.rmdir(self.place(path))
                except FileNotFoundError:
                    continue
                except OSError as err:
                    if err.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EBUSY):
                        return
                    raise

    # Inside

    def _resolved(self, path: str, *, follow: bool = False) -> tuple[list[str], str]:
        """The folders below the root that a path leads through, without links, and its last part.

        Links are followed as if the root were `/`, so that none leads out of it.
        """
        words = [word for word in path.split("/") if word not in ("", ".")]
        if not path.startswith("/") or not words or words[-1] == ".." or "\0" in path:
            raise FileProblem(f"{path!r} is not the absolute path of a file")
        done: list[str] = []
        left = deque(words if follow else words[:-1])
        links = 0
        while left:
            word = left.popleft()
            if word in ("", "."):
                continue
            if word == "..":
                del done[-1:]
                continue
            target = self._target([*done, word])
            if target is None:
                done.append(word)
                continue
            links += 1
            if links > _LINKS:
                raise FileProblem(f"{path}: too many levels of symbolic links")
            if target.startswith("/"):
                done.clear()
            left.extendleft(reversed(target.split("/")))
        if follow:
            if not done:
                raise FileProblem(f"{path} is a link to the root folder", hint="remove the link")
            return done[:-1], done[-1]
        return done, words[-1]

    def _target(self, parts: list[str]) -> str | None:
        place = os.path.join(self.folder, *parts)
        try:
            return os.readlink(place)
        except OSError as err:
            if err.errno in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
                return None
            raise

    def _open(self, resolved: tuple[list[str], str]) -> tuple[int, str]:
        """The folder of a file as a descriptor: each part is opened without following a link, whoever put one there."""
        parts, name = resolved
        handle = os.open(self.folder, _FOLDER)
        for part in parts:
            try:
                inner = os.open(part, _FOLDER, dir_fd=handle)
            finally:
                os.close(handle)
            handle = inner
        return handle, name

    def _make(self, parts: list[str], mode: int) -> None:
        handle = os.open(self.folder, _FOLDER)
        try:
            for part in parts:
                try:
                    os.mkdir(part, mode, dir_fd=handle)
                except FileExistsError:
                    is_new = False
                else:
                    is_new = True
                    os.fsync(handle)
                inner = os.open(part, _FOLDER, dir_fd=handle)
                os.close(handle)
                handle = inner
                if is_new:
                    # The process's umask is not the site's wish.
                    os.fchmod(handle, mode)
        finally:
            os.close(handle)

    def _ids(self, path: str, written: Written) -> tuple[int, int]:
        if not self.is_privileged:
            return -1, -1
        return self.user_id(written.owner, path), self.group_id(written.group, path)

    def user_id(self, name: str, path: str = "") -> int:
        """The number of a user of this machine, or of the sandbox where that has users of its own."""
        if name.isdecimal():
            return int(name)
        number = self._listed("/etc/passwd", name)
        try:
            return pwd.getpwnam(name).pw_uid if number is None else number
        except KeyError:
            raise FileProblem(
                f"{path}: the user {name} does not exist" if path else f"the user {name} does not exist",
                hint="create it, or install the package that does",
            ) from None

    def group_id(self, name: str, path: str = "") -> int:
        """The number of a group, found as users are."""
        if name.isdecimal():
            return int(name)
        number = self._listed("/etc/group", name)
        try:
            return grp.getgrnam(name).gr_gid if number is None else number
        except KeyError:
            raise FileProblem(
                f"{path}: the group {name} does not exist" if path else f"the group {name} does not exist",
                hint="create it, or install the package that does",
            ) from None

    def _listed(self, table: str, name: str) -> int | None:
        if self.is_machine:
            return None
        for line in self.read(table, follow=True).content.decode(errors="replace").splitlines():
            words = line.split(":")
            if words[0] == name and len(words) > 2 and words[2].isdecimal():
                return int(words[2])
        return None


def _temporary(name: str) -> str:
    """The name of a file until it is whole: no program takes it for one of its own."""
    return f".{os.fsdecode(os.fsencode(name)[:200])}.bedplate-new"


def _present(folder: int, name: str, path: str) -> Present:
    try:
        about = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return Present("absent")
    facts = (stat.S_IMODE(about.st_mode), about.st_uid, about.st_gid, about.st_mtime_ns)
    if stat.S_ISLNK(about.st_mode):
        return Present("link", b"", *facts, os.readlink(name, dir_fd=folder))
    if not stat.S_ISREG(about.st_mode):
        raise FileProblem(f"{path} is not a regular file", hint="move it away, or let the head leave it alone")
    if about.st_size > _LARGEST:
        raise FileProblem(f"{path} is larger than {_LARGEST >> 20} MiB", hint="move it away")
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    with open(handle, "rb") as stream:
        return Present("file", stream.read(), *facts)


def _refuse_folder(folder: int, name: str) -> None:
    """A rename would refuse it, too, but only after all the work."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))


_REMEDIES = {
    errno.ENOSPC: "free space on that file system",
    errno.EDQUOT: "raise the quota, or free space",
    errno.EROFS: "mount the file system for writing",
    errno.EACCES: "run the agent as root",
    errno.EPERM: "run the agent as root; is the file immutable (lsattr)?",
    errno.EISDIR: "a folder is there: move it away",
    errno.ENOTDIR: "a file or a link is where a folder should be: move it away",
    errno.ELOOP: "a link is where a folder should be: move it away",
    errno.ENOENT: "create its folder, or set Create Directory",
}


@contextlib.contextmanager
def _told(path: str, verb: str) -> Iterator[None]:
    """What the system says about a path, in words, with a remedy where there is one."""
    try:
        yield
    except OSError as err:
        why = os.strerror(err.errno).lower() if err.errno else str(err)
        hint = _REMEDIES.get(err.errno or 0, "")
        raise FileProblem(f"cannot {verb} {path}: {why}", hint=hint) from err
