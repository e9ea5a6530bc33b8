"""A watch as it arrives: chunks of newline-delimited JSON into typed events, however the chunks are cut.

In: chunks of bytes. Out: batches of events, all that a chunk completed decoded in one call. ERROR events and garbage
become exceptions, after the good events before them were handed out. Knows no sockets.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from bedplate.kube import errors
from bedplate.kube.codec import Codec, ErrorEvent, WatchEvent

__all__ = ["EventDecoder"]

T = TypeVar("T")
# An object is at most 1.5 MB in etcd; more without a newline is not a watch stream.
MAX_EVENT_BYTES = 64 << 20


class EventDecoder(Generic[T]):
    """Turns chunks into events. After `failure` is set nothing more can be fed."""

    def __init__(self, codec: Codec[T], target: errors.Target) -> None:
        self._codec = codec
        self._target = target
        self._partial: list[bytes] = []
        self._partial_bytes = 0
        self.failure: Exception | None = None

    def feed(self, chunk: bytes) -> list[WatchEvent[Any]]:
        """The events that this chunk completes. Check `failure` after handing them on."""
        end = chunk.rfind(b"\n")
        if end < 0:
            self._keep(chunk)
            return []
        complete, rest = chunk[: end + 1], chunk[end + 1 :]
        if self._partial:
            complete = b"".join([*self._partial, complete])
            self._partial, self._partial_bytes = [], 0
        if rest:
            self._keep(rest)
        return self._decode(complete)

    def finish(self) -> list[WatchEvent[Any]]:
        """The stream ended: a last event without newline is an event if it is whole, and a failure if it is cut."""
        if not self._partial:
            return []
        rest = b"".join(self._partial)
        self._partial = []
        try:
            return self._checked([self._codec.event.decode(rest)])
        except msgspec.DecodeError:
            self.failure = errors.Interrupted(f"{self._target}: the watch broke off inside an event")
            return []

    def _keep(self, piece: bytes) -> None:
        self._partial.append(piece)
        self._partial_bytes += len(piece)
        if self._partial_bytes > MAX_EVENT_BYTES:
            self.failure = errors.Undecodable(f"{self._target}: an event of more than {MAX_EVENT_BYTES} bytes")

    def _decode(self, lines: bytes) -> list[WatchEvent[Any]]:
        try:
            return self._checked(self._codec.event.decode_lines(lines))
        except msgspec.DecodeError:
            return self._checked(self._decode_singly(lines))

    def _decode_singly(self, lines: bytes) -> list[WatchEvent[Any]]:
        """The good events before the first bad line, which becomes the failure."""
        events: list[WatchEvent[Any]] = []
        for line in lines.splitlines():
            if not line.strip():
                continue
            try:
                events.append(self._codec.event.decode(line))
            except msgspec.DecodeError as err:
                self.failure = errors.Undecodable(f"{self._target}: an event cannot be decoded: {err}")
                break
        return events

    def _checked(self, events: list[WatchEvent[Any]]) -> list[WatchEvent[Any]]:
        for position, event in enumerate(events):
            if type(event) is ErrorEvent:
                self.failure = errors.from_status(self._target, event.object)
                return events[:position]
        return events
