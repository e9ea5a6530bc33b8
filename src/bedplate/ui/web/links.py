"""Addresses of the page: which URL shows which object.

In: paths of the tree. Out: URLs of this page. Nothing else may make one.
"""

from __future__ import annotations

from urllib.parse import quote

from bedplate.head import Path, Tree
from bedplate.head.resolve import Source

__all__ = ["add", "cause", "clone", "edit", "local", "remove", "revision", "show", "title"]


def _joined(verb: str, path: Path) -> str:
    return f"/{verb}/" + "/".join(quote(part, safe=":@") for part in path)


def show(path: Path) -> str:
    """The page of an object or a list."""
    return _joined("show", path)


def edit(path: Path) -> str:
    """The form of an object."""
    return _joined("edit", path)


def add(place: Path) -> str:
    """The form for a new object in a list."""
    return _joined("add", place)


def clone(path: Path) -> str:
    return _joined("clone", path)


def remove(path: Path) -> str:
    return _joined("remove", path)


def revision(number: int) -> str:
    return f"/history/{number}"


def title(path: Path) -> str:
    """A path in the shell's words: `category[default]->roles[kubelet]`."""
    pairs = [f"{path[at]}[{path[at + 1]}]" for at in range(0, len(path) - 1, 2)]
    return "->".join([*pairs, *path[len(path) - len(path) % 2 :]])


def cause(tree: Tree, source: Source) -> str:
    """The page of what caused a fact: the role in it, where there is one, else the object; empty when it is gone."""
    obj = tree.find(source.mode, source.key)
    if obj is None:
        return ""
    for submode, children in obj.children.items():
        if source.part and source.part in children:
            return show((source.mode, source.key, submode, source.part))
    return show((source.mode, source.key))


def local(text: str) -> str:
    """An address to go on to after signing in: one of this page, or the overview."""
    return text if text.startswith("/") and not text.startswith(("//", "/\\")) else "/"
