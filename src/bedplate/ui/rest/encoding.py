"""Answers as JSON: each object is encoded once for as long as it stays as it is.

In: objects and revisions of the head. Out: bytes and Structs of `api.headapi`. Secrets are stars in all of them.
"""

from __future__ import annotations

import msgspec

from bedplate.api import headapi
from bedplate.head import Address, Obj, Schema, Tree
from bedplate.head.schema import codec

__all__ = ["Encoder"]


class Encoder:
    """Remembers the bytes of the objects it was last asked for."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._made: dict[Address, tuple[Obj, bytes]] = {}

    def shown(self, mode: str, obj: Obj) -> headapi.Object:
        """An object for people and programs."""
        data = codec.encode(self._schema, obj, lambda secret: headapi.MASK)
        return headapi.Object(mode=mode, key=obj.key, revision=obj.revision, **data)

    def encoded(self, mode: str, obj: Obj) -> bytes:
        """The same as bytes."""
        cached = self._made.get((mode, obj.key))
        if cached is not None and cached[0] is obj:
            return cached[1]
        data = msgspec.json.encode(self.shown(mode, obj))
        self._made[mode, obj.key] = (obj, data)
        return data

    def tree(self, head: str, revision: int, tree: Tree) -> bytes:
        """A whole tree; what is no longer in it is forgotten here."""
        objects = [msgspec.Raw(self.encoded(mode, obj)) for mode, obj in tree.objects()]
        if len(self._made) > 2 * len(objects) + 1000:
            self._made.clear()
        return msgspec.json.encode({"head": head, "revision": revision, "objects": objects})
