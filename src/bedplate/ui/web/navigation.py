"""The menu of the page: which pages there are, in groups.

In: the schema and the address of the present page. Out: groups of entries. A mode that the page knows nothing special
about comes under `Site`, with its own name, so that a new declaration is in the menu at once.
"""

from __future__ import annotations

from typing import NamedTuple

from bedplate.head import Schema
from bedplate.ui.web import links

__all__ = ["Entry", "Group", "navigation", "plural"]


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
    ("Machines", ("/", "device", "/health")),
    ("Configuration", ("category", "softwareimage", "configurationoverlay", "/roles", "network")),
    ("Clusters", ("kubernetes", "etcd", "/appgroups")),
    ("Site", ("healthcheck", "user", "/history", "/events")),
)
_PAGES = {
    "/": "Overview",
    "/health": "Health",
    "/roles": "Roles",
    "/appgroups": "App groups",
    "/history": "History",
    "/events": "Events",
}


def plural(schema: Schema, mode: str) -> str:
    """The heading of a mode's list."""
    return _PLURAL.get(mode, schema.modes[mode].label)


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
    way = name if name in _PAGES else links.show((name,))
    is_here = here == way or (way != "/" and here.startswith(way + "/"))
    if name in schema.modes:
        is_here = is_here or any(here.startswith(f"/{verb}/{name}") for verb in ("edit", "add"))
    return Entry(_PAGES.get(name) or plural(schema, name), way, is_here)
