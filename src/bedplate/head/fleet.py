"""What a head keeps for its nodes beside the tree, and what it does for them in the background.

In: the store, the head and what is beside its tree. Out: enrolments, turns, roll-outs, images, what nodes should be
and how far they are.
`open` reads all of it, `follow` keeps up with other head nodes, `run` does what is due while this head is the active
one.
"""

from __future__ import annotations

from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock
from bedplate.core.logging import get_logger
from bedplate.core.tasks import TaskGroup
from bedplate.head.agentarchives import Archives
from bedplate.head.clusters.members import Members
from bedplate.head.enrolment import Enrolments, Issuer
from bedplate.head.errands import Errands
from bedplate.head.health import Health
from bedplate.head.images.imaging import Imaging
from bedplate.head.images.serving import Transfers
from bedplate.head.images.trees import Trees
from bedplate.head.notices import Notices
from bedplate.head.progress import Progress
from bedplate.head.rollouts import Rollouts
from bedplate.head.service import Head
from bedplate.head.tokens import Tokens
from bedplate.head.turns import Turns
from bedplate.head.wants import Wants
from bedplate.store.interface import Store

__all__ = ["Fleet"]

_LOG = get_logger("head.fleet")
_TIDY_S = 3600.0


class Fleet:
    """Open before use; the store is opened and closed by its owner."""

    def __init__(
        self,
        store: Store,
        head: Head,
        tokens: Tokens,
        notices: Notices,
        health: Health,
        issuer: Issuer | None = None,
        *,
        transfers: Transfers | None = None,
        archives: Archives | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._head = head
        self._health = health
        self._clock = clock or SystemClock()
        self.errands = Errands(store, head, notices, clock=self._clock)
        self.wants = Wants(head, self.errands.of)
        self.progress = Progress(head, health, self.wants, self.errands.image)
        self.members = Members(store, head, notices, health, self.errands, self.wants, clock=self._clock)
        self.imaging = Imaging(head, notices, self.errands, transfers or Transfers(Trees(clock=self._clock)))
        self.archives = archives or Archives()
        self.rollouts = Rollouts(store, head, notices, self.wants, self.progress, clock=self._clock)
        self.turns = Turns(store, head, notices, clock=self._clock)
        self.enrolments = Enrolments(store, head, tokens, notices, issuer, clock=self._clock)

    async def open(self) -> Fleet:
        """Read what the store has."""
        await self.enrolments.open()
        await self.turns.book.open()
        await self.errands.book.open()
        await self.rollouts.open()
        await self.members.open()
        return self

    async def follow(self) -> None:
        """Keep up with what other head nodes write; runs until cancelled."""
        async with TaskGroup() as tasks:
            tasks.create_task(self.enrolments.book.follow())
            tasks.create_task(self.enrolments.certificates.follow())
            tasks.create_task(self.turns.book.follow())
            tasks.create_task(self.errands.book.follow())
            tasks.create_task(self.rollouts.follow())
            tasks.create_task(self.members.follow())

    async def run(self) -> None:
        """Do what is due; runs until cancelled."""
        async with TaskGroup() as tasks:
            tasks.create_task(self._tidy())
            tasks.create_task(self.turns.run())
            tasks.create_task(self.errands.run())
            tasks.create_task(self.rollouts.run())
            tasks.create_task(self.members.run())

    async def reported(self, node: str, *, has_failed: bool) -> None:
        """Look at what a report changes for others: a node that is well again lets those go on who waited for it."""
        if has_failed or not self.turns.braked_by(node):
            return
        condition = self._health.of(node)
        if condition is None or not self.progress.has_applied(node):
            return
        if all(verdict.last.status != "FAIL" for verdict in condition.checks.values()):
            await self.turns.recovered(node)

    async def _tidy(self) -> None:
        while True:
            if self._head.standing.is_active:
                try:
                    await self.enrolments.tidy()
                except errors.Retryable as err:
                    _LOG.warning("head.not_tidied", error=str(err))
            await self._clock.sleep(_TIDY_S)

    async def forget(self, node: str) -> None:
        """Drop what is known of a node that was removed."""
        await self.errands.forget(node)
        await self.turns.recovered(node, "was removed")
