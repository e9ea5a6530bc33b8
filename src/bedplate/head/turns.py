"""One after the other, over all nodes: whose turn it is to restart a service that a cluster cannot lose twice at once.

In: nodes that ask for the turn of a group (`Service.serial`) and give it back, what they report, the time. Out: one
holder for each group; a brake after a failure: while a node has failed its turn, only that node gets it, until it is
well again or an administrator lets the others go on. `asked`, `ended` and `lapsed` decide, and are pure. Turns are kept
in the store, so that another head that takes over knows who has one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from bedplate.api.headapi import TurnAnswer, TurnState
from bedplate.core import errors
from bedplate.core.clock import Clock, parse_rfc3339
from bedplate.core.logging import get_logger
from bedplate.head.book import Book, again, write
from bedplate.head.notices import Notices
from bedplate.head.service import Head
from bedplate.store.interface import Store

__all__ = ["TURNS", "Turn", "Turns", "asked", "ended", "lapsed"]

TURNS: Final = "/head/turns/"
_LOG = get_logger("head.turns")
_LOOK_S = 1.0


class Turn(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who has the turn of a group until when, and who failed it. Times are RFC 3339."""

    holder: str = ""
    since: str = ""
    until: str = ""
    failed: str = ""
    failed_at: str = ""
    why: str = ""


def asked(turn: Turn, node: str, now: datetime, lasts: timedelta) -> Turn | None:
    """The turn once the node has it; None while it has to wait. Whoever has it already has it for longer."""
    if turn.holder and turn.holder != node:
        return None
    if turn.failed and turn.failed != node:
        return None
    since = turn.since if turn.holder == node else _text(now)
    return msgspec.structs.replace(turn, holder=node, since=since, until=_text(now + lasts))


def ended(turn: Turn, node: str, now: datetime, *, has_failed: bool, why: str = "") -> Turn:
    """The turn after its holder gave it back; as it was for anybody else."""
    if turn.holder != node:
        return turn
    return Turn(failed=node, failed_at=_text(now), why=why) if has_failed else Turn()


def lapsed(turn: Turn, now: datetime) -> Turn:
    """The turn after one that was not given back in time."""
    if not turn.holder or now < parse_rfc3339(turn.until):
        return turn
    return ended(turn, turn.holder, now, has_failed=True, why="it did not give the turn back in time")


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


class Turns:
    """The turns of a site. Only the active head gives them."""

    def __init__(self, store: Store, head: Head, notices: Notices, *, clock: Clock) -> None:
        self._store = store
        self._head = head
        self._notices = notices
        self._clock = clock
        self._waiting: dict[str, dict[str, int]] = {}
        """Who waits for each group, in the order in which they came."""
        self.book = Book(store, TURNS, Turn)

    def states(self) -> list[TurnState]:
        """Every group that somebody has, waits for, or has failed."""
        groups = sorted({*self.book.items(), *(group for group, nodes in self._waiting.items() if nodes)})
        return [self._state(group) for group in groups]

    def _state(self, group: str) -> TurnState:
        turn = self.book.get(group) or Turn()
        return TurnState(
            group=group,
            node=turn.holder,
            since=turn.since,
            until=turn.until,
            waiting=list(self._waiting.get(group, ())),
            failed=turn.failed,
            failed_at=turn.failed_at,
            why=turn.why,
        )

    async def take(
        self, node: str, group: str, *, wait_s: float, lasts_s: float, check: Callable[[], object] = lambda: None
    ) -> TurnAnswer:
        """Give a node the turn of a group, waiting for it at most that long; `check` raises once it may not any more.
        Those who came first have it first."""
        self._head.standing.refuse_writes()
        queue = self._waiting.setdefault(group, {})
        queue[node] = queue.get(node, 0) + 1
        until = self._clock.monotonic() + wait_s
        try:
            while True:
                if await self._try(node, group, timedelta(seconds=lasts_s)):
                    break
                left_s = until - self._clock.monotonic()
                if left_s <= 0:
                    break
                await self._moved(min(left_s, _LOOK_S))
                check()
                self._head.standing.refuse_writes()
        finally:
            queue[node] -= 1
            if not queue[node]:
                del queue[node]
            if not queue and self._waiting.get(group) is queue:
                del self._waiting[group]
        turn = self.book.get(group) or Turn()
        return TurnAnswer(
            group=group,
            is_granted=turn.holder == node,
            until=turn.until,
            holder=turn.holder,
            failed=turn.failed,
            why=turn.why,
        )

    async def _moved(self, seconds: float) -> None:
        """Until a turn changes, or the time is over: whoever came first may have gone without one."""
        moved, slept = asyncio.ensure_future(self.book.moved()), asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait((moved, slept), return_when=asyncio.FIRST_COMPLETED)
        finally:
            moved.cancel()
            slept.cancel()

    async def _try(self, node: str, group: str, lasts: timedelta) -> bool:
        async def decide() -> bool:
            turn, now = self.book.get(group) or Turn(), self._clock.now()
            first = next(iter(self._waiting.get(group, ())), node)
            if turn.holder != node and turn.failed != node and first != node:
                return False
            after = asked(turn, node, now, lasts)
            if after is None:
                return False
            await write(self._store, [self.book.change(group, after)])
            return True

        return await again(decide)

    async def end(self, node: str, group: str, *, has_failed: bool, why: str = "") -> TurnState:
        """Take a turn back. A node that has none is told how it is."""
        self._head.standing.refuse_writes()

        async def decide() -> Turn | None:
            turn = self.book.get(group)
            if turn is None or turn.holder != node:
                return None
            after = ended(turn, node, self._clock.now(), has_failed=has_failed, why=why)
            await write(self._store, [self.book.change(group, after if after != Turn() else None)])
            return turn

        before = await again(decide)
        if before is not None and has_failed:
            await self._tell_failure(group)
        elif before is not None and before.failed:
            await self._tell_release(group, f"{node} has had its turn")
        return self._state(group)

    async def release(self, group: str, by: str) -> TurnState:
        """Let the others go on, whatever the node that failed does; one that has the turn keeps it. Raises
        `NotFound`."""
        self._head.standing.refuse_writes()

        async def decide() -> None:
            turn = self.book.get(group)
            if turn is None:
                raise errors.NotFound(f"nobody has or has failed the turn {group!r}", hint="device turns lists them")
            after = msgspec.structs.replace(turn, failed="", failed_at="", why="")
            await write(self._store, [self.book.change(group, after if after != Turn() else None)])

        await again(decide)
        await self._tell_release(group, f"{by} released them")
        return self._state(group)

    def braked_by(self, node: str) -> list[str]:
        """The groups that wait for a node to be well again."""
        return [group for group, turn in self.book.items().items() if turn.failed == node and not turn.holder]

    async def recovered(self, node: str, why: str = "is well again") -> None:
        """Let those go on who waited for a node: it reports what it should be, and no check fails; or it is gone."""
        for group in self.braked_by(node):

            async def decide(group: str = group) -> bool:
                turn = self.book.get(group)
                if turn is None or turn.failed != node or turn.holder:
                    return False
                await write(self._store, [self.book.change(group, None)])
                return True

            if await again(decide):
                await self._tell_release(group, f"{node} {why}")

    async def lapse(self) -> None:
        """Take back what was not given back in time."""
        for group in list(self.book.items()):

            async def decide(group: str = group) -> bool:
                turn = self.book.get(group) or Turn()
                after = lapsed(turn, self._clock.now())
                if after == turn:
                    return False
                await write(self._store, [self.book.change(group, after)])
                return True

            if await again(decide):
                await self._tell_failure(group)

    async def run(self) -> None:
        """Take turns back in time while this head is the active one; runs until cancelled."""
        while True:
            if self._head.standing.is_active:
                try:
                    await self.lapse()
                except errors.Retryable as err:
                    _LOG.warning("head.turns_not_looked_at", error=str(err))
            ends = [parse_rfc3339(turn.until) for turn in self.book.items().values() if turn.holder]
            if not ends:
                await self.book.moved()
                continue
            wait_s = (min(ends) - self._clock.now()).total_seconds()
            await self._moved(max(wait_s, 0.0) + (0.05 if self._head.standing.is_active else _LOOK_S))

    async def _tell_failure(self, group: str) -> None:
        state = self._state(group)
        many = f"{len(state.waiting)} nodes wait" if state.waiting else "others wait"
        text = f"Turn {group} failed on {state.failed}: {state.why or 'no reason given'}; {many} until it is well again"
        _LOG.info("head.turn_failed", group=group, node=state.failed, why=state.why)
        await self._notices.add(state.failed, f"{text}, or turns release {group}", "warning")

    async def _tell_release(self, group: str, why: str) -> None:
        await self._notices.add(self._head.standing.active_name, f"Turns of {group} go on: {why}")
