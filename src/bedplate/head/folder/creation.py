"""Making the data folder of a head.

In: a folder that is not there or empty, a name, a number of nodes; or the folder of a head of the same site. Out: the
folder with an authority, certificates, keys, an administrator's credentials and, for a new site, its first tree as
revision 1. What is there already is never touched. All of it is made beside its place and moved there at the end,
`head.yaml` last: a folder with that file is whole.
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock
from bedplate.head import site
from bedplate.head.access import USER, USERS, Tokens
from bedplate.head.entities import SCHEMA
from bedplate.head.folder import pki
from bedplate.head.folder.datafolder import DATABASE, SECRETS_KEY, SETTINGS, Folder, Settings
from bedplate.head.site import create_site
from bedplate.head.vault import Vault
from bedplate.serving.files import write_private
from bedplate.store.interface import Store
from bedplate.store.sqlite import SqliteStore

__all__ = ["SHARED", "Workshop", "check_empty", "join", "make", "settle", "write_admin"]

SHARED = ("ca.crt", "ca.key", SECRETS_KEY, "admin.crt", "admin.key", "admin.token")
"""What all heads of a site have in common."""
_KEY_BYTES = 32


def check_empty(data: Path) -> None:
    """Raise `AlreadyExists` unless the folder is missing or empty."""
    if (data / SETTINGS).exists():
        raise errors.AlreadyExists(
            f"{data} is already the data folder of a head; nothing was changed",
            hint=f"bedplate head serve --data {data} serves it",
        )
    try:
        names = sorted(path.name for path in data.iterdir() if path.name != "lost+found")
    except FileNotFoundError:
        return
    except OSError as err:
        raise errors.Invalid(f"{data} cannot be used: {err.strerror}", hint="choose another folder") from err
    if names:
        raise errors.AlreadyExists(
            f"{data} is not empty ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''}); nothing was changed",
            hint="choose another folder, or move its content away",
        )


async def make(data: Path, *, name: str, nodes: int, hosts: Sequence[str] = (), clock: Clock | None = None) -> Folder:
    """The folder of a new site's first head."""
    clock = clock or SystemClock()
    edits = site.first_tree(name, nodes)
    check_empty(data)
    with Workshop(data) as folder:
        authority = pki.Authority.make(name, clock.now())
        authority.pair.write(folder, "ca")
        _write_server(folder, authority, name, hosts, clock)
        key = base64.urlsafe_b64encode(os.urandom(_KEY_BYTES))
        write_private(folder / SECRETS_KEY, key)
        async with SqliteStore(folder / DATABASE, clock=clock) as store:
            await create_site(
                store, SCHEMA, Vault(key), edits, author=site.ADMIN, message=f"first tree of {name}", clock=clock
            )
            await write_admin(folder, store, clock)
        return settle(folder, data, Settings(name))


async def join(data: Path, other: Path, *, name: str, hosts: Sequence[str] = (), clock: Clock | None = None) -> Folder:
    """The folder of one more head of the site that another folder belongs to. The tree is not in it: both heads need
    one etcd, which the other folder's head fills when it is served with it."""
    clock = clock or SystemClock()
    source = Folder.find(other)
    known = source.settings
    if name == known.name:
        raise errors.Invalid(f"{other} belongs to the head node {name} already", hint="choose another --name")
    site.first_tree(name, 0)
    check_empty(data)
    with Workshop(data) as folder:
        for file in SHARED:
            try:
                write_private(
                    folder / file, source.file(file).read_bytes(), mode=0o644 if file.endswith(".crt") else 0o600
                )
            except OSError as err:
                raise errors.Invalid(
                    f"{source.file(file)} cannot be read: {err.strerror}", hint="run this as the owner of that folder"
                ) from err
        _write_server(folder, pki.Authority.load(folder), name, hosts, clock)
        return settle(folder, data, Settings(name, etcd=known.etcd))


async def write_admin(folder: Path, store: Store, clock: Clock) -> None:
    """The administrator's certificate and token, where they are missing."""
    name = site.ADMIN
    if not _is_there(folder / f"{name}.key"):
        pki.Authority.load(folder).client(name, USERS, clock.now()).write(folder, name)
    if not _is_there(folder / f"{name}.token"):
        _, text = await Tokens(store, clock=clock).create(USER, name, "of the data folder", by="bedplate head")
        write_private(folder / f"{name}.token", f"{text}\n".encode())


def _write_server(folder: Path, authority: pki.Authority, name: str, hosts: Sequence[str], clock: Clock) -> None:
    authority.server(pki.host_names(name, *hosts), name, clock.now()).write(folder, "server")


def settle(folder: Path, data: Path, settings: Settings) -> Folder:
    """Move what was made to its place, `head.yaml` last."""
    Folder(folder).remember(settings)
    for file in sorted(folder.iterdir(), key=lambda path: path.name == SETTINGS):
        # The locks of stores are of no use to the next process.
        if not file.name.endswith(".lock"):
            os.rename(file, data / file.name)
    return Folder(data)


class Workshop:
    """A folder inside of the data folder, which is made if it is missing; both go if making fails."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._folder = data / f".making.{os.getpid()}"
        self._is_new = not data.exists()

    def __enter__(self) -> Path:
        try:
            self._data.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._folder.mkdir(mode=0o700)
        except OSError as err:
            raise errors.Invalid(
                f"{self._data} cannot be created: {err.strerror}", hint="choose another folder"
            ) from err
        return self._folder

    def __exit__(self, kind: object, *rest: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        if kind is not None and self._is_new and not any(self._data.iterdir()):
            self._data.rmdir()


def _is_there(path: Path) -> bool:
    return path.exists()
