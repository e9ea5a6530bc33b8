"""What edits make of a tree, and whether that is as it should be: asked of what changed, never of all.

In: a tree, and edits of its top-level objects. Out: the edits with their masked secrets filled in; the tree they make
and the changes in it, or every fault. The cost grows with what changed and with what refers to what was removed, not
with the tree. Pure: `policy` says who may make the edits, `service` whether somebody else was first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from bedplate.api.headapi import EXTRA
from bedplate.core import errors
from bedplate.head import changes
from bedplate.head.changes import MASK
from bedplate.head.objects import Obj, Secret, Value
from bedplate.head.schema import codec
from bedplate.head.schema.entity import typed
from bedplate.head.schema.kinds import size_in_words
from bedplate.head.session import Edit
from bedplate.head.tree import Address, Tree, link_alike, links

__all__ = ["apply_edits", "fill_masks", "problems"]

_NAMED = 5
_is_extra = re.compile(EXTRA).fullmatch


def apply_edits(tree: Tree, edits: Sequence[Edit], number: int, seal: codec.Seal) -> tuple[Tree, list[changes.Change]]:
    """The tree that the edits make, as revision `number`, and what they change. Raises `Invalid` with every fault."""
    changed: list[changes.Change] = []
    touched: list[tuple[str, str, Obj | None]] = []
    for edit in edits:
        place = (edit.mode, edit.key)
        differences = changes.diff(tree.schema, place, tree.find(*place), edit.new, seal)
        if differences:
            changed.extend(differences)
            touched.append((*place, None if edit.new is None else edit.new.at(number)))
    after = tree.with_objects(touched)
    faults = problems(after, [(mode, key) for mode, key, _ in touched], tree)
    if faults:
        raise errors.Invalid(
            "the changes cannot be committed", problems=faults, hint="nothing was written; correct it and commit again"
        )
    return after, changed


def fill_masks(edits: Sequence[Edit], *trees: Tree) -> list[Edit]:
    """The edits with the secrets that their masks stand for, from the first tree that has the object. What got another
    name brings its secrets along, if the commit gives the old name up or to another object that got it.

    Raises `Invalid` naming every mask that stands for nothing, and an object that is edited twice.
    """
    filled: dict[Address, Edit] = {}
    left = {(edit.mode, edit.key) for edit in edits if edit.new is None or edit.was}
    for edit in edits:
        place = (edit.mode, edit.key)
        if place in filled:
            raise errors.Invalid(f"{edit.mode}[{edit.key}] is edited twice in one commit", hint="send it once")
        source = (edit.mode, edit.was) if edit.was and (edit.mode, edit.was) in left else place
        present = next((obj for tree in trees if (obj := tree.find(*source)) is not None), None)
        lacking: list[str] = []
        new = edit.new
        if new is not None and (new.children or not trees[0].schema.secrets.isdisjoint(new.values)):
            new = _with_secrets(new, present, f"{edit.mode}[{edit.key}]", lacking)
        if lacking:
            raise errors.Invalid(
                f"{MASK} keeps a secret, but none is set",
                hint="write the secret itself, or leave the field out",
                problems=lacking,
            )
        filled[place] = edit if new is edit.new else edit._replace(new=new)
    return list(filled.values())


def _with_secrets(new: Obj, present: Obj | None, where: str, lacking: list[str]) -> Obj:
    if not new.children and not any(isinstance(value, Secret) for value in new.values.values()):
        return new
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


def problems(tree: Tree, touched: Iterable[Address], before: Tree | None = None) -> list[str]:
    """What would be wrong after the change of those objects, in their order. Of `before`, where it is given, nothing is
    wrong: what refers to the same objects as there is not asked whether they exist."""
    faults: list[str] = []
    asked_again: set[Address] = set()
    touched = set(touched)
    for mode, key in sorted(touched):
        obj = tree.find(mode, key)
        if obj is None:
            users = tree.users(mode, key)
            if users:
                more = f" and {len(users) - _NAMED} more" if len(users) > _NAMED else ""
                faults.append(f"{mode}[{key}] is used by {', '.join(users[:_NAMED])}{more}: it cannot be removed")
            continue
        faults.extend(_oversize(tree, mode, obj))
        past = before.find(mode, key) if before is not None else None
        if past is None or not link_alike(tree.schema, past, obj):
            faults.extend(_dangling(tree, mode, obj))
        faults.extend(_own(tree, obj, past, f"{mode}[{key}]"))
        for by in tree.schema.judged_with_targets:
            asked_again.update((by, name) for name in tree.referrers(mode, key, by))
    for mode, key in sorted(asked_again - touched):
        obj = tree.find(mode, key)
        if obj is not None:
            faults.extend(_own(tree, obj, obj if before is not None else None, f"{mode}[{key}]"))
    return faults


def _oversize(tree: Tree, mode: str, obj: Obj) -> list[str]:
    size, largest = codec.size(tree.schema, obj), tree.schema.largest_bytes
    if size <= largest:
        return []
    return [
        f"{mode}[{obj.key}] is too large: {size_in_words(largest)} are allowed for an object with all that is in it, "
        f"and it has {size - largest:,} bytes more"
    ]


def _dangling(tree: Tree, mode: str, obj: Obj) -> list[str]:
    faults = []
    for link in sorted(links(tree.schema, mode, obj)):
        if link.mode.startswith("="):
            others = [name for name in tree.referrers(link.mode, link.key, mode) if name != obj.key]
            if others:
                way = typed(link.through)
                faults.append(f"{mode}[{obj.key}]: {way} {link.key} is already used by {mode}[{min(others)}]")
        elif tree.find(link.mode, link.key) is None:
            way = typed(link.through)
            faults.append(f"{mode}[{obj.key}]: {way} names {link.mode} {link.key!r}, which does not exist")
    return faults


def _own(tree: Tree, obj: Obj, past: Obj | None, where: str) -> list[str]:
    """What is wrong with an object and what is in it; `past` is what it was, whose names are not asked about again."""
    entity = tree.schema.of(obj)
    faults = [f"{where}: {problem}" for problem in entity.problems(obj, tree.find)]
    if past is None or past.type != obj.type:
        past = None
        try:
            entity.check_name(obj.key)
        except errors.Invalid as err:
            faults.append(f"{where}: {err.message}")
    faults.extend(
        f"{where}: {name!r} cannot be the name of an extra parameter"
        for name in obj.extras
        if (past is None or name not in past.extras) and not _is_extra(name)
    )
    for submode, children in obj.children.items():
        known = past.below(submode) if past is not None else {}
        for key, child in children.items():
            faults.extend(_own(tree, child, known.get(key), f"{where}->{submode}[{key}]"))
    return faults
