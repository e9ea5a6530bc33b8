"""What a request wants to write, as edits of the head.

In: objects and edits as they were sent. Out: `Edit`s, with masks where the secret is to stay. Pure: whether they may be
committed is decided in the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.head import Edit, Obj, Tree
from bedplate.head.schema import codec
from bedplate.ui.rest.problems import Malformed

__all__ = ["decoded", "edits_in"]

_PLACE = ("mode", "key", "revision")


def decoded(tree: Tree, mode: str, key: str, document: headapi.ObjectWrite) -> Obj:
    """An object as it was sent. Raises `Malformed`, and `Invalid` for one of the right form that cannot be."""
    data: dict[str, Any] = msgspec.to_builtins(document)
    for name, place in (("mode", mode), ("key", key)):
        if data.get(name, place) != place:
            raise errors.Invalid(
                f"the object says {name} {data[name]!r}, its address {place!r}", hint=f"leave out {name}"
            )
    try:
        return codec.decode(
            tree.schema, tree.schema.modes[mode], key, {k: v for k, v in data.items() if k not in _PLACE}
        )
    except codec.UnfitObject:
        raise
    except errors.Invalid as wrong:
        raise Malformed(wrong.message, hint=wrong.hint, problems=list(wrong.problems)) from None


def edits_in(tree: Tree, sent: Sequence[headapi.Edit]) -> list[Edit]:
    """Edits as the head takes them; masks in them stay. Raises `Malformed`, `Invalid`."""
    edits = []
    for edit in sent:
        if edit.mode not in tree.schema.modes:
            raise Malformed(f"there is no mode {edit.mode!r}", hint=f"modes: {', '.join(tree.schema.modes)}")
        base = None if edit.base is None else Obj("", edit.key, revision=edit.base)
        edits.append(Edit(edit.mode, edit.key, base, None if edit.object is None else _object(tree, edit)))
    return edits


def _object(tree: Tree, edit: headapi.Edit) -> Obj:
    """The object of an edit. What it holds is asked of the tree's schema, so a fault in it is `Invalid`."""
    try:
        msgspec.convert(edit.object, headapi.ObjectWrite)
    except msgspec.ValidationError as wrong:
        raise Malformed(f"{edit.mode}[{edit.key}] is not an object: {wrong}") from None
    return codec.decode(tree.schema, tree.schema.modes[edit.mode], edit.key, edit.object)
