"""The tree as one YAML document, and back.

In: a tree; or a document. Out: a document that is the same for the same tree, byte for byte; or edits staged in a
session. Secrets are left out unless asked for; an import leaves a secret that the document does not mention as it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import yaml

from bedplate.core import errors, yamls
from bedplate.head.objects import Obj, Secret
from bedplate.head.schema import codec
from bedplate.head.schema.entity import Schema
from bedplate.head.session import Edit, Session
from bedplate.head.tree import Tree

__all__ = ["export", "read", "replacing", "stage"]

_FORMAT = "bedplate/head/v1"


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """YAML without anchors: the same text twice is written twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def export(tree: Tree, *, with_secrets: bool = False) -> str:
    """The document of a tree."""
    seal = codec.plain if with_secrets else codec.left_out
    document: dict[str, Any] = {"format": _FORMAT}
    for mode, obj in tree.objects():
        document.setdefault(mode, {})[obj.key] = codec.encode(tree.schema, obj, seal)
    return str(yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000))


def read(schema: Schema, text: str) -> list[tuple[str, Obj]]:
    """The objects in a document. Raises `Invalid` with every fault."""
    try:
        document = yamls.load(text, strict=True)
    except yaml.YAMLError as wrong:
        raise errors.Invalid(f"the document is not YAML: {wrong}", hint="use a file that export wrote") from wrong
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise errors.Invalid(
            f"the document is not an export of a head: its format is not {_FORMAT}",
            hint="use a file that export wrote",
        )
    entries: list[tuple[str, Obj]] = []
    problems: list[str] = []
    for mode, objects in document.items():
        if mode == "format":
            continue
        if mode not in schema.modes or not isinstance(objects, dict):
            problems.append(f"there is no mode {mode!r}")
            continue
        for key, data in objects.items():
            try:
                entries.append((mode, codec.decode(schema, schema.modes[mode], str(key), data)))
            except errors.Invalid as wrong:
                problems.extend(wrong.problems or [wrong.message])
    if problems:
        raise errors.Invalid("the document cannot be imported", problems=problems)
    return entries


def stage(session: Session, text: str, *, prune: bool = False) -> None:
    """Stage a document: its objects replace those of the same name; `prune` removes what it does not name."""
    _put(session, read(session.schema, text), prune)


def replacing(objects: Sequence[tuple[str, Obj]], *, prune: bool = False) -> Callable[[Tree], Awaitable[list[Edit]]]:
    """The edits that write the objects of a document over whatever tree they are committed on."""

    async def edits(tree: Tree) -> list[Edit]:
        session = Session(tree)
        _put(session, objects, prune)
        return session.edits()

    return edits


def _put(session: Session, objects: Sequence[tuple[str, Obj]], prune: bool) -> None:
    named = {(mode, obj.key) for mode, obj in objects}
    gone = [(mode, obj.key) for mode, obj in session.tree.objects() if (mode, obj.key) not in named] if prune else []
    for mode, obj in objects:
        present = session.tree.find(mode, obj.key)
        session.put((mode, obj.key), obj if present is None else _with_secrets(obj, present))
    for path in gone:
        session.put(path, None)


def _with_secrets(new: Obj, old: Obj) -> Obj:
    """With the secrets of the old object where the new one says nothing of them."""
    if new.type != old.type:
        return new
    kept = {name: value for name, value in old.values.items() if isinstance(value, Secret) and name not in new.values}
    children: Mapping[str, Mapping[str, Obj]] = {
        submode: {
            key: _with_secrets(child, old.below(submode)[key]) if key in old.below(submode) else child
            for key, child in inner.items()
        }
        for submode, inner in new.children.items()
    }
    return Obj(new.type, new.key, {**new.values, **kept}, new.extras, children, new.revision)
