"""Whether a tree is as it should be: asked of what changed, never of all.

In: the tree as it would be, and the top-level objects that differ from one known to be good. Out: every fault, or
nothing. The cost grows with what changed and with what refers to what was removed, not with the tree.
"""

from __future__ import annotations

from collections.abc import Iterable

from bedplate.core import errors
from bedplate.head.objects import Obj
from bedplate.head.tree import Address, Tree, links

__all__ = ["check", "problems"]

_NAMED = 5


def check(tree: Tree, touched: Iterable[Address]) -> None:
    """Raise `Invalid` with every fault."""
    faults = problems(tree, touched)
    if faults:
        raise errors.Invalid(
            "the changes cannot be committed", problems=faults, hint="nothing was written; correct it and commit again"
        )


def problems(tree: Tree, touched: Iterable[Address]) -> list[str]:
    """What would be wrong after the change, in the order of the objects."""
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
        faults.extend(_dangling(tree, mode, obj))
        faults.extend(_own(tree, obj, f"{mode}[{key}]"))
        asked_again.update(_judged_with(tree, mode, key))
    for mode, key in sorted(asked_again - touched):
        obj = tree.find(mode, key)
        if obj is not None:
            faults.extend(_own(tree, obj, f"{mode}[{key}]"))
    return faults


def _dangling(tree: Tree, mode: str, obj: Obj) -> list[str]:
    faults = []
    for link in sorted(links(tree.schema, mode, obj)):
        if link.mode.startswith("="):
            others = [name for name in tree.referrers(link.mode, link.key, mode) if name != obj.key]
            if others:
                faults.append(f"{mode}[{obj.key}]: {link.through} {link.key} is taken by {mode}[{min(others)}]")
        elif tree.find(link.mode, link.key) is None:
            faults.append(f"{mode}[{obj.key}]: {link.through} names {link.mode} {link.key!r}, which does not exist")
    return faults


def _own(tree: Tree, obj: Obj, where: str) -> list[str]:
    faults = [f"{where}: {problem}" for problem in tree.schema.of(obj).problems(obj, tree.find)]
    for submode, children in obj.children.items():
        for key, child in children.items():
            faults.extend(_own(tree, child, f"{where}->{submode}[{key}]"))
    return faults


def _judged_with(tree: Tree, mode: str, key: str) -> Iterable[Address]:
    for by, submode in tree.schema.modes.items():
        if any(entity.judged_with_targets for entity in submode.of):
            yield from ((by, name) for name in tree.referrers(mode, key, by))
