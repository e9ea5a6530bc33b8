"""The journal: what was acknowledged and is not yet in the store file (Q2).

In: operations on a document, and the checksums of files. Out: lines; or, of a journal's bytes, the operations that a file with
a given checksum still lacks. Pure; `storage.py` writes, `recovery.py` reads.

A line is `<crc32> <payload>`, the payload one of

    {"mark":N}                       a place in the journal, counted up
    {"file":[N,CHECKSUM,SIZE]}       a store file with this checksum and size holds everything before mark N
    {"do":[OPERATION,...]}           one call: all of it or nothing

with the operations {"add":POOL,"pointer":IP,"entry":{KEY:{...}}}, {"del":POOL,"key":KEY}, {"drop":POOL}. A journal begins with a
mark and the file that it extends. A file named nowhere in it is foreign to it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from bedplate.ipam.node import gojson, storefile
from bedplate.ipam.node.storefile import Document, Entry, PoolRecord

__all__ = ["Journal", "add", "apply", "call", "delete", "drop", "file", "journal_name", "mark", "read"]


def journal_name(store: str) -> str:
    """The name of a store's journal."""
    return f"{store}.journal"


def _line(payload: bytes) -> bytes:
    return b"%08x %b\n" % (zlib.crc32(payload), payload)


def mark(number: int) -> bytes:
    """A place."""
    return _line(b'{"mark":%d}' % number)


def file(number: int, checksum: int, size: int) -> bytes:
    """The file that holds everything before a place."""
    return _line(b'{"file":[%d,%d,%d]}' % (number, checksum, size))


def call(operations: Sequence[bytes]) -> bytes:
    """The operations of one call."""
    return _line(b'{"do":[%b]}' % b",".join(operations))


def add(pool: str, pointer: str, entry: bytes) -> bytes:
    """A reservation was made; the pool's pointer and configuration are these now."""
    return b'{"add":%b,"pointer":"%b","entry":{%b}}' % (gojson.quote(pool).encode(), pointer.encode(), entry)


def delete(pool: str, key: str) -> bytes:
    """A reservation was given up."""
    return f'{{"del":{gojson.quote(pool)},"key":{gojson.quote(key)}}}'.encode()


def drop(pool: str) -> bytes:
    """A pool's record was removed."""
    return f'{{"drop":{gojson.quote(pool)}}}'.encode()


class Line(msgspec.Struct, frozen=True):
    """One good line: where it begins and ends, and what it says."""

    begin: int
    end: int
    payload: dict[str, Any]


class Journal(msgspec.Struct, frozen=True):
    """A journal that was read."""

    lines: tuple[Line, ...]
    damaged: tuple[int, ...]
    """Where lines begin that were whole once and cannot be read now."""
    end: int
    """Where the last good line ends: what follows was never acknowledged, or is damaged."""
    size: int

    @property
    def calls(self) -> int:
        """How many calls it holds."""
        return sum("do" in line.payload for line in self.lines)

    @property
    def last_mark(self) -> int:
        """The highest place."""
        return max((line.payload["mark"] for line in self.lines if "mark" in line.payload), default=0)

    def place_of(self, checksum: int, size: int) -> int | None:
        """The last place up to which a file with this checksum and size holds everything; None: it is foreign."""
        places = [line.payload["file"] for line in self.lines if "file" in line.payload]
        return next((place for place, *known in reversed(places) if known == [checksum, size]), None)

    def after(self, place: int) -> list[Line]:
        """The calls after a place."""
        for at, line in enumerate(self.lines):
            if line.payload.get("mark") == place:
                return [later for later in self.lines[at:] if "do" in later.payload]
        return []


def read(content: bytes) -> Journal:
    """Every line that can be read, whatever lies between."""
    lines: list[Line] = []
    damaged: list[int] = []
    at = 0
    while at < len(content):
        newline = content.find(b"\n", at)
        if newline < 0:
            break
        payload = _payload(content[at:newline])
        if payload is None:
            damaged.append(at)
        else:
            lines.append(Line(at, newline + 1, payload))
        at = newline + 1
    return Journal(tuple(lines), tuple(damaged), lines[-1].end if lines else 0, len(content))


def _payload(line: bytes) -> dict[str, Any] | None:
    head, _, payload = line.partition(b" ")
    try:
        if len(head) != 8 or int(head, 16) != zlib.crc32(payload):
            return None
        found = gojson.parse(payload)
    except ValueError:
        return None
    return dict(found) if isinstance(found, gojson.Pairs) else None


def apply(document: Document, line: Line) -> None:
    """Do a call's operations again. Those that were done already change nothing."""
    for operation in line.payload["do"]:
        fields = dict(operation)
        if "add" in fields:
            key, tree = fields["entry"][0]
            reservation = storefile.decode_reservation(fields["add"], tree)
            pool = document.pools.setdefault(fields["add"], PoolRecord(fields["add"]))
            pool.entries[key] = Entry(reservation, storefile.encode_entry(key, reservation))
            pool.pointer, pool.config = fields["pointer"], reservation.config
        elif "del" in fields:
            if fields["del"] in document.pools:
                document.pools[fields["del"]].entries.pop(fields["key"], None)
        else:
            document.pools.pop(fields["drop"], None)
