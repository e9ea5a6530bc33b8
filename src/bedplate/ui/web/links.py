"""Addresses of the page: which URL shows which object, and the menu of all pages, in groups.

In: paths of the tree, the schema, the address of the present page. Out: URLs of this page, which nothing else may make;
groups of entries. A mode that the page knows nothing special about comes under `Site`, with its own name, so that a new
declaration is in the menu at once.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

from bedplate.head import Path, Schema, Tree
from bedplate.head.resolve import Source

__all__ = [
    "Entry",
    "Group",
    "add",
    "bulk",
    "cause",
    "clone",
    "counted",
    "edit",
    "local",
    "navigation",
    "plural",
    "remove",
    "revision",
    "show",
    "title",
]


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


def bulk(mode: str) -> str:
    """The form for many objects of a mode."""
    return _joined("bulk", (mode,))


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
    """An address to go on to after signing in: one of this page, or the overview.

    Browsers leave out line breaks and tabs, and read a backslash as a slash: none of these is in an address of ours.
    """
    is_plain = text.isprintable() and not any(letter in " \\" for letter in text)
    return text if is_plain and text.startswith("/") and not text.startswith("//") else "/"


class Entry(NamedTuple):
    label: str
    way: str
    is_here: bool


class Group(NamedTuple):
    label: str
    entries: tuple[Entry, ...]


_PLURAL = {
    "device": "Devices",
    "category": "Categories",
    "softwareimage": "Software images",
    "network": "Networks",
    "configurationoverlay": "Overlays",
    "kubernetes": "Kubernetes",
    "etcd": "etcd",
    "healthcheck": "Health checks",
    "user": "Users",
}
_GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Machines", ("/", "device", "/health", "/rollout", "/images")),
    ("Configuration", ("category", "softwareimage", "configurationoverlay", "/roles", "network")),
    ("Clusters", ("kubernetes", "/setup", "etcd", "/appgroups", "/people")),
    ("Site", ("healthcheck", "user", "/credentials", "/history", "/events")),
)
_PAGES = {
    "/": "Overview",
    "/health": "Health",
    "/images": "Image updates",
    "/rollout": "Roll-out",
    "/roles": "Roles",
    "/appgroups": "App groups",
    "/people": "People",
    "/setup": "Setup",
    "/credentials": "Credentials",
    "/history": "History",
    "/events": "Events",
}


def plural(schema: Schema, mode: str) -> str:
    """The heading of a mode's list."""
    return _PLURAL.get(mode, schema.modes[mode].label)


def counted(schema: Schema, mode: str, count: int) -> str:
    """What so many objects of a mode are called."""
    several = plural(schema, mode)
    if count != 1 or several.lower() == mode:
        return several
    return f"{several[:-3]}y" if several.endswith("ies") else several.removesuffix("s")


def navigation(schema: Schema, here: str) -> tuple[Group, ...]:
    """The menu as the page at an address has it."""
    named = {name for _, entries in _GROUPS for name in entries}
    others = tuple(mode for mode in schema.modes if mode not in named)
    groups = []
    for label, names in _GROUPS:
        listed = (*names, *others) if label == "Site" else names
        entries = [_entry(schema, name, here) for name in listed if name in _PAGES or name in schema.modes]
        groups.append(Group(label, tuple(entries)))
    return tuple(groups)


def _entry(schema: Schema, name: str, here: str) -> Entry:
    way = name if name in _PAGES else show((name,))
    is_here = here == way or (way != "/" and here.startswith(way + "/"))
    if name in schema.modes:
        is_here = is_here or any(here.startswith(f"/{verb}/{name}") for verb in ("edit", "add", "bulk"))
    return Entry(_PAGES.get(name) or plural(schema, name), way, is_here)
