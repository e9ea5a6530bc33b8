"""The journal: what was acknowledged and is not yet in the store file.

In: operations on a document, and the checksums of files. Out: lines; or, of a journal's bytes, the operations that a
file with a given checksum still lacks. Pure; `storage.py` writes, `storeload.py` reads.

A line is `<crc32> <payload>`, the payload one of

    {"mark":N}                       a place in the journal, counted up
    {"file":[N,CHECKSUM,SIZE]}       a store file with this checksum and size holds everything before mark N
    {"do":[OPERATION,...]}           one call: all of it or nothing

with the operations {"add":POOL,"pointer":IP,"entry":{KEY:{...}}}, {"del":POOL,"key":KEY}, {"drop":POOL}. A journal
begins with a mark and the file that it extends. A file named nowhere in it is foreign to it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import msgspec

from bedplate.ipam.node import gojson, storefile
from bedplate.ipam.node.storefile import Document, Entry, PoolRecord

__all__ = ["Journal", "add", "apply", "call", "delete", "drop", "file", "mark", "read"]


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


class Operation(msgspec.Struct, frozen=True, rename={"dele": "del"}):
    """One change; exactly one of `add`, `dele` and `drop` names the pool."""

    add: str | None = None
    dele: str | None = None
    drop: str | None = None
    pointer: str = ""
    key: str = ""
    entry: dict[str, msgspec.Raw] = {}


class Line(msgspec.Struct, frozen=True):
    """One line that can be read. `begin` and `end` are its place in the file."""

    mark: int | None = None
    file: tuple[int, int, int] | None = None
    do: tuple[Operation, ...] | None = None
    begin: int = 0
    end: int = 0


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
        return sum(line.do is not None for line in self.lines)

    @property
    def last_mark(self) -> int:
        """The highest place."""
        return max((line.mark for line in self.lines if line.mark is not None), default=0)

    def place_of(self, checksum: int, size: int) -> int | None:
        """The last place up to which a file with this checksum and size holds everything; None: it is foreign."""
        files = (line.file for line in reversed(self.lines) if line.file is not None)
        return next((place for place, *known in files if known == [checksum, size]), None)

    def after(self, place: int) -> list[Line]:
        """The calls after a place; all of them when its line cannot be read, for doing one again changes nothing."""
        begin = next((at for at, line in enumerate(self.lines) if line.mark == place), 0)
        return [line for line in self.lines[begin:] if line.do is not None]


def read(content: bytes) -> Journal:
    """Every line that can be read, whatever lies between."""
    lines: list[Line] = []
    damaged: list[int] = []
    at = 0
    while at < len(content):
        newline = content.find(b"\n", at)
        if newline < 0:
            break
        line = _read_line(content[at:newline], at)
        if line is None:
            damaged.append(at)
        else:
            lines.append(line)
        at = newline + 1
    return Journal(tuple(lines), tuple(damaged), lines[-1].end if lines else 0, len(content))


_DECODER = msgspec.json.Decoder(Line)


def _read_line(text: bytes, begin: int) -> Line | None:
    head, _, payload = text.partition(b" ")
    try:
        if len(head) != 8 or int(head, 16) != zlib.crc32(payload):
            return None
        return msgspec.structs.replace(_DECODER.decode(payload), begin=begin, end=begin + len(text) + 1)
    except (ValueError, msgspec.MsgspecError):
        return None


def apply(document: Document, line: Line) -> None:
    """Do a call's operations again; those that were done already change nothing. Raises `Corrupt`."""
    for operation in line.do or ():
        if operation.add is not None:
            for key, text in operation.entry.items():
                reservation = storefile.decode_reservation(operation.add, gojson.parse(bytes(text)))
                pool = document.pools.setdefault(operation.add, PoolRecord(operation.add))
                pool.entries[key] = Entry(reservation, storefile.encode_entry(key, reservation))
                pool.pointer, pool.config = operation.pointer, reservation.config
        elif operation.dele is not None and operation.dele in document.pools:
            document.pools[operation.dele].entries.pop(operation.key, None)
        elif operation.drop is not None:
            document.pools.pop(operation.drop, None)
