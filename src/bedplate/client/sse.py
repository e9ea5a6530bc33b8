"""Server-sent events out of bytes. Pure.

In: chunks, cut anywhere. Out: whole events with their id and type. Comments (heartbeats) and unknown fields are
skipped; an event without data carries its id alone.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Parser", "Raw"]


class Raw(NamedTuple):
    """One event as it came; `data` is empty for one that only moves the id."""

    id: str
    type: str
    data: bytes


class Parser:
    """Feed it chunks; it keeps what is not complete yet."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._id = ""
        self._type = ""
        self._data: list[bytes] = []
        self._has_id = False

    def feed(self, chunk: bytes) -> list[Raw]:
        """The events that are complete with this chunk."""
        events: list[Raw] = []
        if b"\n" not in chunk:
            self._rest += chunk
            return events
        self._rest += chunk
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        for line in lines:
            line = line.removesuffix(b"\r")
            if line:
                self._field(line)
            elif self._data or self._has_id:
                events.append(Raw(self._id, self._type or "message", b"\n".join(self._data)))
                self._type, self._data, self._has_id = "", [], False
        return events

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._type = value.decode(errors="replace")
        elif name == b"id":
            self._id, self._has_id = value.decode(errors="replace"), True
