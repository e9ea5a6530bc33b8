"""The head: the only way to a revision, and to the tree.

In: edits, with the identity that commits them. Out: revisions, the present tree, history, a stream of revisions for
notices. Every front end commits through `commit_as` or `undo_as`. Both decide inside the serialised commit, on the tree
that is replaced: whether this head is the active one, who may edit what (`policy`), whether somebody else was first
(`Stale`), and whether the tree stays valid. `check_as` decides the same and writes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol

from bedplate.api.headapi import AuditEntry, Revision
from bedplate.core import errors, memory
from bedplate.core.clock import Clock
from bedplate.head import changes, policy
from bedplate.head.ledger import Ledger, Outcome
from bedplate.head.objects import Obj, Secret
from bedplate.head.policy import Identity
from bedplate.head.records import SealedRevision
from bedplate.head.schema.entity import Path, Schema
from bedplate.head.session import Edit, Session
from bedplate.head.tree import Tree
from bedplate.head.validate import apply_edits, fill_masks
from bedplate.head.vault import Vault
from bedplate.store.interface import Store

__all__ = ["Alone", "Edits", "Head", "NotActive", "Preview", "Stale", "Standing"]

Edits = Sequence[Edit] | Callable[[Tree], Awaitable[Sequence[Edit]]]
"""What to commit; a function is asked for it inside the commit, with the tree that is replaced."""


class Stale(errors.Conflict):
    """Another user committed the object first; `author` and `revision` identify that commit."""

    def __init__(self, mode: str, key: str, author: str, revision: int, *, removed: bool) -> None:
        what = "removed" if removed else "changed"
        super().__init__(
            f"{mode}[{key}] was {what} by {author} in revision {revision} since you started editing",
            hint="refresh takes the other version; commit --force overwrites it",
        )
        self.author = author
        self.revision = revision


class NotActive(errors.Unavailable):
    """This head does not accept writes; `url` is the address of the active one, if there is one."""

    def __init__(self, name: str, url: str) -> None:
        super().__init__(
            f"this head node is passive; {name or 'no other one'} is active",
            hint=f"write to {url}" if url else "try again in a few seconds: a head node is about to take over",
            retry_after_s=1.0,
        )
        self.url = url


class Standing(Protocol):
    """Whether this head is the active one: what is asked of an election, or of its absence."""

    @property
    def is_active(self) -> bool: ...

    @property
    def active_name(self) -> str: ...

    @property
    def active_url(self) -> str:
        """Where the active head serves; empty while nobody is known to be."""
        ...

    @property
    def trouble(self) -> str:
        """What is wrong with the store that the heads share; empty for nothing."""
        ...

    def refuse_writes(self) -> None:
        """Raise `NotActive` unless this head is certainly the active one now."""
        ...


class Alone:
    """The standing of a head with a store of its own."""

    def __init__(self, name: str, url: str) -> None:
        self.is_active = True
        self.active_name = name
        self.active_url = url
        self.trouble = ""

    def refuse_writes(self) -> None:
        return None


class Preview(NamedTuple):
    """What edits would make of the tree of a revision."""

    before: Tree
    revision: int
    after: Tree
    changes: list[changes.Change]


class Head:
    """Open with `async with`; the store is opened and closed by its owner.

    `standing` says which of several heads is the active one; a daemon with an election sets it before it serves.
    """

    def __init__(
        self,
        store: Store,
        schema: Schema,
        vault: Vault,
        *,
        clock: Clock | None = None,
        standing: Standing | None = None,
    ) -> None:
        self._ledger = Ledger(store, schema, vault, clock=clock)
        self.standing: Standing = standing or Alone("", "")
        self.rules: list[Callable[[Tree, Tree], None]] = []
        """Further rules of commits: each is given the trees before and after, and raises for what must not be."""
        self.holders: list[Callable[[Tree, Tree, int], Awaitable[None]]] = []
        """Called as `before_write` is, for every commit."""

    async def __aenter__(self) -> Head:
        await self._ledger.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._ledger.close()

    @property
    def tree(self) -> Tree:
        """The present tree."""
        return self._ledger.tree

    @property
    def revision(self) -> int:
        """The number of the last revision; 0 before the first."""
        return self._ledger.revision

    @property
    def incarnation(self) -> str:
        """Which history the revisions belong to: empty for a site's first; a restored backup begins another one, whose
        revisions may have numbers that others have seen before."""
        return self._ledger.incarnation

    def session(self) -> Session:
        """A session over the present tree."""
        return Session(self.tree)

    # Writing

    async def commit_as(
        self,
        identity: Identity,
        edits: Edits,
        message: str = "",
        *,
        force: bool = False,
        undoes: int = 0,
        nonce: str = "",
        request: str = "",
        before_write: Callable[[Tree, Tree, int], Awaitable[None]] | None = None,
    ) -> Revision | None:
        """Write the edits as one revision, secrets masked; None when they change nothing.

        Raises `NotActive`, `Denied`, `Stale` (unless forced) and `Invalid`. A masked secret keeps the one that is set;
        with `undoes`, the one that undoing this revision restores. The revision is marked as an undo only if the edits
        are exactly that. A `nonce` that this identity has used is answered with the revision it made, by any head node;
        `request` is a digest of what was asked with it, and another one is `NonceReused`. `before_write` is given the
        trees before and after, and the number, of a revision that is about to be written; what it raises refuses it.
        """

        async def decide(tree: Tree) -> Outcome:
            self.standing.refuse_writes()
            outcome = await self._decide(identity, tree, edits, force=force, undoes=undoes)
            if outcome.changes:
                for hold in (*([before_write] if before_write is not None else []), *self.holders):
                    await hold(tree, outcome.tree, self.revision + 1)
            return outcome

        # Nonces of different identities never meet.
        own = f"{identity.name}/{nonce}" if nonce else ""
        with memory.undisturbed():
            revision = await self._ledger.append(
                identity.name, message, decide, nonce=own, request=request if nonce else ""
            )
            return None if revision is None else self._public(revision)

    async def undo_as(
        self,
        identity: Identity,
        number: int,
        message: str = "",
        *,
        force: bool = False,
        nonce: str = "",
        request: str = "",
    ) -> Revision | None:
        """Undo a revision, as a new revision. Raises `Conflict` naming a later one in the way, and as `commit_as`."""

        async def reverse(tree: Tree) -> Sequence[Edit]:
            session = Session(tree)
            await self.stage_undo(session, number, force=force)
            return session.edits()

        message = message or f"undo of revision {number}"
        undoes = 0 if force else number
        return await self.commit_as(identity, reverse, message, undoes=undoes, nonce=nonce, request=request)

    async def check_as(
        self, identity: Identity, edits: Edits, *, force: bool = False, undoes: int = 0
    ) -> list[changes.Change]:
        """What `commit_as` would change, secrets masked; nothing is written. Raises what it would raise, except that a
        passive head answers as well."""
        outcome = await self._decide(identity, self.tree, edits, force=force, undoes=undoes)
        return changes.masked(self.tree.schema, outcome.changes)

    async def preview(self, edits: Sequence[Edit], *, force: bool = False) -> Preview:
        """What the edits would make of the present tree, whoever commits them. Raises `Stale`, `Invalid`."""
        before, revision = self.tree, self.revision
        if not force:
            await self._refuse_stale(before, edits)
        after, differences = apply_edits(before, fill_masks(edits, before), revision + 1, self._ledger.vault.seal)
        return Preview(before, revision, after, changes.masked(before.schema, differences))

    def refusal(self, identity: Identity, edits: Sequence[Edit]) -> str:
        """Why the identity may not commit the edits onto the present tree; empty when it may."""
        after = self.tree.with_objects((edit.mode, edit.key, edit.new) for edit in edits)
        try:
            caller = policy.confirm(identity, self.tree)
            policy.demand_edits(caller, self.tree, edits)
            policy.keep_access(caller, self.tree, after)
        except (errors.Denied, errors.Invalid) as err:
            return str(err)
        return ""

    async def stage_undo(self, session: Session, number: int, *, force: bool = False) -> None:
        """Stage the reverse of a revision in a session."""
        session.stage(await self.undo_changes(number, force=force), self.unseal)

    async def undo_changes(self, number: int, *, force: bool = False) -> list[changes.Change]:
        """What takes a revision back, secrets sealed. Raises `Conflict` naming what stands in the way."""
        history = self._ledger.history
        reverse = await history.reverse(number)
        obstacle = None if force else await history.obstacle(number, self.revision)
        if obstacle is not None:
            raise obstacle
        return reverse

    def unseal(self, sealed: Any) -> Secret:
        """The secret of a sealed one, for whoever stages changes."""
        return self._ledger.vault.unseal(sealed)

    # Reading

    async def tree_at(self, number: int) -> Tree:
        """The tree as it was after a revision; 0 is the empty one."""
        return await self._ledger.history.tree_at(self.tree, self.revision, number)

    async def read(self, number: int) -> Revision:
        """A revision with its secrets masked. Raises `NotFound`."""
        return self._public(await self._ledger.sealed(number))

    async def log(self, limit: int = 20, path: Path = (), *, before: int = 0) -> list[Revision]:
        """The newest revisions that touched something at or below a path, newest first; those before one, if named."""
        last = min(self.revision, before - 1) if before else self.revision
        revisions: list[Revision] = []
        async for revision in self._ledger.history.newest(last):
            if any(changes.meet(change.path, path) for change in revision.changes):
                revisions.append(self._public(revision))
            if len(revisions) >= limit:
                break
        return revisions

    async def audit(self, path: Path = (), limit: int = 100) -> list[AuditEntry]:
        """Who changed which parameter when, newest first."""
        return await self._ledger.history.audit(self.tree, self.revision, path, limit)

    async def revisions(self, after: int) -> AsyncIterator[Revision]:
        """Every revision after a number, as it comes, for as long as somebody reads. Secrets are masked."""
        while True:
            await self._ledger.wait_beyond(after)
            after += 1
            yield await self.read(after)

    async def follow(self) -> None:
        """Keep up with what other head nodes commit; runs until cancelled."""
        await self._ledger.follow()

    async def catch_up(self) -> None:
        """Apply what other head nodes have committed."""
        await self._ledger.catch_up()

    # Inside

    async def _decide(self, identity: Identity, tree: Tree, edits: Edits, *, force: bool, undoes: int) -> Outcome:
        """Every rule that a commit must keep, on the tree that it replaces."""
        edits = await edits(tree) if callable(edits) else edits
        reverse: Session | None = None
        if undoes:
            reverse = Session(tree)
            reverse.stage(await self._ledger.history.reverse(undoes), self.unseal)
        edits = fill_masks(edits, *([tree] if reverse is None else [reverse.tree, tree]))
        caller = policy.confirm(identity, tree)
        policy.demand_edits(caller, tree, edits)
        if not force:
            await self._refuse_stale(tree, edits)
        after, differences = apply_edits(tree, edits, self._ledger.revision + 1, self._ledger.vault.seal)
        policy.keep_access(caller, tree, after)
        for rule in self.rules:
            rule(tree, after)
        is_undo = reverse is not None and _results(edits) == _results(reverse.edits())
        if is_undo and await self._ledger.history.obstacle(undoes, self._ledger.revision) is not None:
            is_undo = False
        return Outcome(after, differences, undoes if is_undo else 0)

    async def _refuse_stale(self, tree: Tree, edits: Sequence[Edit]) -> None:
        for edit in edits:
            present = tree.find(edit.mode, edit.key)
            seen = edit.base.revision if edit.base is not None else None
            if (present.revision if present is not None else None) == seen:
                continue
            if present is not None:
                last = await self._ledger.sealed(present.revision)
                raise Stale(edit.mode, edit.key, last.author, last.number, removed=False)
            removal = await self._ledger.history.last_touch(edit.mode, edit.key, self.revision)
            author, number = (removal.author, removal.number) if removal is not None else ("somebody", self.revision)
            raise Stale(edit.mode, edit.key, author, number, removed=True)

    def _public(self, revision: SealedRevision) -> Revision:
        """A revision for people and programs: secrets masked, the nonce as its owner sent it."""
        return Revision(
            number=revision.number,
            time=revision.time,
            author=revision.author,
            changes=changes.masked(self._ledger.tree.schema, revision.changes),
            message=revision.message,
            undoes=revision.undoes,
            nonce=revision.nonce.rpartition("/")[2],
        )


def _results(edits: Sequence[Edit]) -> dict[tuple[str, str], Obj | None]:
    return {(edit.mode, edit.key): edit.new for edit in edits}
