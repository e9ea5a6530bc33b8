"""Objects as bytes: how they are written to the store and how the store's revision becomes their resourceVersion.

A stored value is the JSON of the object with `kind`, `apiVersion` and `metadata` first and without
`metadata.resourceVersion`. As `metadata` is the first object in the text, the resourceVersion can be spliced in,
replaced and taken out without decoding. `Stored` is an object in memory, `Change` a committed change of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec

__all__ = [
    "Change",
    "Lean",
    "Object",
    "Stored",
    "decode",
    "encode",
    "encode_value",
    "key_of",
    "prefix_of",
    "respliced",
    "spliced",
    "split_key",
]

Object = dict[str, Any]
ROOT = "/registry/"

encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_METADATA = b'"metadata":{'
_VERSION = b'"metadata":{"resourceVersion":"'


def decode(body: bytes) -> Object:
    decoded: Object = _decode(body)
    return decoded


def encode_value(obj: Object) -> bytes:
    """The object as the store keeps it. `obj` is not changed."""
    metadata = obj["metadata"]
    if "resourceVersion" in metadata:
        metadata = {key: value for key, value in metadata.items() if key != "resourceVersion"}
    ordered: Object = {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "metadata": metadata}
    for key, value in obj.items():
        if key not in ordered:
            ordered[key] = value
    return encode(ordered)


def spliced(value: bytes, revision: int) -> bytes:
    """A stored value with its resourceVersion."""
    at = value.index(_METADATA) + 12
    return b'%b"resourceVersion":"%d",%b' % (value[:at], revision, value[at:])


def respliced(body: bytes, revision: int) -> bytes:
    """A body with another resourceVersion: what a deletion shows."""
    at = body.index(_VERSION) + 31
    return b"%b%d%b" % (body[:at], revision, body[body.index(b'"', at) :])


def key_of(kind: tuple[str, str], namespace: str, name: str) -> str:
    """`/registry/<group or core>/<resource>/<namespace or ->/<name>`."""
    return f"{ROOT}{kind[0] or 'core'}/{kind[1]}/{namespace or '-'}/{name}"


def prefix_of(kind: tuple[str, str]) -> str:
    """Where all objects of a kind are."""
    return f"{ROOT}{kind[0] or 'core'}/{kind[1]}/"


def split_key(key: str) -> tuple[tuple[str, str], str]:
    """((group, resource), `namespace/name`) of a store key."""
    group, resource, item = key[len(ROOT) :].split("/", 2)
    return ("" if group == "core" else group, resource), item


class LeanMeta(msgspec.Struct):
    """The part of metadata that selectors and owners need."""

    labels: dict[str, str] | None = None


class Lean(msgspec.Struct):
    metadata: LeanMeta


_lean = msgspec.json.Decoder(Lean).decode
_NO_LABELS: dict[str, str] = {}


class Stored:
    """One object in memory: its key within the kind (`namespace/name`), its revision, its JSON with resourceVersion."""

    __slots__ = ("_labels", "body", "item", "message", "revision")

    def __init__(self, item: str, revision: int, body: bytes) -> None:
        self.item = item
        self.revision = revision
        self.body = body
        self.message: bytes | None = None
        """The object as protobuf, once a list has needed it."""
        self._labels: dict[str, str] | None = None

    @property
    def namespace(self) -> str:
        namespace = self.item.partition("/")[0]
        return "" if namespace == "-" else namespace

    @property
    def name(self) -> str:
        return self.item.partition("/")[2]

    @property
    def labels(self) -> dict[str, str]:
        if self._labels is None:
            self._labels = _lean(self.body).metadata.labels or _NO_LABELS
        return self._labels

    def decode(self) -> Object:
        """A fresh copy that the caller may change."""
        decoded: Object = _decode(self.body)
        return decoded


@dataclass(frozen=True, slots=True)
class Change:
    """A committed change of one object, whoever made it. `object` and `previous` are decoded on each use."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    group: str
    resource: str
    namespace: str
    name: str
    revision: int
    body: bytes
    """JSON with resourceVersion, in the storage version; of a deletion the last state with the deletion's revision."""
    previous_body: bytes | None

    @property
    def object(self) -> Object:
        return decode(self.body)

    @property
    def previous(self) -> Object | None:
        return None if self.previous_body is None else decode(self.previous_body)
