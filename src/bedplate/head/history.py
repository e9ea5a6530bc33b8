"""Every revision there ever was: reading them, the tree as it was, who changed what, and what an undo would do.

In: the store's records of revisions. Out: revisions, trees, audit entries with secrets masked, and reversed changes for
whoever commits them. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from bedplate.api.headapi import AuditEntry
from bedplate.core import errors
from bedplate.head import changes
from bedplate.head.records import REVISIONS, Codec, SealedRevision, revision_key
from bedplate.head.schema.entity import Path
from bedplate.head.tree import Tree
from bedplate.head.vault import Vault
from bedplate.store.interface import Store

__all__ = ["History", "Undone"]

_WINDOW = 200


class Undone(errors.Conflict):
    """A revision that was taken back cannot be taken back once more."""


class History:
    """Reads revisions 1 to the one its caller names as the last."""

    def __init__(self, store: Store, records: Codec, vault: Vault) -> None:
        self._store = store
        self._records = records
        self._vault = vault

    async def read(self, number: int) -> SealedRevision:
        """One revision. Raises `NotFound`."""
        entry = await self._store.get(revision_key(number)) if number > 0 else None
        if entry is None:
            raise errors.NotFound(f"there is no revision {number}", hint="history lists them")
        return self._records.decode_revision(entry.value)

    async def after(self, number: int) -> AsyncIterator[SealedRevision]:
        """Those that follow a revision, oldest first."""
        key = revision_key(number)
        while True:
            page = await self._store.list(REVISIONS, limit=_WINDOW, after=key)
            for entry in page.entries:
                key = entry.key
                yield self._records.decode_revision(entry.value)
            if not page.more:
                return

    async def newest(self, last: int, first: int = 1) -> AsyncIterator[SealedRevision]:
        """Revisions `last` down to `first`."""
        while last >= first:
            start = max(first, last - _WINDOW + 1)
            page = await self._store.list(REVISIONS, limit=last - start + 1, after=revision_key(start - 1))
            if len(page.entries) != last - start + 1:
                raise errors.Unavailable(f"revisions {start} to {last} could not be read whole", hint="try again")
            for entry in reversed(page.entries):
                yield self._records.decode_revision(entry.value)
            last = start - 1

    async def last_touch(self, mode: str, key: str, last: int) -> SealedRevision | None:
        """The revision that last changed, made or removed an object."""
        async for revision in self.newest(last):
            if any(changes.address(change) == (mode, key) for change in revision.changes):
                return revision
        return None

    async def tree_at(self, tree: Tree, last: int, number: int) -> Tree:
        """The tree as it was after revision `number`; `tree` is that of revision `last`. Raises `NotFound`."""
        if not 0 <= number <= last:
            raise errors.NotFound(f"there is no revision {number}", hint=f"revisions run from 1 to {last}")
        async for revision in self.newest(last, number + 1):
            tree = changes.apply(tree, changes.reverse(revision.changes), self._vault.unseal)
            for mode, key in dict.fromkeys(map(changes.address, revision.changes)):
                obj = tree.find(mode, key)
                if obj is not None:
                    before = revision.previous.get(f"{mode}/{key}", 0)
                    tree = tree.with_object(mode, key, replace(obj, revision=before))
        return tree

    async def audit(self, schema_of: Tree, last: int, path: Path = (), limit: int = 100) -> list[AuditEntry]:
        """Who changed what at or below a path, newest first."""
        entries: list[AuditEntry] = []
        async for revision in self.newest(last):
            for change in changes.masked(schema_of.schema, revision.changes):
                if changes.meet(change.path, path):
                    entry = AuditEntry(
                        revision=revision.number,
                        time=revision.time,
                        author=revision.author,
                        path=change.path,
                        old=change.old,
                        new=change.new,
                    )
                    entries.append(entry)
            if len(entries) >= limit:
                break
        return entries[:limit]

    async def reverse(self, number: int) -> list[changes.Change]:
        """What takes a revision back, secrets sealed. Raises `NotFound`."""
        return changes.reverse((await self.read(number)).changes)

    async def obstacle(self, number: int, last: int) -> errors.Conflict | None:
        """The later revision that touched the same thing as revision `number`, as an error that names it.

        A later revision that was itself undone, and its undo, do not stand in the way.
        """
        revision = await self.read(number)
        cancelled: set[int] = set()
        async for later in self.newest(last, number + 1):
            if later.number in cancelled:
                continue
            if later.undoes > number:
                cancelled.add(later.undoes)
                continue
            if later.undoes == number:
                return Undone(
                    f"revision {number} was undone by revision {later.number} of {later.author}",
                    hint=f"undo {later.number} reverts that",
                )
            touched = _common(revision, later)
            if touched is not None:
                return errors.Conflict(
                    f"revision {later.number} of {later.author} changed {'.'.join(touched)} after revision {number}",
                    hint=f"undo {later.number} first, or force the undo",
                )
        return None


def _common(revision: SealedRevision, other: SealedRevision) -> Path | None:
    for change in revision.changes:
        for later in other.changes:
            if changes.meet(change.path, later.path):
                return change.path
    return None
