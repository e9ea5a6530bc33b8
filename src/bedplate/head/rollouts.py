"""The roll-out of a site: kept in the store, and moved on by the active head.

In: commits that are to reach nodes in batches, what people say about them, what nodes report. Out: which nodes are held
back at which tree (`wants.base`), notices, and a signal to nodes that are no longer held back. What the next step is,
`rollout` decides. There is one roll-out at a time: other commits reach the nodes that are not held back at once, and
the others with their batch.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.core.logging import get_logger
from bedplate.head import rollout as rules
from bedplate.head.book import Book, again, write
from bedplate.head.history import Undone
from bedplate.head.notices import Notices
from bedplate.head.policy import Identity
from bedplate.head.progress import Progress
from bedplate.head.rollout import Batches, Rollout
from bedplate.head.service import Head
from bedplate.head.tree import Tree
from bedplate.head.wants import Base, Wants, changed
from bedplate.store.interface import Store

__all__ = ["ROLLOUTS", "Rollouts"]

ROLLOUTS: Final = "/head/rollouts/"
_NOW: Final = "now"
_LOG = get_logger("head.rollout")
_LOOK_S = 1.0


class Rollouts:
    """The present roll-out, or the last one. `open` it before nodes are told anything."""

    def __init__(
        self, store: Store, head: Head, notices: Notices, wants: Wants, progress: Progress, *, clock: Clock
    ) -> None:
        self._store = store
        self._head = head
        self._notices = notices
        self._wants = wants
        self._progress = progress
        self._clock = clock
        self._deciding = asyncio.Lock()
        self._making: Rollout | None = None
        """The one whose revision is being written."""
        self.listeners: list[Callable[[Iterable[str]], None]] = []
        """Called with nodes that are no longer held back."""
        self.book = Book(store, ROLLOUTS, Rollout)

    @property
    def current(self) -> Rollout | None:
        return self.book.get(_NOW)

    async def open(self) -> None:
        """Read it, and hold back whom it holds back. One whose revision was never made holds nobody back."""
        await self.book.open()
        await self._adopt()

    async def follow(self) -> None:
        """Do so whenever another head node moves it on; runs until cancelled."""
        await self.book.follow_with(self._adopt)

    async def _adopt(self) -> None:
        rollout, base = self.current, self._wants.base
        waiting = frozenset(rollout.held) if rollout is not None else frozenset()
        before = base.nodes if base is not None else frozenset()
        if rollout is None or not waiting:
            self._wants.base = None
        elif base is not None and base.revision == rollout.base:
            self._wants.base = base._replace(nodes=waiting)
        else:
            if rollout.base > self._head.revision:
                await self._head.catch_up()
            self._wants.base = Base(rollout.base, await self._head.tree_at(rollout.base), waiting)
        freed = before - waiting
        if freed:
            for listener in self.listeners:
                listener(freed)

    # Beginning

    async def committed(
        self, batches: Batches, by: str, commit: Callable[..., Awaitable[headapi.Revision | None]]
    ) -> headapi.Revision | None:
        """Make a commit that reaches nodes in batches: they are held back before it is written. Should it not be, or
        should nobody know whether it was, it is forgotten unless it is there."""
        own: list[Rollout] = []

        async def hold(before: Tree, after: Tree, revision: int) -> None:
            rollout = await self.hold(batches, by, before, after, revision)
            if rollout is not None:
                own.append(rollout)

        try:
            revision = await commit(before_write=hold)
        except BaseException:
            if own:
                await asyncio.shield(self._abandon(own[-1]))
            raise
        if own:
            await self._begun(own[-1])
        return revision

    async def hold(self, batches: Batches, by: str, before: Tree, after: Tree, revision: int) -> Rollout | None:
        """Hold back the nodes that a revision which is about to be written means something to, but for the first
        batch; None where it means nothing to any. To be called inside of the commit, and again should another head node
        have taken the number. Raises `Conflict` during another roll-out."""
        current = self.current
        is_own = current is not None and current == self._making
        if current is not None and current.is_open and not is_own and current.revision <= self._head.revision:
            raise errors.Conflict(
                f"revision {current.revision} is being rolled out ({current.state}, {current.released} of "
                f"{len(current.nodes)} nodes)",
                hint="rollout status shows it; rollout resume or undo ends it; commit without --batch "
                "reaches those nodes at once",
            )
        nodes = await changed(before, after)
        if not nodes:
            return None
        try:
            size = rules.batch_size(batches.size, len(nodes))
        except ValueError as wrong:
            raise errors.Invalid(f"batch: {wrong}", hint="give a number of nodes, or a share such as 10%") from None
        await self._wants.prepare(nodes)
        rollout = rules.begin(
            revision,
            nodes,
            by=by,
            batch=size,
            max_failed=batches.max_failed,
            settle_s=batches.settle_s,
            seen=self._progress.seen,
            now=self._clock.now(),
        )
        await again(lambda: write(self._store, [self.book.change(_NOW, rollout)]))
        self._making = rollout
        self._wants.base = Base(rollout.base, before, frozenset(rollout.held)) if rollout.held else None
        return rollout

    async def _begun(self, rollout: Rollout) -> None:
        """Tell of a roll-out whose revision was made."""
        self._making = None
        _LOG.info("head.rollout_begun", revision=rollout.revision, nodes=len(rollout.nodes), batch=rollout.batch)
        await self._tell(rollout, f"begins: {rollout.released} of {len(rollout.nodes)} nodes")

    async def _abandon(self, rollout: Rollout) -> None:
        """Forget a roll-out whose revision was not made; where that cannot be told now, `look` does it."""
        if self._making is rollout:
            self._making = None
        try:
            await self._discard(rollout)
        except errors.Retryable as err:
            _LOG.warning("head.rollout_not_discarded", revision=rollout.revision, error=str(err))

    # Moving on

    async def run(self) -> None:
        """Move it on while this head is the active one; runs until cancelled."""
        while True:
            current = self.current
            if current is None or current.state != "running":
                await self.book.moved()
                continue
            if self._head.standing.is_active:
                try:
                    await self.look()
                except errors.Retryable as err:
                    _LOG.warning("head.rollout_not_looked_at", error=str(err))
            await self._clock.sleep(_LOOK_S)

    async def look(self) -> None:
        """Look at its nodes, and do what follows."""
        async with self._deciding:
            before = self.current
            if before is None or before.state != "running":
                return
            if before.revision > self._head.revision:
                await self._discard(before)
                return
            await self._wants.prepare(before.nodes[: before.released])
            after = rules.step(before, self._progress.seen, self._clock.now())
            if after != before:
                await self._move(before, after)

    async def _discard(self, rollout: Rollout) -> None:
        """Forget one whose revision was never made: a head ended between the two. One that is being made stays."""
        await self._head.catch_up()
        if rollout.revision > self._head.revision and self._making is None and self.current == rollout:
            _LOG.warning("head.rollout_discarded", revision=rollout.revision)
            await write(self._store, [self.book.change(_NOW, None)])
            await self._adopt()

    async def _move(self, before: Rollout, after: Rollout) -> None:
        await write(self._store, [self.book.change(_NOW, after)])
        await self._adopt()
        if after.state != before.state:
            words = {
                "done": f"is done: all {len(after.nodes)} nodes",
                "stopped": f"stopped at {after.released} of {len(after.nodes)} nodes: {after.text}",
            }
            text = words.get(after.state, f"is {after.state}")
            await self._tell(after, text, is_bad=after.state == "stopped")
        elif after.released != before.released:
            await self._tell(after, f"goes on: {after.released} of {len(after.nodes)} nodes")

    async def _tell(self, rollout: Rollout, text: str, *, is_bad: bool = False) -> None:
        hint = "; rollout resume goes on, rollout undo takes it back" if is_bad else ""
        await self._notices.add(
            self._head.standing.active_name,
            f"Roll-out of revision {rollout.revision} {text}{hint}",
            "warning" if is_bad else "notice",
            rollout.revision,
        )

    # What people say

    async def act(self, identity: Identity, action: str) -> headapi.RolloutState:
        """Pause, resume or undo the roll-out. Raises `NotFound`, `Conflict`."""
        self._head.standing.refuse_writes()
        async with self._deciding:
            current = self.current
            if current is None or not current.is_open:
                raise errors.NotFound("no roll-out is under way", hint="commit --batch 10% begins one")
            if action == "pause":
                if current.state != "running":
                    raise errors.Conflict(f"the roll-out is {current.state} already", hint="rollout resume goes on")
                after = msgspec.structs.replace(current, state="paused", text=f"paused by {identity.name}")
            elif action == "resume":
                if current.state == "running":
                    raise errors.Conflict("the roll-out is running already", hint="rollout status shows how far it is")
                after = rules.resumed(current)
            else:
                # One that was taken back already, by a head that ended then or by other means, has nothing left to do.
                with contextlib.suppress(Undone):
                    await self._head.undo_as(
                        identity, current.revision, f"undo of the roll-out of revision {current.revision}"
                    )
                after = msgspec.structs.replace(current, state="undone", text=f"undone by {identity.name}")
            await self._move(current, after)
        return await self.state()

    async def state(self) -> headapi.RolloutState:
        """How far it is, by node. Raises `NotFound` where there never was one."""
        if self.current is not None and self.current.is_open:
            await self._wants.prepare(self.current.nodes[: self.current.released])
        current = self.current
        if current is None or current.revision > self._head.revision:
            raise errors.NotFound("there was no roll-out yet", hint="commit --batch 10% begins one")
        nodes = [headapi.RolloutNode(node=node, state="failed", text=text) for node, text in current.failed.items()]
        if current.is_open:
            stands = [
                (node, rules.standing(current, node, self._progress.seen(node)))
                for node in current.nodes[: current.released]
            ]
            nodes = [headapi.RolloutNode(node=node, state=stand.state, text=stand.text) for node, stand in stands]
            nodes += [headapi.RolloutNode(node=node, state="held") for node in current.held]
        return headapi.RolloutState(
            revision=current.revision,
            state=current.state,
            by=current.by,
            started=current.started,
            batch=current.batch,
            max_failed=current.max_failed,
            settle=current.settle_s,
            total=len(current.nodes),
            released=current.released,
            text=current.text,
            nodes=nodes,
        )
