"""The event stream of a head, followed through losses.

In: a transport and where to begin. Out: events, each once and in order. After a loss the stream goes on behind the last
event that was given out; what the head no longer has is skipped by it, not by us. `Parser` takes server-sent events
out of chunks of bytes that are cut anywhere.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

import msgspec

from bedplate.api import headapi
from bedplate.client.transport import Request, Transport
from bedplate.core import errors
from bedplate.core.backoff import Backoff

__all__ = ["Event", "Parser", "Raw", "follow"]

# The head sends a comment every 15 s: after four of them are missing nobody is there.
_SILENCE_S = 60.0


class Event(NamedTuple):
    """One thing that happened; one of the four is set. `id` is what `events(after=…)` takes.

    `reset`: the head does not know the event that the reader saw last, as after a restored backup; what the reader has
    read must be read again."""

    id: str
    revision: headapi.Revision | None = None
    notice: headapi.Notice | None = None
    health: headapi.HealthEvent | None = None
    reset: headapi.Reset | None = None


_KINDS = {
    "revision": headapi.Revision,
    "notice": headapi.Notice,
    "health": headapi.HealthEvent,
    "reset": headapi.Reset,
}


async def follow(
    transport: Transport,
    after: str | int | None,
    types: Sequence[str],
    on_link: Callable[[bool, str], None] | None,
) -> AsyncIterator[Event]:
    """Events until an error that another attempt cannot change. Raises what the head says: `Denied`, `Invalid`."""
    last = "" if after is None else str(after)
    backoff = Backoff(first_s=0.1, cap_s=5.0, rng=transport.rng)
    is_up: bool | None = None
    while True:
        query = {"types": ",".join(types)} if types else {}
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
        why = "the head closed the stream"
        try:
            async with transport.stream(
                Request("GET", "/api/v1/events", query, headers, timeout_s=_SILENCE_S)
            ) as answer:
                parser = Parser()
                async for chunk in answer.chunks:
                    if is_up is not True:
                        is_up = _tell(on_link, True, f"connected to {transport.url}")
                    backoff.reset()
                    for raw in parser.feed(chunk):
                        event = _event(raw)
                        last = raw.id or last
                        if event is not None:
                            yield event
        except errors.Retryable as err:
            why = str(err)
        if is_up is not False:
            is_up = _tell(on_link, False, why)
        await transport.clock.sleep(backoff.next())


def _tell(on_link: Callable[[bool, str], None] | None, is_up: bool, words: str) -> bool:
    if on_link is not None:
        on_link(is_up, words)
    return is_up


def _event(raw: Raw) -> Event | None:
    """The event in what came; None for one of a kind that is not known here."""
    kind = _KINDS.get(raw.type)
    if kind is None or not raw.data:
        return None
    try:
        data = msgspec.json.decode(raw.data, type=kind)
    except msgspec.DecodeError as wrong:
        raise errors.Unavailable(f"an event of the head cannot be read: {wrong}") from wrong
    return Event(raw.id, **{raw.type: data})


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
