"""What edits make of a tree.

In: a tree, and edits of its top-level objects. Out: the edits with their masked secrets filled in; the tree they make
and the changes in it, valid. Pure: `policy` says who may make them, `service` whether somebody else was first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bedplate.core import errors
from bedplate.head import changes, validate
from bedplate.head.changes import MASK
from bedplate.head.objects import Obj, Secret, Value
from bedplate.head.schema import codec
from bedplate.head.session import Edit
from bedplate.head.tree import Tree

__all__ = ["apply_edits", "fill_masks"]


def apply_edits(tree: Tree, edits: Sequence[Edit], number: int, seal: codec.Seal) -> tuple[Tree, list[changes.Change]]:
    """The tree that the edits make, as revision `number`, and what they change. Raises `Invalid`."""
    before, changed = tree, []
    touched = []
    for edit in edits:
        differences = changes.diff(tree.schema, edit.mode, edit.key, before.find(edit.mode, edit.key), edit.new, seal)
        if differences:
            changed.extend(differences)
            touched.append((edit.mode, edit.key))
            new = None if edit.new is None else replace(edit.new, revision=number)
            tree = tree.with_object(edit.mode, edit.key, new)
    validate.check(tree, touched)
    return tree, changed


def fill_masks(edits: Sequence[Edit], *trees: Tree) -> list[Edit]:
    """The edits with the secrets that their masks stand for, from the first tree that has the object.

    Raises `Invalid` naming every mask that stands for nothing, and an object that is edited twice.
    """
    seen = set()
    for edit in edits:
        if (edit.mode, edit.key) in seen:
            raise errors.Invalid(f"{edit.mode}[{edit.key}] is edited twice in one commit", hint="send it once")
        seen.add((edit.mode, edit.key))
    return [edit if edit.new is None else edit._replace(new=_filled(edit, edit.new, trees)) for edit in edits]


def _filled(edit: Edit, new: Obj, trees: Sequence[Tree]) -> Obj:
    present = next((obj for tree in trees if (obj := tree.find(edit.mode, edit.key)) is not None), None)
    lacking: list[str] = []
    filled = _with_secrets(new, present, f"{edit.mode}[{edit.key}]", lacking)
    if lacking:
        raise errors.Invalid(
            f"{MASK} keeps a secret, but none is set",
            hint="write the secret itself, or leave the field out",
            problems=lacking,
        )
    return filled


def _with_secrets(new: Obj, present: Obj | None, where: str, lacking: list[str]) -> Obj:
    same = present if present is not None and present.type == new.type else None
    values: dict[str, Value] = {}
    for name, value in new.values.items():
        values[name] = value
        if isinstance(value, Secret) and value.reveal() == MASK:
            kept = same.values.get(name) if same is not None else None
            if isinstance(kept, Secret):
                values[name] = kept
            else:
                lacking.append(f"{where}.{name} is not set")
    children: dict[str, Mapping[str, Obj]] = {}
    for submode, inner in new.children.items():
        below = same.below(submode) if same is not None else {}
        children[submode] = {
            key: _with_secrets(child, below.get(key), f"{where}->{submode}[{key}]", lacking)
            for key, child in inner.items()
        }
    return replace(new, values=values, children=children)
