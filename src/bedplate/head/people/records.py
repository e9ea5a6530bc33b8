"""What the head made for users, kept beside the tree: below `/head/people/`, one record for each user of a cluster.

A permission object is deleted only if it is in a record, carries the head's label, and the cluster is still the same
one: that a user leaves the tree does not prove that an object of theirs was made because of it.
"""

from __future__ import annotations

import msgspec

from bedplate.head.book import Book
from bedplate.store.interface import Store

__all__ = ["PEOPLE", "Person", "book", "name_of"]

PEOPLE = "/head/people/"


class Person(msgspec.Struct, frozen=True, omit_defaults=True):
    """A user of a cluster. `place` is the identity of the cluster; `objects` are `plural/name` of permission objects,
    recorded before they are there."""

    cluster: str
    user: str
    place: str
    objects: tuple[str, ...] = ()


def name_of(cluster: str, user: str) -> str:
    """The name of a record; no object may be called with a comma."""
    return f"{cluster},{user}"


def book(store: Store) -> Book[Person]:
    """All records of a site."""
    return Book(store, PEOPLE, Person)
