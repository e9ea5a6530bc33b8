"""The proof that records are a whole head: the same for a backup that is being written and for one that is restored.

In: all records of a head, in the order of their keys, and the vault of its secrets. Out: nothing, or `Invalid` that
says what is wrong. Every object, revision and token must be readable, the revisions must have no holes, and the log
must give the very tree that the objects show.
"""

from __future__ import annotations

from collections.abc import Sequence

from bedplate.core import errors
from bedplate.head import changes, records, tokens
from bedplate.head.entities import SCHEMA
from bedplate.head.records import SealedRevision
from bedplate.head.tree import Tree
from bedplate.head.vault import Vault
from bedplate.store.interface import Entry

__all__ = ["prove"]

_HINT = "use another backup, or the store of another head node"


def prove(entries: Sequence[Entry], vault: Vault) -> None:
    """Raise `Invalid` unless the records are those of a whole head with at least one revision."""
    try:
        _prove(entries, vault)
    except errors.Invalid:
        raise
    except (errors.BedplateError, LookupError, TypeError, ValueError, AttributeError) as err:
        raise errors.Invalid(f"the records cannot be read: {err}", hint=_HINT) from err


def _prove(entries: Sequence[Entry], vault: Vault) -> None:
    codec = records.Codec(SCHEMA, vault)
    revisions = [codec.decode_revision(entry.value) for entry in entries if entry.key.startswith(records.REVISIONS)]
    for expected, revision in enumerate(revisions, 1):
        if revision.number != expected:
            raise errors.Invalid(f"revision {expected} is missing in the records", hint=_HINT)
    if not revisions:
        raise errors.Invalid("the records contain no revision", hint=_HINT)
    for entry in entries:
        if entry.key.startswith(tokens.TOKENS):
            tokens.decode(entry)
    if _content(_recorded(entries, codec, vault, revisions)) != _content(_replayed(revisions, vault)):
        raise errors.Invalid("the recorded objects do not match the log of revisions", hint=_HINT)


def _recorded(
    entries: Sequence[Entry], codec: records.Codec, vault: Vault, revisions: Sequence[SealedRevision]
) -> Tree:
    """The tree as a head opens it: the objects, and what they lack of the log."""
    objects = [
        codec.decode_object(entry.key, entry.value) for entry in entries if entry.key.startswith(records.OBJECTS)
    ]
    latest = next((int(entry.value) for entry in entries if entry.key == records.LATEST), 0)
    if latest > len(revisions):
        raise errors.Invalid(f"the log ends at revision {len(revisions)}, the objects at {latest}", hint=_HINT)
    tree = Tree(SCHEMA, objects)
    for revision in revisions[latest:]:
        tree = changes.apply(tree, records.missing(tree, revision), vault.unseal, revision.number)
    return tree


def _replayed(revisions: Sequence[SealedRevision], vault: Vault) -> Tree:
    tree = Tree(SCHEMA)
    for revision in revisions:
        tree = changes.apply(tree, revision.changes, vault.unseal, revision.number)
    return tree


def _content(tree: Tree) -> dict[tuple[str, str], object]:
    return {(mode, obj.key): obj for mode, obj in tree.objects()}
