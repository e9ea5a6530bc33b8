"""The present tree in the store, beside the log of revisions that is the truth.

In: the tree and what a commit touched. Out: object records, so that a head opens without reading the log. A commit
of a few objects writes them in its own transaction; one of many (an import) would be refused by etcd, so its objects
follow in batches, and `latest` says up to which revision the records are whole. What is behind it is read from the log.
"""

from __future__ import annotations

from collections.abc import Iterable

from bedplate.head import changes, records
from bedplate.head.objects import Obj
from bedplate.head.records import Codec, SealedRevision
from bedplate.head.tree import Address, Tree
from bedplate.store.interface import CompareFailed, Delete, Op, Put, Store

__all__ = ["Snapshot", "missing"]

_PAGE = 1000
_BATCH = 60


class Snapshot:
    """What the store's object records lack is in `_behind`; the caller lets one task at a time in here."""

    def __init__(self, store: Store, codec: Codec) -> None:
        self._store = store
        self._codec = codec
        self._behind: dict[Address, None] = {}
        self._mark = 0

    async def load(self) -> tuple[list[tuple[str, Obj]], int]:
        """All objects as recorded, and the revision up to which they are whole; some may be newer already."""
        at = await self._store.revision()
        latest = await self._store.get(records.LATEST, revision=at)
        self._mark = latest.revision if latest is not None else 0
        objects: list[tuple[str, Obj]] = []
        after, more = "", True
        while more:
            page = await self._store.list(records.OBJECTS, revision=at, limit=_PAGE, after=after)
            objects.extend(self._codec.decode_object(entry.key, entry.value) for entry in page.entries)
            after, more = page.entries[-1].key if page.entries else "", page.more
        return objects, int(latest.value) if latest is not None else 0

    def note(self, revision: SealedRevision) -> None:
        """A revision was taken whose objects may not be recorded."""
        self._behind.update(dict.fromkeys(map(changes.address, revision.changes)))

    async def look(self, number: int) -> None:
        """Ask the store whether another head has recorded everything up to a revision."""
        latest = await self._store.get(records.LATEST)
        self._mark = latest.revision if latest is not None else 0
        if latest is not None and int(latest.value) >= number:
            self._behind.clear()

    def ops(self, tree: Tree, revision: SealedRevision) -> list[Op]:
        """What the transaction of a revision writes besides it: the objects, or nothing when they are too many."""
        places = {**self._behind, **dict.fromkeys(map(changes.address, revision.changes))}
        if len(places) > _BATCH:
            return []
        return [Put(records.LATEST, str(revision.number).encode()), *self._writes(tree, places)]

    def wrote(self, revision: SealedRevision, ops: list[Op], at: int) -> None:
        """The transaction with those operations is in the store, at a revision of the store's own."""
        if ops:
            self._behind.clear()
            self._mark = at
        else:
            self.note(revision)

    async def settle(self, tree: Tree, number: int) -> None:
        """Record what is behind, in batches. Each moves the mark, so that of two heads one gives way."""
        places = list(self._behind)
        recorded = await self._store.get(records.LATEST)
        value = recorded.value if recorded is not None else b"0"
        try:
            for start in range(0, len(places), _BATCH):
                last = start + _BATCH >= len(places)
                mark = Put(records.LATEST, str(number).encode() if last else value, expect=self._mark)
                self._mark = await self._store.commit([mark, *self._writes(tree, places[start : start + _BATCH])])
        except CompareFailed:
            await self.look(number)
            return
        self._behind.clear()

    @property
    def is_behind(self) -> bool:
        return len(self._behind) > _BATCH

    def _writes(self, tree: Tree, places: Iterable[Address]) -> list[Op]:
        ops: list[Op] = []
        for mode, key in places:
            obj, place = tree.find(mode, key), records.object_key(mode, key)
            ops.append(Delete(place) if obj is None else Put(place, self._codec.encode_object(obj)))
        return ops


def missing(tree: Tree, revision: SealedRevision) -> list[changes.Change]:
    """Those changes of a revision that a tree read from records lacks: a record may be newer than the mark says."""
    differences = []
    for change in revision.changes:
        obj = tree.find(*changes.address(change))
        if len(change.path) == 2 if obj is None else obj.revision < revision.number:
            differences.append(change)
    return differences
