"""The agent as a program: recover, follow the head, keep what holds, check, report; until it is told to stop.

In: a head, and what effects are done with. Out: the node is what the head says, and the head knows it. Without a head
the last state is kept: services are restarted, files put right, results kept to be told later. One change is made at a
time, whoever asks for it.

    loop       long poll, then the steps to the new state; what failed is tried again
    errands    what is to be done once: restarts, transfers of software images
    upkeep     drift: what changed by hand or died is put right; checks at their intervals
    news       reports, soon after something happened and now and then to say that the node lives
"""

from __future__ import annotations

import asyncio
import random

import msgspec

from bedplate.agent.apply import Applier, Effects
from bedplate.agent.checks import Checks
from bedplate.agent.errands import Errands, SwitchedOff
from bedplate.agent.link import Head
from bedplate.agent.news import News
from bedplate.agent.node import Node, Pace
from bedplate.agent.observe import Difference, Edits, Watch, remaining, with_failed
from bedplate.agent.state import Held, StateProblem
from bedplate.agent.update import Updates
from bedplate.agent.upkeep import Upkeep
from bedplate.api.desired import Desired
from bedplate.api.steps import Failed, Outcome, Step, steps
from bedplate.client import Unauthorized, Wanted
from bedplate.core import errors
from bedplate.core.backoff import Backoff
from bedplate.core.clock import Clock, SystemClock
from bedplate.core.logging import get_logger
from bedplate.core.tasks import TaskGroup

__all__ = ["Agent"]

_LOG = get_logger("agent")
_MOMENT_S = 1.0
"""A poll is of whole seconds; what is due within one is due."""
_ENROL = "what holds is kept; to follow the head again: bedplate-agent enrol, with a token that the head makes"


class Replaced(errors.Terminal):
    """Another version of the agent is in place: this one ends, and the service manager starts that one."""


class Agent:
    """`run` until cancelled. `recovered` is set once what was interrupted is finished, `settled` whenever the node has
    done what it could about the last state it was given."""

    def __init__(
        self,
        effects: Effects,
        head: Head,
        *,
        checks: Checks | None = None,
        clock: Clock | None = None,
        pace: Pace | None = None,
        rng: random.Random | None = None,
        updates: Updates | None = None,
    ) -> None:
        node = Node(effects, head, clock or SystemClock(), pace or Pace(), rng or random.Random(), updates)
        watch = Watch(effects.root, effects.state)
        self._node, self._updates = node, updates
        self._effects, self._state = effects, effects.state
        self._head, self._clock, self._pace = head, node.clock, node.pace
        self._checks = checks or Checks(effects.root, effects.services, effects.run)
        self._applier = Applier(effects, watch)
        self._news = News(node)
        self._upkeep = Upkeep(node, self._news, self._checks, self._applier, watch)
        self._errands = Errands(node, self._upkeep)
        self._is_online: bool | None = None
        self._why_away = ""
        self.recovered = asyncio.Event()
        self.settled = asyncio.Event()

    @property
    def held(self) -> Held:
        """What holds now."""
        return self._node.held

    @property
    def edits(self) -> Edits:
        """What is done about changes by hand."""
        return self._node.edits

    async def run(self) -> None:
        """Recover, then follow."""
        await self.recover()
        try:
            async with TaskGroup() as tasks:
                tasks.create_task(self._follow())
                tasks.create_task(self._upkeep.run())
                tasks.create_task(self._news.run())
                if self._updates is not None:
                    tasks.create_task(self._updates.limited(self._clock))
        except* (SwitchedOff, Replaced) as off:
            _LOG.info("agent.off", reason=str(off.exceptions[0]))
        finally:
            await self._checks.close()
            self._state.close()

    async def recover(self) -> None:
        """Read what is known, and finish a change that was under way."""
        self._state.open()
        if self._updates is not None:
            self._updates.recover()
        self._node.held = self._state.held()
        self._news.outbox = self._state.outbox()
        async with self._node.working:
            resumed = await self._applier.resume()
            if resumed is not None:
                change, outcome = resumed
                if change.etag is not None:
                    self._hold(outcome, change.after, change.etag)
                self._state.end()
                self._news.happened(outcome)
        self.recovered.set()

    # Following the head

    async def _follow(self) -> None:
        backoff, later = (Backoff(first_s=1.0, cap_s=60.0, rng=self._node.rng) for _ in range(2))
        retry_s, has_told, has_resumed = self._pace.retry_s, False, False
        due_s = self._clock.monotonic() + retry_s
        while True:
            is_whole = self.held.is_whole
            # The head lets nobody wait for as long as the longest time between two tries.
            wait_s = self._pace.poll_s if is_whole else min(self._pace.poll_s, max(due_s - self._clock.monotonic(), 0))
            try:
                if not has_told:
                    await self._errands.tell()
                    await self._errands.tell_boot()
                    has_told = True
                if not has_resumed and self.held.wanted is not None:
                    has_resumed = True
                    has_told = await self._errands.resume(self.held.wanted)
                answer = await self._head.desired(self.held.etag, wait_s)
            except errors.BedplateError as err:
                self._offline(err)
                asked_s = err.retry_after_s if isinstance(err, errors.Retryable) else None
                await self._clock.sleep(max(backoff.next(), asked_s or 0.0))
                continue
            backoff.reset()
            self._online()
            if answer is not None and answer.state.errands:
                if self._has_to_become_first(answer.state):
                    await self._try_to_settle(answer._replace(etag=""), retry_s)
                has_told = await self._errands.run(answer.state)
                if has_told:
                    later.reset()
                else:
                    # Without its ETag it is given again, also to the next run of the agent.
                    answer = answer._replace(etag="")
            if answer is None and is_whole:
                self._confirmed()
                continue
            if answer is None and due_s - self._clock.monotonic() > _MOMENT_S:
                continue
            await self._try_to_settle(answer, retry_s)
            retry_s = self._pace.retry_s if answer is not None else min(2 * retry_s, self._pace.longest_retry_s)
            due_s = self._clock.monotonic() + retry_s
            if not has_told:
                await self._clock.sleep(later.next())

    def _has_to_become_first(self, desired: Desired) -> bool:
        """Whether a request needs what comes with it: kubeadm makes a node part of a cluster by the packages and files
        of its role. The head asks for that once the node has them, but what it heard may be from before they went."""
        is_needed = any(errand.action in ("init", "join") for errand in desired.errands)
        return is_needed and self.held.digest != desired.digest

    async def _try_to_settle(self, answer: Wanted | None, pause_s: float) -> None:
        """A node that cannot even write down what it is to become says so, and pauses."""
        try:
            await self._settle(answer)
        except StateProblem as err:
            self._news.failed(Failed(Step("state", self._state.folder, "write"), f"{err}; {err.hint}"))
            await self._clock.sleep(pause_s)

    async def _settle(self, answer: Wanted | None) -> None:
        """Become what the head says; None: try again what it said last."""
        async with self._node.working:
            self.settled.clear()
            desired = answer.state if answer is not None else self.held.wanted
            etag = answer.etag if answer is not None else self.held.etag
            if desired is None:
                return
            self._node.tried = desired.revision
            # What is to be done once is not part of what holds.
            desired = msgspec.structs.replace(desired, errands=())
            is_first = self.held.state is None
            differences = await self._upkeep.differences()
            edits = self._effects.edits.under(desired.settings)
            before = remaining(self.held.state, differences, edits) if self.held.state else None
            before = with_failed(before, self.held.wanted, desired) if before is not None else None
            outcome = await self._updated(await self._applier.apply(before, desired, etag), desired)
            self._hold(outcome, desired, etag)
            self._state.end()
            self._upkeep.restored(differences, outcome)
            self._news.happened(outcome, is_first=is_first)
            self.settled.set()
        if self._updates is not None and self._updates.is_placed:
            raise Replaced(f"version {desired.settings['agent_version']} is in place of {self._updates.version}")

    async def _updated(self, outcome: Outcome, desired: Desired) -> Outcome:
        """With what became of the agent's own version, where the head names one."""
        why = await self._updates.follow(desired.settings) if self._updates is not None else None
        if why is None:
            return outcome
        step = Step("agent", desired.settings["agent_version"], "start")
        return outcome._replace(failed=(*outcome.failed, Failed(step, why)))

    def _hold(self, outcome: Outcome, desired: Desired, etag: str) -> None:
        """Write down what holds now."""
        is_placed = self._updates is not None and self._updates.is_placed
        is_whole = not outcome.failed and not is_placed
        applied = desired.revision if is_whole else self.held.applied
        # The next version asks the head again, and says then that it is what it should be.
        new = Held(
            state=outcome.held,
            wanted=desired,
            etag="" if is_placed else etag,
            digest=desired.digest,
            applied=applied,
            is_whole=is_whole,
        )
        self._state.save_held(new)
        self._node.held = new

    def _confirmed(self) -> None:
        """The head says that nothing else is wanted: what it said last holds at its present revision, too."""
        if self._node.revision > self.held.applied:
            self._node.held = msgspec.structs.replace(self.held, applied=self._node.revision)
            self._news.is_due.set()

    def _offline(self, err: errors.BedplateError) -> None:
        # Once for each reason: one that refuses this node is another than one that is not there.
        if self._is_online is not False or str(err) != self._why_away:
            _LOG.warning("agent.head.away", error=str(err), hint=_hint(err))
        self._is_online, self._why_away = False, str(err)
        # Who waits for the first answer of a head gets none; the last state is what there is.
        self.settled.set()

    def _online(self) -> None:
        if self._is_online is False:
            _LOG.info("agent.head.back")
            self._news.is_due.set()
        self._is_online = True

    # Looking only

    async def differences(self) -> list[Difference]:
        """What is not as it was put, by what was last written down."""
        self._node.held = self._state.held()
        return await self._upkeep.differences()

    async def plan(self, desired: Desired) -> list[Step]:
        """The steps from what is there to a state, should none fail. Nothing is touched."""
        differences = await self.differences()
        before = self.held.state
        if before is not None:
            before = remaining(before, differences, self._effects.edits.under(desired.settings))
        return steps(before, desired)


def _hint(err: errors.BedplateError) -> str:
    """What to do about a head that gives no state. What it says to whom it refuses is for people, who can sign in."""
    return _ENROL if isinstance(err, Unauthorized) else err.hint
