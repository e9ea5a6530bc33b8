"""From bytes to models: decoders for objects, lists and watch events, made once per model.

In: JSON bytes and a `ResourceRef`; for a watch, chunks of newline-delimited JSON, however they are cut. Out: values of
its model, or `Undecodable`. All events that a chunk completes are decoded in one call; an ERROR event and garbage
become exceptions, after the good events before them were handed out. Knows no sockets, and writes nothing: bodies of
writes are plain mappings.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from bedplate.api import meta
from bedplate.api.identity import name_of
from bedplate.api.resources import ResourceRef
from bedplate.kube import errors

__all__ = [
    "Added",
    "Bookmark",
    "Codec",
    "Deleted",
    "ErrorEvent",
    "EventDecoder",
    "ListResult",
    "Modified",
    "WatchEvent",
    "accept_header",
    "codec_of",
    "decode_list",
    "decode_object",
]

T = TypeVar("T")
# An object is at most 1.5 MB in etcd; more without a newline is not a watch stream.
MAX_EVENT_BYTES = 64 << 20


class WatchEvent(msgspec.Struct, Generic[T], frozen=True, gc=False, tag_field="type"):
    """One event of a watch; its class says what happened, as does `type`."""

    object: T
    type: ClassVar[str] = ""


class Added(WatchEvent[T], Generic[T], frozen=True, gc=False, tag_field="type", tag="ADDED"):
    """The object is new to this watch."""

    type: ClassVar[str] = "ADDED"


class Modified(WatchEvent[T], Generic[T], frozen=True, gc=False, tag_field="type", tag="MODIFIED"):
    """The object changed."""

    type: ClassVar[str] = "MODIFIED"


class Deleted(WatchEvent[T], Generic[T], frozen=True, gc=False, tag_field="type", tag="DELETED"):
    """The object is gone, or no longer selected; `object` is its last state."""

    type: ClassVar[str] = "DELETED"


class Bookmark(WatchEvent[meta.PartialObject], frozen=True, gc=False, tag_field="type", tag="BOOKMARK"):
    """Nothing happened up to the resourceVersion of `object`."""

    type: ClassVar[str] = "BOOKMARK"


class ErrorEvent(WatchEvent[meta.Status], frozen=True, gc=False, tag_field="type", tag="ERROR"):
    """The watch cannot go on. Callers of a watch see it as an exception."""

    type: ClassVar[str] = "ERROR"


class Codec(Generic[T]):
    """The decoders of one model."""

    def __init__(self, model: type[T]) -> None:
        shape: Any = dict[str, Any] if model is dict else model
        events: Any = Added[shape] | Modified[shape] | Deleted[shape] | Bookmark | ErrorEvent
        self.is_raw = model is dict
        self.object: msgspec.json.Decoder[T] = msgspec.json.Decoder(shape)
        self.list: msgspec.json.Decoder[meta.ListEnvelope[T]] = msgspec.json.Decoder(meta.ListEnvelope[shape])
        self.event: msgspec.json.Decoder[Any] = msgspec.json.Decoder(events)


_codecs: dict[Any, Codec[Any]] = {}


def codec_of(ref: ResourceRef[T]) -> Codec[T]:
    """The decoders for objects of this resource."""
    codec = _codecs.get(ref.model)
    if codec is None:
        codec = _codecs[ref.model] = Codec(ref.model)
    return codec


def accept_header(ref: ResourceRef[Any], *, is_list: bool = False) -> str:
    """Metadata alone is asked for as such, so that the rest is not even sent."""
    if ref.model is not meta.PartialObject:
        return "application/json"
    kind = "PartialObjectMetadataList" if is_list else "PartialObjectMetadata"
    return f"application/json;as={kind};g=meta.k8s.io;v=v1,application/json"


class ListResult(msgspec.Struct, Generic[T], frozen=True):
    """A list, or one page of it when `continue_token` is not empty."""

    items: list[T]
    resource_version: str
    continue_token: str = ""
    remaining: int | None = None


def decode_object(target: errors.Target, ref: ResourceRef[T], body: bytes, name: str = "") -> T:
    """The object in the body of an answer, which must be the one of that name where one is given."""
    try:
        item = codec_of(ref).object.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise errors.Undecodable(f"{target}: the answer is not a {ref.kind}: {err}") from err
    if name and name_of(item) != name:
        raise errors.Undecodable(f"{target}: the answer is about {name_of(item)!r}")
    return item


def decode_list(target: errors.Target, ref: ResourceRef[T], body: bytes) -> ListResult[T]:
    """The list, or the page of one, in the body of an answer."""
    decoders = codec_of(ref)
    try:
        envelope = decoders.list.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise errors.Undecodable(f"{target}: the answer is not a list of {ref.kind}: {err}") from err
    if not envelope.kind.endswith("List"):
        raise errors.Undecodable(f"{target}: the answer is a {envelope.kind}, not a list of {ref.kind}")
    items = envelope.items or []
    if decoders.is_raw:
        for item in items:
            # Items of a list come without the two, unlike the same objects from get and watch.
            item.setdefault("apiVersion", ref.api_version)  # type: ignore[attr-defined]
            item.setdefault("kind", ref.kind)  # type: ignore[attr-defined]
    metadata = envelope.metadata
    return ListResult(items, metadata.resource_version, metadata.continue_token, metadata.remaining_item_count)


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
        try:
            return self._checked(self._codec.event.decode_lines(complete))
        except msgspec.DecodeError:
            return self._checked(self._decode_singly(complete))

    def finish(self) -> list[WatchEvent[Any]]:
        """The stream ended: a last event without newline is an event if it is whole, and a failure if it is cut."""
        if not self._partial:
            return []
        rest = b"".join(self._partial)
        self._partial = []
        try:
            return self._checked([self._codec.event.decode(rest)])
        except msgspec.DecodeError:
            self.failure = errors.Interrupted(f"{self._target}: the watch was cut off in the middle of an event")
            return []

    def _keep(self, piece: bytes) -> None:
        self._partial.append(piece)
        self._partial_bytes += len(piece)
        if self._partial_bytes > MAX_EVENT_BYTES:
            self.failure = errors.Undecodable(f"{self._target}: an event of more than {MAX_EVENT_BYTES} bytes")

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
