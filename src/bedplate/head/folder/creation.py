"""Making the data folder of a head.

In: a folder that is not there or empty, a name, a number of nodes; or the folder of a head of the same site. Out: the
folder with an authority, certificates, keys, an administrator's credentials and, for a new site, its first tree as
revision 1. What is there already is never touched. All of it is made beside its place and moved there at the end,
`head.yaml` last: a folder with that file is whole.
"""

from __future__ import annotations

import asyncio
import base64
import fcntl
import http.client
import os
import re
import shutil
import ssl
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock
from bedplate.head import site
from bedplate.head.entities import SCHEMA
from bedplate.head.folder import administrator, pki
from bedplate.head.folder.datafolder import (
    DATABASE,
    ETCD_FILES,
    SECRETS_KEY,
    SETTINGS,
    Etcd,
    Folder,
    Settings,
    check_safe,
)
from bedplate.head.folder.sitekeys import SHARED
from bedplate.head.service import Head
from bedplate.head.site import create_site
from bedplate.head.tokens import Tokens
from bedplate.head.vault import Vault
from bedplate.serving.files import write_private
from bedplate.store.sqlite import SqliteStore

__all__ = ["Workshop", "check_empty", "join", "join_over_network", "make", "settle", "tidy"]

_KEY_BYTES = 32
_PATIENCE_S = 15.0
_LARGEST_AUTHORITY = 64 * 1024
_WORKSHOP = ".making."
_MOVING = "moving"
_JOINING = ".joining"


def check_empty(data: Path) -> None:
    """Raise `AlreadyExists` unless the folder is missing or empty, `Invalid` for root where others may write it."""
    check_safe(data)
    if (data / SETTINGS).exists():
        raise errors.AlreadyExists(
            f"{data} is already the data folder of a head; nothing was changed",
            hint=f"bedplate head serve --data {data} serves it",
        )
    try:
        names = sorted(path.name for path in data.iterdir() if path.name not in ("lost+found", _JOINING))
    except FileNotFoundError:
        return
    except OSError as err:
        raise errors.Invalid(f"{data} cannot be used: {err.strerror}", hint="choose another folder") from err
    names = sorted(set(names).difference(*map(_leftovers, _abandoned(data))))
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
        vault = Vault(key)
        async with SqliteStore(folder / DATABASE, clock=clock) as store:
            message = f"first tree of {name}"
            await create_site(store, SCHEMA, vault, edits, author=site.ADMIN, message=message, clock=clock)
            async with Head(store, SCHEMA, vault, clock=clock) as head:
                await administrator.provide(folder, head, Tokens(store, clock=clock), clock)
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
        return settle(folder, data, Settings(name, etcd=_seen_from_elsewhere(source, known.etcd)))


async def join_over_network(
    data: Path, url: str, token: str, *, name: str, hosts: Sequence[str] = (), clock: Clock | None = None
) -> Folder:
    """The folder of one more head of the site that a daemon serves, with a one-time token of that site.

    The token names the fingerprint of the site's authority, so that nothing is sent to anybody else. Who was killed, or
    did not get the answer, runs it again with the same token: the folder holds a proof of who has asked until it is
    whole. Raises `Denied`.
    """
    clock = clock or SystemClock()
    text, _, fingerprint = token.strip().rpartition(".")
    if not text or not re.fullmatch("[0-9a-f]{64}", fingerprint):
        raise errors.Invalid(
            "this is not a token for joining a site", hint=f"bedplate head token create {name} --join makes one there"
        )
    site.first_tree(name, 0)
    check_empty(data)
    with Workshop(data) as folder:
        # Whoever is in between can add an authority of their own to what is fetched: the named one alone is trusted.
        authority = pki.named(await asyncio.to_thread(_authority_of, url), fingerprint)
        if authority is None:
            raise errors.Denied(
                f"{url} presents another authority than the token names; nothing was sent to it",
                hint="check the URL, and that nobody is in between",
            )
        write_private(folder / "ca.crt", authority, mode=0o644)
        try:
            async with HeadClient(url, token=text, ca_file=str(folder / "ca.crt")) as client:
                answer = await client.join(name, _proof(data))
        except (errors.Denied, errors.Invalid, errors.NotFound, errors.Conflict):
            (data / _JOINING).unlink(missing_ok=True)  # refused: there is nothing to go on with
            raise
        for file, content in answer.files.items():
            if file not in (*SHARED, f"{pki.NEXT}.crt", f"{pki.NEXT}.key", *ETCD_FILES.values()):
                raise errors.Invalid(f"{url} sent an unknown file {file!r}", hint="does it run another version?")
            write_private(folder / file, content.encode(), mode=0o644 if file.endswith(".crt") else 0o600)
        _write_server(folder, pki.Authority.load(folder), name, hosts, clock)
        files = {setting: file for setting, file in ETCD_FILES.items() if file in answer.files}
        etcd = Etcd(tuple(answer.endpoints), prefix=answer.prefix, **files) if answer.endpoints else None
        joined = settle(folder, data, Settings(name, etcd=etcd))
    (data / _JOINING).unlink(missing_ok=True)
    return joined


def _proof(data: Path) -> str:
    """A number that nobody else has, kept in the folder: whoever asks with it again is the same one."""
    file = data / _JOINING
    if not file.is_file():
        write_private(file, os.urandom(_KEY_BYTES).hex().encode())
    return file.read_text().strip()


def _seen_from_elsewhere(folder: Folder, etcd: Etcd | None) -> Etcd | None:
    """An etcd's settings with the whole paths of the files that are in a folder."""
    if etcd is None:
        return None
    files = {setting: folder.etcd_file(getattr(etcd, setting)) for setting in ETCD_FILES}
    return Etcd(etcd.endpoints, prefix=etcd.prefix, **files)


def _authority_of(url: str) -> bytes:
    """The authority's certificate as a head gives it to anybody. It is believed only if its fingerprint is known."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    parts = urlsplit(url if "://" in url else f"https://{url}")
    if parts.scheme != "https" or not parts.hostname:
        raise errors.Invalid(f"{url} must be an https URL", hint="write https://HOST:PORT")
    connection = http.client.HTTPSConnection(parts.hostname, parts.port or 443, timeout=_PATIENCE_S, context=context)
    try:
        connection.request("GET", "/ca.crt")
        data = connection.getresponse().read(_LARGEST_AUTHORITY)
        pki.fingerprint(data)
        return data
    except (OSError, http.client.HTTPException, ValueError) as err:
        raise errors.Unavailable(f"{url} does not give its authority: {err}", hint="is a head running there?") from err
    finally:
        connection.close()


def _write_server(folder: Path, authority: pki.Authority, name: str, hosts: Sequence[str], clock: Clock) -> None:
    authority.server(pki.host_names(name, *hosts), name, clock.now()).write(folder, "server")


def settle(folder: Path, data: Path, settings: Settings) -> Folder:
    """Move what was made to its place, `head.yaml` last."""
    Folder(folder).remember(settings)
    names = [file.name for file in folder.iterdir() if not file.name.endswith(".lock")]
    write_private(folder / _MOVING, "\n".join(names).encode())
    for name in sorted(names, key=lambda name: name == SETTINGS):
        os.rename(folder / name, data / name)
    return Folder(data)


class Workshop:
    """A folder inside of the data folder, which is made if it is missing; both go if making fails.

    It is locked while it is in use, so that what a killed process left behind is known, and removed by the next one.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        self._folder = data / f"{_WORKSHOP}{os.getpid()}"
        self._is_new = not data.exists()
        self._descriptor = -1

    def __enter__(self) -> Path:
        try:
            self._data.mkdir(parents=True, exist_ok=True, mode=0o700)
            for leftover in _abandoned(self._data):
                for name in _leftovers(leftover) - {leftover.name}:
                    (self._data / name).unlink(missing_ok=True)
                shutil.rmtree(leftover)
            self._folder.mkdir(mode=0o700)
            self._descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as err:
            raise errors.Invalid(
                f"{self._data} cannot be created: {err.strerror}", hint="choose another folder"
            ) from err
        return self._folder

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is not None:
            for name in _leftovers(self._folder) - {self._folder.name}:
                (self._data / name).unlink(missing_ok=True)
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._descriptor)
        if kind is not None and self._is_new and not any(self._data.iterdir()):
            self._data.rmdir()


def tidy(data: Path) -> None:
    """Remove what processes that were killed at their very end have left beside a whole folder's files."""
    for workshop in _abandoned(data):
        shutil.rmtree(workshop, ignore_errors=True)
    (data / _JOINING).unlink(missing_ok=True)


def _abandoned(data: Path) -> list[Path]:
    """The workshops of processes that are gone: nobody holds their locks."""
    folders = []
    for folder in sorted(data.glob(f"{_WORKSHOP}*")):
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            folders.append(folder)
        except BlockingIOError:
            continue
        finally:
            os.close(descriptor)
    return folders


def _leftovers(workshop: Path) -> set[str]:
    """What belongs to a workshop in the data folder: itself, and what it has moved there so far.

    One that still has its `head.yaml` did not finish; all the others must not take anything with them.
    """
    try:
        is_unfinished = (workshop / SETTINGS).is_file()
        return {workshop.name, *((workshop / _MOVING).read_text().split("\n") if is_unfinished else ())}
    except OSError:
        return {workshop.name}
