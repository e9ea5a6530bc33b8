"""Keeping what holds: what changed by hand or died is put right, and checks run at their intervals.

In: what should hold, and what is there. Out: repairs, each time after a longer while when one fails or does not last;
what is left as people changed it is told once; results of checks. One change is made at a time, whoever asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bedplate.agent.apply import Applier
from bedplate.agent.checks import Checks
from bedplate.agent.news import News
from bedplate.agent.node import Node
from bedplate.agent.observe import Difference, Watch, compare, remaining, unwanted
from bedplate.agent.state import StateProblem
from bedplate.api.steps import Failed, Outcome, Step, notice

__all__ = ["Upkeep"]


@dataclass(slots=True)
class _Retry:
    """When something that failed is tried again."""

    next_s: float
    wait_s: float


class Upkeep:
    """Of one machine."""

    def __init__(self, node: Node, news: News, checks: Checks, applier: Applier, watch: Watch) -> None:
        self._node = node
        self._news = news
        self._checks = checks
        self._applier = applier
        self._watch = watch
        self._clock, self._pace = node.clock, node.pace
        self._effects, self._state = node.effects, node.effects.state
        self._retries: dict[tuple[str, str], _Retry] = {}
        self._reported_edits: set[Difference] = set()
        self._packages_s = -1e9

    async def run(self) -> None:
        """Look for drift and run checks, until cancelled."""
        is_first = True
        drift_s = self._clock.monotonic()
        while True:
            now_s = self._clock.monotonic()
            if now_s >= drift_s and self._node.working.locked():
                # What changes the machine now may take long: checks go on, drift waits.
                drift_s = now_s + min(1.0, self._pace.drift_s)
            elif now_s >= drift_s:
                await self.repair(is_first=is_first)
                is_first, drift_s = False, now_s + self._pace.drift_s
            await self._check()
            now_s = self._clock.monotonic()
            wait_s = min(drift_s - now_s, self._checks.wait_s(self._node.held.state, now_s))
            await self._clock.sleep(max(0.05, wait_s))

    async def repair(self, *, is_first: bool = False, is_whole: bool = False) -> None:
        """Look for what is not as it was put, and put it right; `is_whole`: for packages as well, which takes long."""
        if is_whole:
            self._packages_s = -1e9
        async with self._node.working:
            if self._node.held.state is None:
                return
            if self._effects.again is not None and self._looks_at_packages():
                await self._effects.again()
            try:
                differences = await self.differences()
                self._checks.differences = unwanted(differences, self._node.edits)
                self._tell_edits(differences)
                repaired = [difference for difference in differences if self._may_try(difference)]
                before = remaining(self._node.held.state, repaired, self._node.edits)
                if before == self._node.held.state:
                    return
                # What cannot be repaired appears again by the next look: the held state stays what it is.
                outcome = await self._applier.apply(before, self._node.held.state)
                self._state.end()
            except StateProblem as err:
                self._news.failed(Failed(Step("state", self._state.folder, "write"), f"{err}; {err.hint}"))
                return
            self._repaired(repaired, outcome, is_first=is_first)

    async def differences(self) -> list[Difference]:
        """What is not as it was put."""
        state = self._node.held.state
        if state is None:
            return []
        records = self._state.records()
        services = await self._effects.services.status([service.name for service in state.services])
        packages: set[str] | None = None
        if self._looks_at_packages():
            self._packages_s = self._clock.monotonic()
            packages = await self._effects.packages.installed(state.packages)
        looks = self._watch.look(records)
        return compare(records, looks, state, services, packages, self._watch.owners(records))

    def _looks_at_packages(self) -> bool:
        return self._clock.monotonic() - self._packages_s >= self._pace.packages_s

    def _may_try(self, difference: Difference) -> bool:
        retry = self._retries.get((difference.kind, difference.name))
        return retry is None or self._clock.monotonic() >= retry.next_s

    def _repaired(self, differences: Sequence[Difference], outcome: Outcome, *, is_first: bool) -> None:
        """Tell what was put right; what could not be is tried again later, each time after a longer while."""
        lost = {(failed.step.kind, failed.step.name) for failed in outcome.failed}
        now_s = self._clock.monotonic()
        for difference in differences:
            place = (difference.kind, difference.name)
            if difference.kind == "file" and self._node.edits.of(difference.name) != "restore":
                continue
            if place in lost:
                retry = self._retries.get(place)
                wait_s = min(retry.wait_s * 2 if retry else self._pace.retry_s, self._pace.longest_retry_s)
                self._retries[place] = _Retry(now_s + wait_s, wait_s)
                continue
            if difference.kind == "service":
                # One that dies again at once is not started every time somebody looks.
                retry = self._retries.get(place)
                is_new = retry is None or now_s > retry.next_s + self._pace.longest_retry_s
                wait_s = (
                    self._pace.drift_s if is_new or retry is None else min(retry.wait_s * 2, self._pace.longest_retry_s)
                )
                self._retries[place] = _Retry(now_s + wait_s, wait_s)
            else:
                self._retries.pop(place, None)
            if difference.kind != "file" and not is_first:
                verb = {"service": "started", "package": "installed"}[difference.kind]
                self._news.acted(difference.kind, difference.name, verb, f"it {difference.what}")
        self.restored(differences, outcome)
        repaired = {(difference.kind, difference.name) for difference in differences}
        for step in outcome.done:
            if notice(step) and (step.kind, step.name) not in repaired:
                self._news.did(step)
        for failed in outcome.failed:
            self._news.failed(failed)

    def restored(self, differences: Iterable[Difference], outcome: Outcome) -> None:
        """Tell of files that were changed by hand and are not any more."""
        written = {step.name for step in outcome.done if step.kind == "file" and step.verb in ("write", "remove")}
        written -= self._applier.kept
        for difference in differences:
            if difference.kind == "file" and difference.name in written:
                self._news.acted("file", difference.name, "restored", f"it {difference.what}")

    def _tell_edits(self, differences: Iterable[Difference]) -> None:
        """Tell, once, of changes by hand that are left as they are."""
        present = {
            difference
            for difference in differences
            if difference.kind == "file" and self._node.edits.of(difference.name) != "restore"
        }
        for difference in sorted(present - self._reported_edits):
            verb = "kept" if self._node.edits.of(difference.name) == "keep" else "left"
            self._news.acted("file", difference.name, verb, f"it {difference.what}")
        self._reported_edits = present

    async def _check(self) -> None:
        now_s = self._clock.monotonic()
        for sick in await self._checks.sick(self._node.held.state, now_s):
            await self._heal(sick.service, sick.why)
        results = await self._checks.due(self._node.held.state, now_s)
        if results:
            self._news.measured(results)

    async def _heal(self, service: str, why: str) -> None:
        """Restart a service that its own script calls sick."""
        step = Step("service", service, "restart")
        async with self._node.working:
            place = (step.kind, f"sick {service}")
            retry = self._retries.get(place)
            now_s = self._clock.monotonic()
            if retry is not None and now_s < retry.next_s:
                return
            wait_s = min(retry.wait_s * 2 if retry else self._pace.retry_s, self._pace.longest_retry_s)
            self._retries[place] = _Retry(now_s + wait_s, wait_s)
            failure = await self._effects.services.restart(service)
        if failure:
            self._news.failed(Failed(step, failure))
        else:
            self._news.acted("service", service, "restarted", f"its sickness script failed: {why}")
