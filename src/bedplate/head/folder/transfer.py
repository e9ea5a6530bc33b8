"""The records of a head in a store: moving them from a folder into an etcd, and out of and into backups.

In: stores. Out: all records of a head but the one that names the active head, as of one revision of the store; an etcd
that holds what a folder held. What a record says is known to `head` alone.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.core.logging import get_logger
from bedplate.head import records
from bedplate.head.election import ACTIVE
from bedplate.head.folder import pki
from bedplate.head.folder.datafolder import SECRETS_KEY, Folder
from bedplate.head.sittings import LOGINS
from bedplate.store.interface import CompareFailed, Delete, Entry, Op, Put, Store
from bedplate.store.sqlite import SqliteStore
from bedplate.store.sqlite.file import InUse

__all__ = ["SITE", "Site", "claim", "digest_of_key", "entries", "fill", "own_records", "require_own"]

ROOT: Final = "/head/"
SITE: Final = "/head/site"
_LOG = get_logger("head.store")
_PAGE = 500
_BATCH_OPS = 60
_BATCH_BYTES = 512 * 1024
_WAIT_S = 1.0


class Site(msgspec.Struct, frozen=True):
    """Whose store it is: the fingerprints of the site's authority and of its secrets' key, and who filled it."""

    authority: str
    key: str
    filled_by: str

    @classmethod
    def of(cls, folder: Folder, name: str) -> Site:
        """The site of a folder, whose head node has that name. Raises `Invalid`."""
        try:
            authority, key = folder.file("ca.crt").read_bytes(), folder.file(SECRETS_KEY).read_bytes()
        except OSError as err:
            hint = "restore it from a backup or from another head node"
            raise errors.Invalid(f"{err.filename} cannot be read: {err.strerror}", hint=hint) from err
        return cls(pki.fingerprint(authority), digest_of_key(key), name)


def digest_of_key(key: bytes) -> str:
    """What tells one site's secrets from another's, and says nothing about the key."""
    return hashlib.sha256(b"key of a head's secrets:" + key.strip()).hexdigest()


async def require_own(store: Store, own: Site) -> None:
    """Raise `Invalid` unless an etcd holds the tree of this site."""
    entry = await store.get(SITE)
    if entry is None:
        raise errors.Invalid(
            "the etcd contains no tree of a head", hint="check its address and --etcd-prefix in head.yaml"
        )
    _check(entry, own)


async def entries(store: Store) -> AsyncIterator[Entry]:
    """All records of a head, in the order of their keys, as of one revision of the store; not those of the store."""
    at, after, more = await store.revision(), "", True
    while more:
        page = await store.list(ROOT, revision=at, limit=_PAGE, after=after)
        for entry in own_records(page.entries):
            yield entry
        after, more = page.entries[-1].key if page.entries else "", page.more


def own_records(entries: Iterable[Entry]) -> list[Entry]:
    """Without those that belong to a store: which head is active in it, whose it is, who is signed in to its page."""
    return [entry for entry in entries if entry.key not in (ACTIVE, SITE) and not entry.key.startswith(LOGINS)]


async def fill(store: Store, content: AsyncIterator[Entry], fence: str = "") -> int:
    """Write records into a store that has none of them; how many. Raises `CompareFailed` once the fence is there."""
    guard: list[Op] = [Delete(fence, expect=0)] if fence else []
    batch, size, count = list(guard), 0, 0
    async for entry in content:
        batch.append(Put(entry.key, entry.value))
        size += len(entry.value)
        count += 1
        if len(batch) >= _BATCH_OPS or size >= _BATCH_BYTES:
            await store.commit(batch)
            batch, size = list(guard), 0
    await store.commit(batch)
    return count


async def claim(store: Store, own: Site, database: Path | None, on_ours: Callable[[], None], clock: Clock) -> None:
    """Make sure that an etcd holds the tree of this site: fill it from the folder's database if it is empty.

    `on_ours` is called once it is known that the etcd is not another's, before anything is written to it. Without a
    database this waits until another head has filled the etcd. Raises `Invalid` for another site's etcd.
    """
    is_told = False
    while True:
        entry = await store.get(SITE)
        if entry is not None:
            _check(entry, own)
            on_ours()
            return
        if database is not None and await _fill_from(store, own, database, on_ours):
            continue
        if not is_told:
            _LOG.warning(
                "head.waiting_for_tree",
                why="the etcd contains no tree, and this folder has none to initialise it with",
                next="serve the head whose folder has the tree, or restore a backup and serve that",
            )
            is_told = True
        await clock.sleep(_WAIT_S)


async def _fill_from(store: Store, own: Site, database: Path, on_ours: Callable[[], None]) -> bool:
    """Whether the etcd is filled now; not while another process has the database open, to do the same."""
    if not await asyncio.to_thread(database.exists):  # another process has put it aside, as the etcd is filled
        return False
    try:
        async with SqliteStore(database, must_exist=True) as source:
            if not await _has_tree(source, store):
                return False
            on_ours()
            count = await fill(store, _lasting(source), fence=SITE)
            await store.commit([Put(SITE, msgspec.json.encode(own), expect=0)])
    except (CompareFailed, InUse) as err:
        _LOG.info("head.store_filled_by_another", why=str(err))
        return isinstance(err, CompareFailed)
    _LOG.info("head.store_filled", records=count, source=str(database))
    return True


async def _lasting(source: Store) -> AsyncIterator[Entry]:
    """What cannot be made again. The present objects are left to the next commit: they follow from the log."""
    async for entry in entries(source):
        if not entry.key.startswith(records.OBJECTS) and entry.key != records.LATEST:
            yield entry


async def _has_tree(source: Store, store: Store) -> bool:
    """Whether there is something to fill the etcd with.

    A filling that was broken off is gone on with, but not on top of what another site's head began: that is `Invalid`.
    """
    first = records.revision_key(1)
    own, there = await source.get(first), await store.get(first)
    if own is not None and there is not None and there.value != own.value:
        raise errors.Invalid("the etcd contains a part of another site's tree", hint="give another --etcd-prefix")
    return own is not None


def _check(entry: Entry, own: Site) -> None:
    try:
        site = msgspec.json.decode(entry.value, type=Site)
    except msgspec.DecodeError as err:
        raise errors.Invalid(f"the record {entry.key} cannot be read: {err}", hint="restore the newest backup") from err
    # The authority may have been replaced since this folder was served; the key of the secrets never is.
    if site.key != own.key and site.authority != own.authority:
        raise errors.Invalid(
            f"the etcd contains the tree of another site, initialised by its head node {site.filled_by}",
            hint="give another --etcd-prefix, or make this folder with bedplate head init --join DIR",
        )
    if site.key != own.key:
        raise errors.Invalid(
            "the secrets in the etcd are encrypted with another key than the one in this folder",
            hint=f"copy secrets.key from the folder of {site.filled_by}, or of another head node of the site",
        )
