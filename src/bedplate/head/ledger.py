"""The log of revisions and the present tree: what is written, in which order, exactly once.

In: a decision about the tree that a commit replaces. Out: revisions, durable before they are acknowledged. One commit
is one transaction of the store, and the number of its revision must be free in it. That makes two heads on one store
safe: the one that is behind is refused, catches up, and decides again on the newer tree.

Who may commit is not decided here: `service.Head` is the only caller, besides `site`, which writes revision 1.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock, rfc3339
from bedplate.core.logging import get_logger
from bedplate.head import changes, records
from bedplate.head.history import History
from bedplate.head.records import SealedRevision, Snapshot, missing
from bedplate.head.schema.entity import Schema
from bedplate.head.tree import Tree
from bedplate.head.vault import Vault
from bedplate.store.interface import Compacted, OutcomeUnknown, Store

__all__ = ["Decide", "Ledger", "NonceReused", "Outcome"]

_LOG = get_logger("head")
_RECENT = 256
_ATTEMPTS = 20
_UNKNOWN_ATTEMPTS = 3
_REMEMBERED_NONCES = 2000


class NonceReused(errors.Invalid):
    """A nonce that has made a revision came again with another request."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"the nonce was used for another request, which made revision {number}",
            hint="send a new nonce with every request; repeat one only with the same request",
        )


class Outcome(NamedTuple):
    """What a commit writes: the tree it makes, its changes with sealed secrets, and the revision it undoes exactly."""

    tree: Tree
    changes: list[changes.Change]
    undoes: int = 0


Decide = Callable[[Tree], Awaitable[Outcome]]
"""Judges a commit against the tree that it would replace. Raises to refuse; no changes: nothing is written."""


class Ledger:
    """Call `open` first; the store is opened and closed by its owner."""

    def __init__(self, store: Store, schema: Schema, vault: Vault, *, clock: Clock | None = None) -> None:
        self._store = store
        self.vault = vault
        self._clock = clock or SystemClock()
        self._records = records.Codec(schema, vault)
        self.history = History(store, self._records, vault)
        self._snapshot = Snapshot(store, self._records)
        self.tree = Tree(schema)
        self.revision = 0
        self.incarnation = ""
        self._recent: deque[SealedRevision] = deque(maxlen=_RECENT)
        self._nonces: dict[str, int] | None = None
        self._writing = asyncio.Lock()
        self._moved = asyncio.Condition()
        self._settling: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Load the present tree."""
        entry = await self._store.get(records.INCARNATION)
        self.incarnation = entry.value.decode() if entry is not None else ""
        objects, self.revision = await self._snapshot.load()
        self.tree = Tree(self.tree.schema, objects)
        async for revision in self.history.after(self.revision):
            await self._replay(revision, missing(self.tree, revision))

    async def close(self) -> None:
        """Wait until the objects of a large commit are recorded."""
        if self._settling is not None:
            await self._settling

    # Writing

    async def append(
        self, author: str, message: str, decide: Decide, *, nonce: str = "", request: str = ""
    ) -> SealedRevision | None:
        """Write what `decide` allows as the next revision; None when it changes nothing.

        `decide` runs while nobody else commits here, on the tree that is replaced, and again after another head node
        took the number. A `nonce` that has made a revision, here or there, is answered with that revision, unless it
        was another `request` (a digest; empty: not known). A store that cannot tell whether it wrote is asked again
        with the same nonce; when it goes on like that, its own `OutcomeUnknown` is raised.
        """
        async with self._writing:
            revision = await self._made_by(nonce, author) if nonce else None
            if revision is not None:
                if request and revision.request and revision.request != request:
                    raise NonceReused(revision.number)
                return revision
            nonce, doubts = nonce or uuid.uuid4().hex, 0
            for _ in range(_ATTEMPTS):
                outcome = await decide(self.tree)
                if not outcome.changes:
                    return None
                revision = self._next(author, message, nonce, request, outcome)
                try:
                    is_written = await self._snapshot.write(outcome.tree, revision)
                except OutcomeUnknown:
                    doubts += 1
                    if doubts >= _UNKNOWN_ATTEMPTS:
                        raise
                    is_written = False
                if is_written:
                    await self._take(outcome.tree, revision)
                    _LOG.info("head.committed", revision=revision.number, author=author, changes=len(revision.changes))
                    if self._snapshot.is_behind and self._settling is None:
                        self._settling = asyncio.create_task(self._settle())
                    return revision
                await self._catch_up()
                revision = next((recent for recent in self._recent if recent.nonce == nonce), None)
                if revision is not None:
                    return revision
        raise errors.Unavailable(
            "too many concurrent commits by other head nodes; this commit was not made", retry_after_s=1.0
        )

    async def _settle(self) -> None:
        """Record the objects of a large commit. Nothing depends on it: what is missing is read from the log."""
        try:
            async with self._writing:
                await self._snapshot.settle(self.tree, self.revision)
        except errors.BedplateError as err:
            _LOG.warning("head.objects_not_recorded", error=str(err), next="the next commit records them")
        finally:
            self._settling = None

    def _next(self, author: str, message: str, nonce: str, request: str, outcome: Outcome) -> SealedRevision:
        present = ((place, self.tree.find(*place)) for place in dict.fromkeys(map(changes.address, outcome.changes)))
        previous = {f"{mode}/{key}": obj.revision for (mode, key), obj in present if obj is not None}
        time = rfc3339(self._clock.now())
        return SealedRevision(
            number=self.revision + 1,
            time=time,
            author=author,
            nonce=nonce,
            changes=outcome.changes,
            message=message,
            undoes=outcome.undoes,
            previous=previous,
            request=request,
        )

    async def _made_by(self, nonce: str, author: str) -> SealedRevision | None:
        """The revision that a nonce made, as far back as callers may repeat it. Raises `Conflict` for another's."""
        if self._nonces is None:
            first = max(1, self.revision - _REMEMBERED_NONCES + 1)
            known = [(past.nonce, past.number) async for past in self.history.newest(self.revision, first)]
            self._nonces = dict(reversed(known))
        number = self._nonces.get(nonce)
        revision = await self.sealed(number) if number is not None else None
        if revision is not None and revision.author != author:
            raise errors.Conflict("the nonce belongs to another user's commit", hint="send another nonce")
        return revision

    # Reading

    async def sealed(self, number: int) -> SealedRevision:
        """A revision with its secrets sealed. Raises `NotFound`."""
        if self._recent and self._recent[0].number <= number <= self._recent[-1].number:
            return self._recent[number - self._recent[0].number]
        return await self.history.read(number)

    async def wait_beyond(self, number: int) -> None:
        """Return once there is a later revision."""
        async with self._moved:
            while self.revision <= number:
                await self._moved.wait()

    # Other heads

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
        """Apply what other head nodes have committed."""
        async with self._writing:
            await self._catch_up()

    async def _catch_up(self) -> None:
        before = self.revision
        async for revision in self.history.after(self.revision):
            await self._replay(revision, revision.changes)
        if self.revision != before:
            await self._snapshot.look(self.revision)

    async def _replay(self, revision: SealedRevision, lacking: Sequence[changes.Change]) -> None:
        if revision.number != self.revision + 1:
            raise errors.Unavailable(
                f"revision {self.revision + 1} is missing in the store", hint="restore the newest backup"
            )
        tree = changes.apply(self.tree, lacking, self.vault.unseal, revision.number)
        self._snapshot.note(revision)
        await self._take(tree, revision)

    async def _take(self, tree: Tree, revision: SealedRevision) -> None:
        self.tree, self.revision = tree, revision.number
        self._recent.append(revision)
        if self._nonces is not None:
            self._nonces[revision.nonce] = revision.number
            if len(self._nonces) > _REMEMBERED_NONCES:
                del self._nonces[next(iter(self._nonces))]
        async with self._moved:
            self._moved.notify_all()
