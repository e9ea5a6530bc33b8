"""What was applied of each application, and how it stands: kept beside the tree, so that a restart knows it.

In: a store. Out: one record for each application that has, or may have, objects in its cluster. An object is in the
record before it is applied and until it is gone, so that whoever goes on later finds all of them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from bedplate.head.applications.manifests import Manifest
from bedplate.head.book import Book
from bedplate.store.interface import Store

__all__ = ["APPLICATIONS", "Application", "Item", "Trouble", "book", "item_of", "name_of"]

APPLICATIONS = "/head/applications/"


class Item(msgspec.Struct, frozen=True, omit_defaults=True):
    """An object in the cluster. Its version is not part of what it is: servers serve one object in several."""

    group: str
    kind: str
    namespace: str
    name: str

    @property
    def claim(self) -> tuple[str, str, str, str]:
        return self.group, self.kind, self.namespace or "default", self.name

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class Trouble(msgspec.Struct, frozen=True):
    """An object that is not as it should be, and why."""

    object: str
    reason: str


class Application(msgspec.Struct, frozen=True, omit_defaults=True):
    """An application as it stands since a time (RFC 3339). `place` is the identity of the cluster that the objects are
    in: another one behind the same name has none of them."""

    cluster: str
    group: str
    name: str
    place: str
    state: Literal["pending", "applied", "failed", "removing"] = "pending"
    since: str = ""
    objects: tuple[Item, ...] = ()
    failures: tuple[Trouble, ...] = ()
    warnings: tuple[str, ...] = ()


def name_of(cluster: str, group: str, name: str) -> str:
    """The name of a record; no object may be called with a comma."""
    return f"{cluster},{group},{name}"


def book(store: Store) -> Book[Application]:
    """All records of a site."""
    return Book(store, APPLICATIONS, Application)


def item_of(manifest: Manifest, *, namespaced: bool) -> Item:
    """The object of a manifest, in the namespace that it really has."""
    namespace = (manifest.namespace or "default") if namespaced else ""
    return Item(manifest.group, manifest.kind, namespace, manifest.name)
