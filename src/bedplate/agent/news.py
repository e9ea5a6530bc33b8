"""What the head is to be told: collected while things happen, sent soon after, kept until the head has it.

In: outcomes of changes, actions, failures, results of checks. Out: reports, each small enough for the head; what could
not be told yet is written down for the next agent. Now and then a report says no more than that the node lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from bedplate.agent.checks import names
from bedplate.agent.node import Node
from bedplate.agent.state import Outbox, StateProblem
from bedplate.agent.system import look
from bedplate.api import headapi
from bedplate.api.steps import Failed, Outcome, Step, notice
from bedplate.core import errors
from bedplate.core.backoff import Backoff
from bedplate.core.clock import sleep_unless
from bedplate.core.logging import get_logger

__all__ = ["News", "cut"]

_LOG = get_logger("agent")
_MOST_ACTIONS, _MOST_RESULTS = 500, 1000
_PER_REPORT = 100
_MOMENT_S, _OLDEST_S = 5.0, 366 * 86400.0


class News:
    """What happened since the last report; results with the wall clock time of their measurement."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._state = node.effects.state
        self._told: set[Failed] = set()
        self._tried = 0
        """The revision that these failed with."""
        self._checks: list[str] | None = None
        """Those that the head knows to be run here."""
        self._run = node.rng.randbytes(8).hex()
        self._system: headapi.System | None = None
        """What the head knows of this machine."""
        self.outbox = Outbox()
        self.is_due = asyncio.Event()

    def happened(self, outcome: Outcome, *, is_first: bool = False) -> None:
        """What people are to know of a change. What starts with a machine is not told."""
        for step in () if is_first else outcome.done:
            if notice(step):
                self.did(step)
        for failed in outcome.failed:
            self.failed(failed)
        if not outcome.failed:
            self._told.clear()
        self.is_due.set()

    def acted(self, kind: str, name: str, verb: str, text: str = "") -> None:
        """Something was done that people are to know."""
        actions = self.outbox.actions
        actions.append(headapi.Action(kind=kind, name=name[:1000], verb=verb, text=cut(text)))
        del actions[:-_MOST_ACTIONS]
        self.is_due.set()

    def did(self, step: Step) -> None:
        """The same of a step that was carried out."""
        self.acted(step.kind, step.name, step.done)

    def measured(self, results: Sequence[headapi.Result]) -> None:
        """Checks have results."""
        now_s = self._node.clock.now().timestamp()
        self.outbox.results.extend((now_s, result) for result in results)
        del self.outbox.results[:-_MOST_RESULTS]
        self.is_due.set()

    def failed(self, failed: Failed) -> None:
        """Tell of a failure, once for each revision as long as nothing else is said about it: who commits one waits for
        what becomes of it."""
        if self._node.tried != self._tried:
            self._tried = self._node.tried
            self._told.clear()
        if failed in self._told:
            return
        self._told.add(failed)
        failures = self.outbox.failures
        failures.append(_failure(failed))
        del failures[:-_MOST_ACTIONS]
        self.is_due.set()

    async def run(self) -> None:
        """Report, soon after something happened and now and then to say that the node lives."""
        clock, pace, rng = self._node.clock, self._node.pace, self._node.rng
        backoff = Backoff(first_s=1.0, cap_s=60.0, rng=rng)
        while True:
            await sleep_unless(self.is_due, pace.alive_s * (0.9 + 0.2 * rng.random()), clock)
            await clock.sleep(pace.gather_s)
            self.is_due.clear()
            try:
                await self._report()
                backoff.reset()
            except errors.BedplateError as err:
                self._keep()
                _LOG.v(2).info("agent.report.later", error=str(err))
                asked_s = err.retry_after_s if isinstance(err, errors.Retryable) else None
                await clock.sleep(max(backoff.next(), asked_s or 0.0))
                self.is_due.set()

    async def _report(self) -> None:
        """Tell everything, in as many reports as it takes; what was taken is kept until the head has it."""
        is_more = True
        while is_more:
            outbox, known = self.outbox, self._node.held
            now_s = self._node.clock.now().timestamp()
            actions, failures = outbox.actions[:_MOST_ACTIONS], outbox.failures[:_MOST_ACTIONS]
            results = outbox.results[:_PER_REPORT]
            checks = names(known.state) if known.is_whole else self._checks
            system = look(self._node.effects)
            report = headapi.ReportRequest(
                applied=known.applied if known.is_whole else 0,
                tried=self._tried if failures else 0,
                digest=known.digest if known.is_whole else "",
                actions=actions,
                failures=failures,
                results=[_aged(result, now_s - at_s) for at_s, result in results],
                version=self._node.updates.version if self._node.updates is not None else "",
                checks=checks if checks != self._checks else None,
                run=self._run,
                system=system if system != self._system else None,
            )
            try:
                self._node.revision = await self._node.head.report(report)
                self._checks, self._system = checks, system
                if self._node.updates is not None:
                    self._node.updates.reported()
            except errors.Invalid as err:
                # The head will never take it: the rest is told all the same.
                _LOG.error("agent.report.refused", error=str(err))
            del outbox.actions[: len(actions)]
            del outbox.failures[: len(failures)]
            del outbox.results[: len(results)]
            is_more = bool(outbox.results or outbox.actions or outbox.failures)
        self._keep()

    def _keep(self) -> None:
        """Keep what is still to be told for the next agent; an empty outbox is written once."""
        outbox = self.outbox
        try:
            if outbox != self._state.outbox():
                self._state.save_outbox(outbox)
        except StateProblem as err:
            _LOG.warning("agent.outbox.lost", error=str(err))


def _failure(failed: Failed) -> headapi.Failure:
    step = failed.step
    return headapi.Failure(kind=step.kind, name=step.name[:1000], verb=step.done, text=cut(failed.why))


def cut(text: str) -> str:
    """One line that a report takes."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:1000]


def _aged(result: headapi.Result, age_s: float) -> headapi.Result:
    """Results that are told at once carry no age; nor do those whose age nobody knows, since the clock was set after
    they were measured: a machine without one of its own starts in 1970."""
    is_told = _MOMENT_S <= age_s <= _OLDEST_S
    return msgspec.structs.replace(result, age_s=round(age_s, 1)) if is_told else result
