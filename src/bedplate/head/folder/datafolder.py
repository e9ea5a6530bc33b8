"""The data folder of a head: which files it has, who holds it, and its head opened in this process.

In: a path. Out: the folder's settings, keys and credentials; its lock; the address of the daemon that serves it; a
`Head` over its own store, for a shell without a daemon. Folders are made by `creation` and served by `head/daemon`.

A daemon on SQLite holds the lock alone. Daemons on an etcd share it, as they keep nothing but settings here; a shell
then cannot have it, and is sent to one of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from bedplate.core import errors, folders
from bedplate.core.clock import Clock
from bedplate.serving.files import write_private
from bedplate.store.open import StoreOptions

if TYPE_CHECKING:
    from bedplate.head.health import Health
    from bedplate.head.notices import Notices
    from bedplate.head.service import Head
    from bedplate.head.vault import Vault
    from bedplate.store.interface import Store

__all__ = ["Etcd", "Folder", "Opened", "Settings", "check_safe", "loose", "open_head", "require_tree"]

SETTINGS = "head.yaml"
LOCK = "lock"
DATABASE = "head.db"
RETIRED = "before-etcd.db"
SECRETS_KEY = "secrets.key"
ETCD_FILES = {"cafile": "etcd-ca.crt", "certfile": "etcd.crt", "keyfile": "etcd.key"}
"""What a head that joined a site over the network has of the files that its etcd asks for, by their settings."""
_PRIVATE = ("ca.key", "ca-next.key", "server.key", "admin.key", "admin.token", "etcd.key", SECRETS_KEY)
"""What only the owner of a folder may read."""


class Etcd(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the etcd is that holds the tree. Files are absolute, or in the data folder."""

    endpoints: tuple[str, ...] = ()
    cafile: str = ""
    certfile: str = ""
    keyfile: str = ""
    prefix: str = "/bedplate"


class Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    """`head.yaml`. `url` is the address of the last daemon; `etcd` says where the tree is if not in the folder."""

    name: str
    port: int = 0
    url: str = ""
    etcd: Etcd | None = None


class Holder(NamedTuple):
    """Who holds the lock: its process, and its address if it serves. A shell serves other shells on a socket."""

    pid: str
    url: str

    @property
    def is_shell(self) -> bool:
        return self.url.startswith("http+unix:")

    @property
    def words(self) -> str:
        """The process, for people."""
        return f"a shell (process {self.pid})" if self.is_shell else f"process {self.pid or '(not known)'}"


class Opened(NamedTuple):
    """A head in this process, over the folder's own store."""

    folder: Folder
    store: Store
    vault: Vault
    head: Head

    async def health(self) -> Health:
        """What nodes told the last daemon."""
        from bedplate.head.health import Health

        async with Health(self.store) as health:
            return health

    async def notices(self) -> Notices:
        """What the last daemon reported."""
        from bedplate.head.notices import Notices

        async with Notices(self.store) as notices:
            return notices


def check_safe(data: Path) -> None:
    """Refuse, as root, a folder that others may write. One that belongs to the service's user is that user's to open:
    what root would write there the service could not read."""
    folders.check_trusted(data, "run this as the user that the folder belongs to (sudo -u USER ...)")


class Folder:
    """A folder that `bedplate head init` made."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def find(cls, path: Path) -> Folder:
        """Raises `NotFound` where there is no head's folder, `Invalid` for root where others may write it."""
        check_safe(path)
        if not (path / SETTINGS).is_file():
            within = path / "head"
            is_within = (within / SETTINGS).is_file()
            hint = (
                f"there is one in it: --data {within}" if is_within else f"bedplate head init --data {path} creates one"
            )
            raise errors.NotFound(f"{path} is not a data folder of a head", hint=hint)
        return cls(path)

    def file(self, name: str) -> Path:
        """`ca.crt`, `admin.crt`, `admin.key`, `admin.token`, ..."""
        return self.path / name

    @property
    def settings(self) -> Settings:
        """`head.yaml`, read now. Raises `Invalid`."""
        import yaml

        from bedplate.core import yamls

        try:
            return msgspec.convert(yamls.load(self.file(SETTINGS).read_text(), strict=True), Settings)
        except (OSError, yaml.YAMLError, msgspec.ValidationError) as err:
            raise errors.Invalid(
                f"{self.file(SETTINGS)} cannot be read: {err}", hint="it needs at least the line  name: <head node>"
            ) from err

    def remember(self, settings: Settings) -> None:
        """Write `head.yaml`."""
        import yaml

        text = yaml.safe_dump(msgspec.to_builtins(settings), sort_keys=False)
        write_private(self.file(SETTINGS), text.encode(), mode=0o644)

    def retire_database(self) -> None:
        """Put the folder's own tree aside, under another name, now that an etcd holds it: it must not be used again."""
        for suffix in ("", "-wal", "-shm"):
            # A link refuses to replace what an earlier one has put aside.
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                os.link(self.file(DATABASE + suffix), self.file(RETIRED + suffix))
                self.file(DATABASE + suffix).unlink()

    def admin_token(self) -> str:
        """The administrator's bearer token; empty where the file is gone."""
        try:
            return self.file("admin.token").read_text().strip()
        except OSError:
            return ""

    def loose_files(self) -> list[str]:
        """A sentence for each private file of the folder that others may read or write."""
        return loose(self.file(name) for name in _PRIVATE)

    def vault(self) -> Vault:
        """What seals the tree's secrets. Raises `Invalid`: a missing key must not be replaced by another one."""
        from bedplate.head.vault import Vault

        try:
            return Vault(self.file(SECRETS_KEY).read_bytes())
        except OSError as err:
            raise errors.Invalid(
                f"{self.file(SECRETS_KEY)} cannot be read: {err.strerror}",
                hint="restore the key from a backup or from another head node: secrets cannot be read without it",
            ) from err

    def store_options(self) -> StoreOptions:
        """Where the tree of this folder is kept."""
        return self.options_of(self.settings.etcd)

    def options_of(self, etcd: Etcd | None) -> StoreOptions:
        """The store in an etcd, or the folder's own."""
        if etcd is None:
            return StoreOptions(location=f"sqlite:{self.file(DATABASE)}", must_exist=True)
        return StoreOptions(
            location="etcd",
            etcd_endpoints=etcd.endpoints,
            etcd_cafile=self.etcd_file(etcd.cafile),
            etcd_certfile=self.etcd_file(etcd.certfile),
            etcd_keyfile=self.etcd_file(etcd.keyfile),
            etcd_prefix=etcd.prefix,
        )

    def etcd_file(self, name: str) -> str:
        """Where a file of the etcd's settings is; empty for none."""
        return str(self.path / name) if name else ""

    # Who holds it

    def daemon_url(self) -> str:
        """The address of the daemon, or the shell, that serves the folder now; empty when none does."""
        holder = self.holder()
        return holder.url if holder is not None else ""

    def holder(self) -> Holder | None:
        """Who holds the folder now; of several daemons, one that lives."""
        try:
            descriptor = self._open_lock(os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return (_said(descriptor) or [Holder("", "")])[0]
        finally:
            os.close(descriptor)
        return None

    @contextlib.contextmanager
    def lock(self, *, is_shared: bool = False) -> Iterator[None]:
        """Hold the folder; the kernel lets go of it should the process die. Raises `Unavailable` when it is held."""
        descriptor = self._open_lock(os.O_RDWR | os.O_CREAT)
        try:
            try:
                fcntl.flock(descriptor, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _held(self.path, (_said(descriptor) or [Holder("", "")])[0]) from None
            _say(descriptor, "")
            yield
        finally:
            os.close(descriptor)

    def _open_lock(self, flags: int) -> int:
        """Raises `Invalid` with a sentence for a folder that this user may not use, or that nobody can write."""
        try:
            return os.open(self.file(LOCK), flags | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            raise
        except OSError as err:
            verb = "written" if flags & os.O_RDWR else "read"
            raise errors.Invalid(
                f"{self.path} cannot be {verb}: {err.strerror}",
                hint="use it as its owner (sudo -u USER ...), on a file system that is writable",
            ) from err

    def announce(self, url: str) -> None:
        """Say where the holder serves, once it knows; to be called under the lock."""
        descriptor = os.open(self.file(LOCK), os.O_RDWR | os.O_CLOEXEC)
        try:
            _say(descriptor, url)
        finally:
            os.close(descriptor)


def loose(files: Iterable[Path]) -> list[str]:
    """A sentence for each of the files that others than its owner may read or write."""
    sentences = []
    for file in files:
        with contextlib.suppress(OSError):
            mode = file.stat().st_mode & 0o777
            if mode & 0o077:
                sentences.append(f"{file} is open to other users (mode {mode:04o}); chmod 600 {file} closes it")
    return sentences


def _said(descriptor: int) -> list[Holder]:
    """What living processes have written into the lock, the newest first: a process and its address in each line."""
    text = os.pread(descriptor, 65536, 0).decode("utf-8", "replace")
    holders = [Holder(pid, url) for pid, _, url in (line.partition(" ") for line in text.splitlines())]
    return [holder for holder in reversed(holders) if _is_alive(holder.pid)]


def _say(descriptor: int, url: str) -> None:
    """Add this process to the lock, and take out those that are gone."""
    # The lock is what counts; what stands in it only helps others to find the daemon.
    with contextlib.suppress(OSError):
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        others = [holder for holder in reversed(_said(descriptor)) if holder.pid != str(os.getpid())]
        lines = [f"{holder.pid} {holder.url}\n" for holder in (*others, Holder(str(os.getpid()), url))]
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, "".join(lines).encode(), 0)
        fcntl.lockf(descriptor, fcntl.LOCK_UN)


def _is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except PermissionError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return True


def _held(path: Path, holder: Holder) -> errors.Unavailable:
    is_daemon = holder.url and not holder.is_shell
    where = f", which serves it at {holder.url}" if is_daemon else ""
    free = "leave it" if holder.is_shell else "wait until it has exited, or stop it"
    hint = f"use --url {holder.url}" if is_daemon else free
    return errors.Unavailable(f"{path} is in use by {holder.words}{where}", hint=hint)


@contextlib.asynccontextmanager
async def open_head(data: Path, *, clock: Clock | None = None) -> AsyncIterator[Opened]:
    """The folder's head, in this process, under its lock.

    Raises `NotFound` (no such folder), `Unavailable` (a daemon or a shell holds it), `Invalid` (its tree is in an etcd:
    only a daemon may be asked).
    """
    from bedplate.head.entities import SCHEMA
    from bedplate.head.service import Head
    from bedplate.store.open import open_store

    folder = Folder.find(data)
    settings = folder.settings
    if settings.etcd is not None:
        raise errors.Invalid(
            f"the tree of {data} is kept in an etcd, which several head nodes write to",
            hint=f"give the URL of a running head with --url{' ' + settings.url if settings.url else ''}",
        )
    with folder.lock():
        vault = folder.vault()
        async with (
            open_store(folder.store_options(), clock=clock) as store,
            Head(store, SCHEMA, vault, clock=clock) as head,
        ):
            require_tree(head, data)
            yield Opened(folder, store, vault, head)


def require_tree(head: Head, data: Path) -> None:
    """Raise `Invalid` for a store without a single revision: only init and restore may make a site."""
    if head.revision == 0:
        raise errors.Invalid(
            f"the store of {data} is empty: it holds no revision", hint="restore the newest backup into another folder"
        )
