"""From bytes to models: decoders for objects, lists and watch events, made once per model.

In: JSON bytes and a `ResourceRef`. Out: values of its model, or `Undecodable`. Writes nothing: bodies of writes are
plain mappings.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from bedplate.api import meta
from bedplate.api.resources import ResourceRef

__all__ = [
    "Added",
    "Bookmark",
    "Codec",
    "Deleted",
    "ErrorEvent",
    "Modified",
    "WatchEvent",
    "accept_header",
    "codec_of",
]

T = TypeVar("T")


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
