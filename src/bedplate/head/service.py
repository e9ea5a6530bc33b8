"""The head: the only writer of the tree.

In: edits of sessions, with an author. Out: revisions, durable before they are acknowledged; the present tree; a stream
of revisions for notices. One commit is one transaction of the store; the number of its revision must be free in it,
which is what makes two heads on one store safe: the one that is behind is told so, catches up, and looks again at what
it was asked.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock, rfc3339
from bedplate.core.logging import get_logger
from bedplate.head import changes, records, validate
from bedplate.head.history import Entry, History
from bedplate.head.objects import Secret
from bedplate.head.records import Revision
from bedplate.head.schema.registry import Path, Schema
from bedplate.head.session import Edit, Session
from bedplate.head.snapshot import Snapshot, missing
from bedplate.head.tree import Tree
from bedplate.head.vault import Vault
from bedplate.store.interface import Compacted, CompareFailed, OutcomeUnknown, Put, Store

__all__ = ["Head", "Stale"]

_LOG = get_logger("head")
_KEPT = 256
_ATTEMPTS = 20
_ASKED_AGAIN = 2000


class Stale(errors.Conflict):
    """Somebody else committed the object first; `author` and `revision` say who and as what."""

    def __init__(self, mode: str, key: str, author: str, revision: int, *, removed: bool) -> None:
        what = "removed" if removed else "changed"
        super().__init__(
            f"{mode}[{key}] was {what} by {author} in revision {revision} since you began",
            hint="refresh takes the other's version; commit --force overwrites it",
        )
        self.author = author
        self.revision = revision


class Head:
    """Open with `async with`; the store is opened and closed by its owner."""

    def __init__(
        self,
        store: Store,
        schema: Schema,
        vault: Vault,
        *,
        clock: Clock | None = None,
        nonce: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._store = store
        self._vault = vault
        self._clock = clock or SystemClock()
        self._nonce = nonce
        self._records = records.Codec(schema, vault)
        self._history = History(store, self._records, vault)
        self._snapshot = Snapshot(store, self._records)
        self._tree = Tree(schema)
        self._revision = 0
        self._recent: deque[Revision] = deque(maxlen=_KEPT)
        self._nonces: dict[str, int] | None = None
        self._writing = asyncio.Lock()
        self._moved = asyncio.Condition()

    async def __aenter__(self) -> Head:
        await self._load()
        return self

    async def __aexit__(self, *exc: object) -> None:
        return None

    @property
    def tree(self) -> Tree:
        """The present tree."""
        return self._tree

    @property
    def revision(self) -> int:
        """The number of the last revision; 0 before the first."""
        return self._revision

    def session(self) -> Session:
        """A session over the present tree."""
        return Session(self._tree)

    # Writing

    async def commit(
        self,
        edits: Sequence[Edit],
        author: str,
        message: str = "",
        *,
        force: bool = False,
        undoes: int = 0,
        nonce: str = "",
    ) -> Revision | None:
        """Write the edits as one revision; None when they change nothing. Raises `Stale`, `Invalid`.

        `undoes` is for a commit that is exactly the reverse of that revision. A `nonce` that has made a revision, here
        or on another head node, is answered with it: whoever lost an answer asks again with the same one.
        """
        async with self._writing:
            landed = await self._landed(nonce, author) if nonce else None
            if landed is not None:
                return landed
            nonce = nonce or self._nonce()
            for _ in range(_ATTEMPTS):
                if not force:
                    await self._refuse_stale(edits)
                tree, made = self._judge(edits)
                if not made:
                    return None
                now = rfc3339(self._clock.now())
                seen = self._seen(edits)
                revision = Revision(self._revision + 1, now, author, nonce, made, message, undoes, seen)
                if await self._write(revision, tree):
                    await self._take(tree, revision)
                    _LOG.info("head.committed", revision=revision.number, author=author, changes=len(made))
                    if self._snapshot.is_behind:
                        await self._snapshot.settle(tree, revision.number)
                    return revision
                landed = next((one for one in self._recent if one.nonce == nonce), None)
                if landed is not None:
                    return landed
        raise errors.Unavailable("other head nodes keep committing; this commit found no turn", retry_after_s=1.0)

    async def commit_session(
        self, session: Session, author: str, message: str = "", *, scope: Path = (), force: bool = False
    ) -> Revision | None:
        """Commit what a session has staged below a scope; the session then stands on the new tree."""
        edits = session.edits(scope)
        revision = await self.commit(edits, author, message, force=force)
        session.follow(self._tree, edits)
        return revision

    async def check(self, edits: Sequence[Edit], *, force: bool = False) -> list[changes.Change]:
        """What a commit of the edits would change, secrets masked, without doing it. Raises what it would raise."""
        if not force:
            await self._refuse_stale(edits)
        return changes.masked(self._tree.schema, self._judge(edits)[1])

    async def undo(
        self, number: int, author: str, message: str = "", *, force: bool = False, nonce: str = ""
    ) -> Revision | None:
        """Take a revision back, as a new revision. Raises `Conflict` naming what stands in the way."""
        landed = await self.made_by(nonce, author) if nonce else None
        if landed is not None:
            return landed
        session = self.session()
        await self.stage_undo(session, number, force=force)
        text = message or f"undo of revision {number}"
        return await self.commit(session.edits(), author, text, undoes=0 if force else number, nonce=nonce)

    async def made_by(self, nonce: str, author: str) -> Revision | None:
        """The revision that a commit with this nonce made; secrets are sealed. Raises `Conflict` for another's."""
        async with self._writing:
            return await self._landed(nonce, author)

    async def stage_undo(self, session: Session, number: int, *, force: bool = False) -> None:
        """Stage the reverse of a revision in a session."""
        session.stage(await self.undo_changes(number, force=force), self.unseal)

    async def undo_changes(self, number: int, *, force: bool = False) -> list[changes.Change]:
        """What takes a revision back, secrets sealed. Raises `Conflict` naming what stands in the way."""
        return await self._history.undo(number, self._revision, force=force)

    def unseal(self, sealed: Any) -> Secret:
        """The secret of a sealed one, for whoever stages changes."""
        return self._vault.unseal(sealed)

    # Reading

    async def tree_at(self, number: int) -> Tree:
        """The tree as it was after a revision; 0 is the empty one."""
        return await self._history.tree_at(self._tree, self._revision, number)

    async def read(self, number: int) -> Revision:
        """A revision as people may see it: secrets are stars. Raises `NotFound`."""
        return self._public(await self._sealed(number))

    async def log(self, limit: int = 20, path: Path = (), *, before: int = 0) -> list[Revision]:
        """The newest revisions that touched something at or below a path, newest first; those before one, if named."""
        found: list[Revision] = []
        async for revision in self._history.newest(min(self._revision, before - 1) if before else self._revision):
            if any(changes.meet(change.path, path) for change in revision.changes):
                found.append(self._public(revision))
            if len(found) >= limit:
                break
        return found

    async def audit(self, path: Path = (), limit: int = 100) -> list[Entry]:
        """Who changed which parameter when, newest first."""
        return await self._history.audit(self._tree, self._revision, path, limit)

    async def revisions(self, after: int) -> AsyncIterator[Revision]:
        """Every revision after a number, as it comes, for as long as somebody reads. Secrets are stars."""
        while True:
            async with self._moved:
                while self._revision <= after:
                    await self._moved.wait()
            after += 1
            yield await self.read(after)

    async def follow(self) -> None:
        """Keep up with what other head nodes commit; runs until cancelled."""
        while True:
            watch = self._store.watch(records.REVISIONS, after=await self._store.revision())
            try:
                await self.catch_up()
                async for batch in watch:
                    if batch:
                        await self.catch_up()
            except Compacted:
                continue
            finally:
                await watch.aclose()

    async def catch_up(self) -> None:
        """Take what others have committed since."""
        async with self._writing:
            await self._catch_up()

    # Inside

    async def _load(self) -> None:
        objects, self._revision = await self._snapshot.load()
        self._tree = Tree(self._tree.schema, objects)
        async for revision in self._history.after(self._revision):
            await self._replay(revision, missing(self._tree, revision))

    def _seen(self, edits: Sequence[Edit]) -> dict[str, int]:
        held = ((edit, self._tree.find(edit.mode, edit.key)) for edit in edits)
        return {f"{edit.mode}/{edit.key}": obj.revision for edit, obj in held if obj is not None}

    async def _refuse_stale(self, edits: Sequence[Edit]) -> None:
        for edit in edits:
            current = self._tree.find(edit.mode, edit.key)
            seen = edit.base.revision if edit.base is not None else None
            if (current.revision if current is not None else None) == seen:
                continue
            if current is not None:
                by = await self._sealed(current.revision)
                raise Stale(edit.mode, edit.key, by.author, by.number, removed=False)
            last = await self._history.last_touch(edit.mode, edit.key, self._revision)
            author, number = (last.author, last.number) if last is not None else ("somebody", self._revision)
            raise Stale(edit.mode, edit.key, author, number, removed=True)

    def _judge(self, edits: Sequence[Edit]) -> tuple[Tree, list[changes.Change]]:
        """The tree the edits make and what they change in the present one. Raises `Invalid`."""
        tree, made, number = self._tree, [], self._revision + 1
        touched = []
        for edit in edits:
            current = self._tree.find(edit.mode, edit.key)
            found = changes.diff(tree.schema, edit.mode, edit.key, current, edit.new, self._vault.seal)
            if found:
                made.extend(found)
                touched.append((edit.mode, edit.key))
                new = None if edit.new is None else replace(edit.new, revision=number)
                tree = tree.with_object(edit.mode, edit.key, new)
        validate.check(tree, touched)
        return tree, made

    async def _landed(self, nonce: str, author: str) -> Revision | None:
        """The revision that a nonce made, as far back as callers may ask again. Raises `Conflict` for another's."""
        if self._nonces is None:
            first = max(1, self._revision - _ASKED_AGAIN + 1)
            known = [(one.nonce, one.number) async for one in self._history.newest(self._revision, first)]
            self._nonces = dict(reversed(known))
        number = self._nonces.get(nonce)
        found = await self._sealed(number) if number is not None else None
        if found is not None and found.author != author:
            raise errors.Conflict("this commit's nonce belongs to somebody else's commit", hint="make another one")
        return found

    async def _write(self, revision: Revision, tree: Tree) -> bool:
        """Whether the revision is in the store now; if not, another one took its number and has been caught up with."""
        objects = self._snapshot.ops(tree, revision)
        record = Put(records.revision_key(revision.number), msgspec.json.encode(revision), expect=0)
        try:
            at = await self._store.commit([record, *objects])
        except (CompareFailed, OutcomeUnknown):
            entry = await self._store.get(record.key)
            if entry is None or self._records.decode_revision(entry.value).nonce != revision.nonce:
                await self._catch_up()
                return False
            at = entry.revision
        self._snapshot.wrote(revision, objects, at)
        return True

    async def _catch_up(self) -> None:
        before = self._revision
        async for revision in self._history.after(self._revision):
            await self._replay(revision, revision.changes)
        if self._revision != before:
            await self._snapshot.look(self._revision)

    async def _replay(self, revision: Revision, lacking: Sequence[changes.Change]) -> None:
        if revision.number != self._revision + 1:
            raise errors.Unavailable(
                f"revision {self._revision + 1} is missing in the store", hint="restore the newest backup"
            )
        tree = changes.apply(self._tree, lacking, self._vault.unseal, revision.number)
        self._snapshot.note(revision)
        await self._take(tree, revision)

    async def _take(self, tree: Tree, revision: Revision) -> None:
        self._tree, self._revision = tree, revision.number
        self._recent.append(revision)
        if self._nonces is not None:
            self._nonces[revision.nonce] = revision.number
            if len(self._nonces) > _ASKED_AGAIN:
                del self._nonces[next(iter(self._nonces))]
        async with self._moved:
            self._moved.notify_all()

    async def _sealed(self, number: int) -> Revision:
        if self._recent and self._recent[0].number <= number <= self._recent[-1].number:
            return self._recent[number - self._recent[0].number]
        return await self._history.read(number)

    def _public(self, revision: Revision) -> Revision:
        return msgspec.structs.replace(revision, changes=changes.masked(self._tree.schema, revision.changes))
