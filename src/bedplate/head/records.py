"""What the head keeps in the store, and under which keys.

In: objects and revisions. Out: keys and bytes, and back. `revisions/<number>` is every commit there ever was, numbered
from 1 without holes: the truth. `objects/<mode>/<key>` is the present tree beside it (`Snapshot`), so that a head opens
without reading the log. A commit writes its objects in its own transaction; one of more than a thousand, or than the
store takes at once, lets them follow in batches, for which nobody waits, and `latest` says up to which revision the
records are whole. What is behind it is read from the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from bedplate.api.headapi import Change, Revision
from bedplate.core import errors
from bedplate.head import changes
from bedplate.head.objects import Obj
from bedplate.head.schema import codec
from bedplate.head.schema.entity import Schema
from bedplate.head.tree import Address, Tree
from bedplate.head.vault import Vault
from bedplate.store.interface import CompareFailed, Delete, Op, OutcomeUnknown, Put, Store

__all__ = [
    "INCARNATION",
    "LATEST",
    "OBJECTS",
    "REVISIONS",
    "Codec",
    "SealedRevision",
    "Snapshot",
    "missing",
    "revision_key",
]

OBJECTS = "/head/objects/"
REVISIONS = "/head/revisions/"
LATEST = "/head/latest"
INCARNATION = "/head/incarnation"
"""What tells the history of a store that was restored from a backup from the one that the backup was made of; their
revisions have the same numbers. Nothing in a store that was never restored."""
_PAGE = 1000
_TOGETHER = 1000
_DAMAGED = "restore the newest backup"


class SealedRevision(Revision, frozen=True, kw_only=True, omit_defaults=True):
    """A revision as it is kept: secrets in `changes` are sealed, the nonce names its owner. `previous` says which
    revision had written each object before (`mode/key`; those that did not exist are not in it); `request` is the
    digest of the request that came with the nonce, if there was one."""

    previous: dict[str, int] = msgspec.field(default_factory=dict)
    request: str = ""


class _RevisionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The bytes of a revision: each change is an array of path, old and new."""

    number: int
    time: str
    author: str
    nonce: str
    changes: list[tuple[tuple[str, ...], Any, Any]]
    message: str = ""
    undoes: int = 0
    previous: dict[str, int] = {}
    request: str = ""


class _Record(msgspec.Struct, frozen=True):
    revision: int
    object: dict[str, Any]


def revision_key(number: int) -> str:
    """Numbers are padded, so that the store's order is theirs."""
    return f"{REVISIONS}{number:012d}"


class Codec:
    """Bytes of records, for one schema and one vault."""

    def __init__(self, schema: Schema, vault: Vault) -> None:
        self._schema = schema
        self._vault = vault
        self._records = msgspec.json.Decoder(_Record)
        self._revisions = msgspec.json.Decoder(_RevisionRecord)

    def encode_object(self, obj: Obj) -> bytes:
        return msgspec.json.encode(_Record(obj.revision, codec.encode(self._schema, obj, self._vault.seal)))

    def decode_object(self, key: str, data: bytes) -> tuple[str, Obj]:
        """The mode and the object of a store key."""
        mode, _, name = key.removeprefix(OBJECTS).partition("/")
        try:
            record = self._records.decode(data)
        except msgspec.DecodeError as wrong:
            raise errors.Invalid(f"the record {key} cannot be read: {wrong}", hint=_DAMAGED) from wrong
        obj = codec.decode(self._schema, self._schema.mode(mode), name, record.object, self._vault.unseal)
        return mode, obj.at(record.revision)

    def encode_revision(self, revision: SealedRevision) -> bytes:
        differences = [(change.path, change.old, change.new) for change in revision.changes]
        return msgspec.json.encode(
            _RevisionRecord(
                revision.number,
                revision.time,
                revision.author,
                revision.nonce,
                differences,
                revision.message,
                revision.undoes,
                revision.previous,
                revision.request,
            )
        )

    def decode_revision(self, data: bytes) -> SealedRevision:
        try:
            record = self._revisions.decode(data)
        except msgspec.DecodeError as wrong:
            raise errors.Invalid(f"a revision's record cannot be read: {wrong}", hint=_DAMAGED) from wrong
        return SealedRevision(
            number=record.number,
            time=record.time,
            author=record.author,
            nonce=record.nonce,
            changes=[Change(*change) for change in record.changes],
            message=record.message,
            undoes=record.undoes,
            previous=record.previous,
            request=record.request,
        )


class Snapshot:
    """What the store's object records lack is in `_behind`; the caller lets one task at a time in here."""

    def __init__(self, store: Store, codec: Codec) -> None:
        self._store = store
        # The revision and the mark take part as well.
        self._batch = min(store.most_ops - 2, _TOGETHER)
        self._codec = codec
        self._behind: dict[Address, None] = {}
        self.is_behind = False
        """Whether the objects of the last revision that was written are still to be recorded (`settle`)."""
        self._mark = 0

    async def load(self) -> tuple[list[tuple[str, Obj]], int]:
        """All objects as recorded, and the revision up to which they are whole; some may be newer already."""
        at = await self._store.revision()
        latest = await self._store.get(LATEST, revision=at)
        self._mark = latest.revision if latest is not None else 0
        objects: list[tuple[str, Obj]] = []
        after, more = "", True
        while more:
            page = await self._store.list(OBJECTS, revision=at, limit=_PAGE, after=after)
            objects.extend(self._codec.decode_object(entry.key, entry.value) for entry in page.entries)
            after, more = page.entries[-1].key if page.entries else "", page.more
        return objects, int(latest.value) if latest is not None else 0

    def note(self, revision: SealedRevision) -> None:
        """A revision was taken whose objects may not be recorded."""
        self._behind.update(dict.fromkeys(map(changes.address, revision.changes)))

    async def look(self, number: int) -> None:
        """Ask the store whether another head has recorded everything up to a revision."""
        latest = await self._store.get(LATEST)
        self._mark = latest.revision if latest is not None else 0
        if latest is not None and int(latest.value) >= number:
            self._behind.clear()

    async def write(self, tree: Tree, revision: SealedRevision) -> bool:
        """Whether the revision is in the store, in one transaction with its objects, unless those are too many for one.
        If not, another revision has its number. Raises `OutcomeUnknown` when nothing has: it may still come."""
        places = {**self._behind, **dict.fromkeys(map(changes.address, revision.changes))}
        objects: list[Op] = []
        if len(places) <= self._batch:
            objects = [Put(LATEST, str(revision.number).encode()), *self._writes(tree, places)]
        record = Put(revision_key(revision.number), self._codec.encode_revision(revision), expect=0)
        try:
            at = await self._store.commit([record, *objects])
        except (CompareFailed, OutcomeUnknown) as err:
            entry = await self._store.get(record.key)
            if entry is None and isinstance(err, OutcomeUnknown):
                raise
            if entry is None or self._codec.decode_revision(entry.value).nonce != revision.nonce:
                return False
            at = entry.revision
        self.is_behind = not objects
        self._behind = {} if objects else places
        self._mark = at if objects else self._mark
        return True

    async def settle(self, tree: Tree, number: int) -> None:
        """Record what is behind, in batches. Each moves the mark, so that of two heads one gives way."""
        places = list(self._behind)
        recorded = await self._store.get(LATEST)
        value = recorded.value if recorded is not None else b"0"
        try:
            for start in range(0, len(places), self._batch):
                last = start + self._batch >= len(places)
                mark = Put(LATEST, str(number).encode() if last else value, expect=self._mark)
                self._mark = await self._store.commit([mark, *self._writes(tree, places[start : start + self._batch])])
        except CompareFailed:
            await self.look(number)
            return
        self._behind.clear()

    def _writes(self, tree: Tree, places: Iterable[Address]) -> list[Op]:
        ops: list[Op] = []
        for mode, key in places:
            obj, place = tree.find(mode, key), f"{OBJECTS}{mode}/{key}"
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
