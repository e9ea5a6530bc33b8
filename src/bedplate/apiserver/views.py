"""How stored objects are shown: as they are, in another version, as metadata only.

In: stored JSON bytes (storage version, with resourceVersion). Out: JSON bytes for get, list and watch answers. Tables
are in `tables`. A view is a value: views with equal `key` show equal bytes, so their results are shared among
watchers.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from bedplate.apiserver import hooks, kinds
from bedplate.apiserver.protobuf import encoding
from bedplate.apiserver.state import bodies

__all__ = ["ConvertedView", "PartialView", "PlainView", "ProtobufView", "ShapedView", "View"]

Stored = bodies.Stored


class PlainView:
    """The object as it is stored."""

    media = "application/json"
    stream_media = "application/json"
    has_heading = False
    is_cacheable = True
    """Whether the same object is always shown as the same bytes (a table's ages are not)."""

    def __init__(self, resource: kinds.Resource) -> None:
        self.resource = resource
        self.key = resource.api_version
        self.list_kind = resource.list_kind
        self.list_api_version = resource.api_version

    def show(self, body: bytes, *, heading: bool = False) -> bytes:
        return body

    def item(self, body: bytes) -> bytes:
        """The object as it stands in a list: built-in kinds leave out what the list already says."""
        return body if self.resource.is_custom else b"{" + body[body.index(b'"metadata":{') :]

    def items(self, objects: Iterable[Stored]) -> bytes:
        """The inside of `items`."""
        item = self.item
        return b",".join([item(stored.body) for stored in objects])

    def frame(self, metadata: dict[str, Any], size: int) -> tuple[bytes, bytes]:
        """What stands before and after `size` bytes of items in a list."""
        head = bodies.encode({"kind": self.list_kind, "apiVersion": self.list_api_version, "metadata": metadata})
        return head[:-1] + b',"items":[', b"]}"

    def event(self, type: str, shown: bytes) -> bytes:
        """A watch event around an object that `show`, `bookmark` or `refusal` gave."""
        return b'{"type":"%b","object":%b}\n' % (type.encode(), shown)

    def refusal(self, document: dict[str, Any]) -> bytes:
        """A Status in the form of this view."""
        return bodies.encode(document)

    def bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> bytes:
        metadata: dict[str, Any] = {"resourceVersion": str(revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        kind, api_version = self.bookmark_kind
        return bodies.encode({"kind": kind, "apiVersion": api_version, "metadata": metadata})

    @property
    def bookmark_kind(self) -> tuple[str, str]:
        return self.resource.kind, self.resource.api_version


class ProtobufView(PlainView):
    """A built-in object as protobuf, for lists and watches: its readers need a quarter of the time."""

    media = encoding.MEDIA
    stream_media = f"{encoding.MEDIA};stream=watch"

    def __init__(self, resource: kinds.Resource, encoder: encoding.Encoder) -> None:
        super().__init__(resource)
        self._encoder = encoder
        self.key = f"{resource.api_version} protobuf"

    def show(self, body: bytes, *, heading: bool = False) -> bytes:
        return self._encoder.enveloped(bodies.decode(body))

    def items(self, objects: Iterable[Stored]) -> bytes:
        parts = []
        for stored in objects:
            if stored.message is None:
                stored.message = self._encoder.message(stored.decode())
            parts.append(encoding.delimited(2, stored.message))
        return b"".join(parts)

    def frame(self, metadata: dict[str, Any], size: int) -> tuple[bytes, bytes]:
        list_meta = encoding.delimited(1, encoding.list_meta(metadata))
        head, tail = encoding.envelope(self.list_api_version, self.list_kind, len(list_meta) + size)
        return head + list_meta, tail

    def event(self, type: str, shown: bytes) -> bytes:
        return encoding.watch_event(type, shown)

    def bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> bytes:
        return self._encoder.enveloped(bodies.decode(super().bookmark(revision, annotations)))

    def refusal(self, document: dict[str, Any]) -> bytes:
        return self._encoder.enveloped(document)


class ConvertedView(PlainView):
    """The object in another served version than the stored one."""

    def __init__(self, resource: kinds.Resource, storage: kinds.Resource) -> None:
        super().__init__(resource)
        self._storage = storage

    def show(self, body: bytes, *, heading: bool = False) -> bytes:
        obj = kinds.from_storage(self.resource, bodies.decode(body), self._storage)
        return bodies.encode(ordered(obj))

    def item(self, body: bytes) -> bytes:
        return super().item(self.show(body))


class ShapedView(ConvertedView):
    """A custom object as its version's schema wants it now, whenever and in whichever version it was written."""

    def __init__(self, resource: kinds.Resource, storage: kinds.Resource, rules: hooks.Rules) -> None:
        super().__init__(resource, storage)
        self._rules = rules
        # Definitions replace their resources when they change, so the resource's identity stands for the schema.
        self.key = f"{resource.api_version} shaped {id(resource)}"

    def show(self, body: bytes, *, heading: bool = False) -> bytes:
        obj = kinds.from_storage(self.resource, bodies.decode(body), self._storage)
        shape(self._rules, self.resource, obj)
        return bodies.encode(ordered(obj))


@functools.lru_cache(maxsize=512)
def needs_shaping(resource: kinds.Resource) -> bool:
    """Whether stored objects of a custom kind may differ from what the version shows."""
    return not resource.storage_version or b'"default":' in bodies.encode(resource.schema)


def shape(rules: hooks.Rules, resource: kinds.Resource, obj: bodies.Object) -> None:
    rules.prune(resource, obj)
    rules.default(resource, obj)


class PartialView(PlainView):
    """Metadata only."""

    def __init__(self, resource: kinds.Resource, version: str) -> None:
        super().__init__(resource)
        self._api_version = f"meta.k8s.io/{version}"
        self.key = f"{resource.api_version} partial {version}"
        self.list_kind, self.list_api_version = "PartialObjectMetadataList", self._api_version

    def show(self, body: bytes, *, heading: bool = False) -> bytes:
        return bodies.encode(partial(bodies.decode(body), self._api_version))

    def item(self, body: bytes) -> bytes:
        return self.show(body)

    @property
    def bookmark_kind(self) -> tuple[str, str]:
        return "PartialObjectMetadata", self._api_version


View = PlainView


def partial(obj: bodies.Object, api_version: str) -> bodies.Object:
    """The object's PartialObjectMetadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": api_version, "metadata": obj["metadata"]}


def ordered(obj: bodies.Object) -> bodies.Object:
    """The object with kind, apiVersion and metadata first."""
    first = {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "metadata": obj["metadata"]}
    return first | {key: value for key, value in obj.items() if key not in first}
