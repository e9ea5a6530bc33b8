"""Machines that stop, terminate and come back, on a schedule.

In: how often (or exactly what and when), a seed, the cloud's clock. Out: calls of the cloud's `stop`, `start`,
`terminate` and `add`. The same seed on the same machines gives the same steps.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass

from bedplate.core import errors
from bedplate.core.logging import get_logger
from bedplate.sim.clouds.server import SimulatedCloud

__all__ = ["Churn", "Schedule", "Step"]

log = get_logger("simcloud")
_VERBS = ("stop", "start", "terminate", "add")
# Each span is drawn from this much around its mean, so that steps of two kinds do not keep falling together.
_SPREAD = 0.25


@dataclass(frozen=True, slots=True)
class Churn:
    """Means, in seconds; 0: never. A stopped machine starts again, a terminated one is replaced under its name."""

    stop_every_s: float = 0.0
    stopped_for_s: float = 60.0
    terminate_every_s: float = 0.0
    replaced_after_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Step:
    """Do this to that machine, so many seconds after the start; without a name to one that runs."""

    at_s: float
    verb: str
    name: str = ""


class Schedule:
    """Steps still to come, for one cloud."""

    def __init__(
        self, cloud: SimulatedCloud, churn: Churn | None = None, *, steps: Iterable[Step] = (), seed: int = 0
    ) -> None:
        self._cloud = cloud
        self._churn = churn or Churn()
        self._rng = random.Random(seed)
        self._start = cloud.time.monotonic()
        self._order = itertools.count()
        self._coming: list[tuple[float, int, Step]] = []
        self._away: set[str] = set()
        self.done: list[Step] = []
        """What has been done, with the names that were drawn."""
        for step in steps:
            if step.verb not in _VERBS:
                raise errors.Invalid(f"{step.verb!r} is not a step of a schedule", hint=", ".join(_VERBS))
            self._push(step)
        self._plan_next("stop", 0.0)
        self._plan_next("terminate", 0.0)

    @property
    def next_in_s(self) -> float | None:
        """Seconds until the next step; None when there is none."""
        return max(0.0, self._start + self._coming[0][0] - self._cloud.time.monotonic()) if self._coming else None

    async def run(self) -> None:
        """Do every step in its time; returns when no more can come."""
        while (wait_s := self.next_in_s) is not None:
            await self._cloud.time.sleep(wait_s)
            self.catch_up()

    def catch_up(self) -> None:
        """Do what is due."""
        now = self._cloud.time.monotonic() - self._start
        while self._coming and self._coming[0][0] <= now:
            self._do(heapq.heappop(self._coming)[2])

    def _do(self, step: Step) -> None:
        if not step.name and step.verb in ("stop", "terminate"):
            self._plan_next(step.verb, step.at_s)
        name = step.name or self._draw()
        if not name:
            return
        try:
            getattr(self._cloud, step.verb)(name)
        except (errors.NotFound, errors.AlreadyExists) as err:
            # Another client changed this machine; the schedule does not insist.
            log.info("simcloud.step_skipped", verb=step.verb, machine=name, reason=str(err))
            return
        self.done.append(Step(step.at_s, step.verb, name))
        if step.name:
            self._away.discard(name)
            return
        self._away.add(name)
        if step.verb == "stop":
            self._push(Step(step.at_s + self._span(self._churn.stopped_for_s), "start", name))
        elif step.verb == "terminate":
            gone_s = step.at_s + self._cloud.conditions.transition_s
            self._push(Step(gone_s + self._span(self._churn.replaced_after_s), "add", name))

    def _draw(self) -> str:
        names = sorted({machine.name for machine in self._cloud.all()} - self._away)
        return self._rng.choice(names) if names else ""

    def _plan_next(self, verb: str, after_s: float) -> None:
        every_s = self._churn.stop_every_s if verb == "stop" else self._churn.terminate_every_s
        if every_s > 0:
            self._push(Step(after_s + self._span(every_s), verb))

    def _span(self, mean_s: float) -> float:
        return mean_s * (1 + _SPREAD * (2 * self._rng.random() - 1))

    def _push(self, step: Step) -> None:
        heapq.heappush(self._coming, (step.at_s, next(self._order), step))
