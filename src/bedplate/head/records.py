"""What the head keeps in the store, and under which keys.

In: objects and revisions. Out: keys and bytes, and back. `objects/<mode>/<key>` is the present tree;
`revisions/<number>` every commit there ever was, numbered from 1 without holes; `latest` the number up to which the
objects are whole (`snapshot`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from bedplate.api.headapi import Change, Revision
from bedplate.core import errors
from bedplate.head.objects import Obj
from bedplate.head.schema import codec
from bedplate.head.schema.registry import Schema
from bedplate.head.vault import Vault

__all__ = ["LATEST", "OBJECTS", "REVISIONS", "Codec", "SealedRevision", "object_key", "revision_key"]

OBJECTS = "/head/objects/"
REVISIONS = "/head/revisions/"
LATEST = "/head/latest"
_DAMAGED = "restore the newest backup"


class SealedRevision(Revision, frozen=True, kw_only=True, omit_defaults=True):
    """A revision as it is kept: secrets in `changes` are sealed, the nonce names its owner. `previous` says which
    revision had written each object before (`mode/key`; those that did not exist are not in it)."""

    previous: dict[str, int] = msgspec.field(default_factory=dict)


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


class _Record(msgspec.Struct, frozen=True):
    revision: int
    object: dict[str, Any]


def object_key(mode: str, key: str) -> str:
    return f"{OBJECTS}{mode}/{key}"


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
        return mode, replace(obj, revision=record.revision)

    def encode_revision(self, revision: SealedRevision) -> bytes:
        changes = [(change.path, change.old, change.new) for change in revision.changes]
        return msgspec.json.encode(
            _RevisionRecord(
                revision.number,
                revision.time,
                revision.author,
                revision.nonce,
                changes,
                revision.message,
                revision.undoes,
                revision.previous,
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
        )
