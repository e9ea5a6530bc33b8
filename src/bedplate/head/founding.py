"""Revision 1 of a new site: the only commit that nobody has to be allowed to make.

In: an empty store and the first tree. Out: its revision. No front end can reach this: a site is created by
`bedplate head init`, before anything serves it.
"""

from __future__ import annotations

from collections.abc import Sequence

from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.head import policy
from bedplate.head.ledger import Ledger, Outcome
from bedplate.head.schema.entity import Schema
from bedplate.head.session import Edit
from bedplate.head.tree import Tree
from bedplate.head.validate import apply_edits
from bedplate.head.vault import Vault
from bedplate.store.interface import Store

__all__ = ["create_site"]


async def create_site(
    store: Store,
    schema: Schema,
    vault: Vault,
    edits: Sequence[Edit],
    *,
    author: str,
    message: str,
    clock: Clock | None = None,
) -> None:
    """Write the first tree, which must have an enabled administrator. Raises `AlreadyExists`, `Invalid`."""

    async def decide(tree: Tree) -> Outcome:
        if ledger.revision:
            raise errors.AlreadyExists(
                f"the store already holds a site, at revision {ledger.revision}",
                hint="create the site in another store",
            )
        after, changes = apply_edits(tree, edits, 1, vault.seal)
        policy.require_administrator(after)
        return Outcome(after, changes)

    ledger = Ledger(store, schema, vault, clock=clock)
    await ledger.open()
    await ledger.append(author, message, decide)
