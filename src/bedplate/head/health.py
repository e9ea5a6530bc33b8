"""What the checks of the nodes said, and what each node has applied: kept beside the tree.

In: reports of nodes. Out: the present condition of each node, from memory; the history of its checks, from the store;
a stream of results as they come. `/head/nodes/<node>` holds a condition; `/head/samples/<node>/<check>/<slot>` the last
`kept` results of a check, each slot written over in turn, so that a result costs one small record however long the
history is. Other head nodes follow the same records. `news` puts a report into words, as notices without numbers.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

import msgspec

from bedplate.api.headapi import (
    NAME,
    Action,
    CheckHistory,
    CheckState,
    Failure,
    NodeHealth,
    NodeState,
    Result,
    Sample,
    System,
)
from bedplate.api.states import State, Status
from bedplate.api.states import health as all_checks
from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock, parse_rfc3339
from bedplate.head.attention import Attention
from bedplate.head.notices import News, as_stamp, one_line, stamp
from bedplate.store.interface import Batch, Compacted, Delete, Op, Put, Store

__all__ = ["SILENCE_S", "Condition", "Health", "Measured", "Result", "Verdict", "news"]

SILENCE_S = 300.0
"""Agents say that they live three times as often."""

NODES = "/head/nodes/"
SAMPLES = "/head/samples/"
_MOST_CHECKS = 100
_RECENT = 4096
_PAGE = 1000
_BATCH = 100
_LONGEST_INFO = 250
_MOST_FAILURES = 10


class CountedSample(Sample, frozen=True, kw_only=True, omit_defaults=True):
    """A result as it is kept, with its time (RFC 3339 with milliseconds); `count` orders them."""

    count: int


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last result of a check, and since when it has said so."""

    last: CountedSample
    since: str


class Condition(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a node last told: when, which revision it has applied (`digest`: that desired state's), its checks, what it
    could not do for the revision that it `tried`, the version of its agent, and what it says of its machine."""

    heard: str
    applied: int = 0
    digest: str = ""
    checks: dict[str, Verdict] = {}
    failures: tuple[str, ...] = ()
    tried: int = 0
    version: str = ""
    system: System | None = None


class Measured(NamedTuple):
    """A result on its way to those who follow; `before` is what the check had said, if it had said anything."""

    node: str
    check: str
    sample: CountedSample
    before: Status | None


class Health:
    """What nodes report and what their checks measured.

    Open with `async with`; the store is opened and closed by its owner. A node that has not reported for
    `silence_s` is down.
    """

    def __init__(
        self, store: Store, *, clock: Clock | None = None, kept: int = 200, silence_s: float = SILENCE_S
    ) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._kept = kept
        self._silence_s = silence_s
        self._held: dict[str, Condition] = {}
        self._at: dict[str, int] = {}
        self._heard_s: dict[str, float] = {}
        """When each node was heard, by the time in which this head listened."""
        self.attention = Attention(self._clock, silence_s)
        self._recent: deque[Measured] = deque(maxlen=_RECENT)
        self._told = 0
        self._moved = asyncio.Condition()
        self._writing = asyncio.Lock()
        self._conditions = msgspec.json.Decoder(Condition)
        self._samples = msgspec.json.Decoder(CountedSample)
        self.listeners: list[Callable[[str], None]] = []
        """Called with a node that has moved on: it holds or has failed something else than before, came or went."""

    async def __aenter__(self) -> Health:
        await self._load()
        return self

    async def __aexit__(self, *exc: object) -> None:
        return None

    # Reading

    def of(self, node: str) -> Condition | None:
        """What a node last told; None for one that never did."""
        return self._held.get(node)

    def conditions(self) -> Mapping[str, Condition]:
        """Every node that ever reported."""
        return self._held

    def state(self, node: str) -> State:
        """`UP`, `DOWN` for one that fell silent, `UNKNOWN` for one that never reported."""
        if node not in self._held:
            return "UNKNOWN"
        return "UP" if self.attention.now() - self._heard_s[node] <= self._silence_s else "DOWN"

    def node_state(self, node: str) -> NodeState:
        """What is known of a node; of one that fell silent nothing is known any more but what it last said."""
        condition, state = self._held.get(node), self.state(node)
        if condition is None:
            return NodeState(node=node, state=state)
        checks = [
            CheckState(
                check=check,
                time=verdict.last.time,
                status=verdict.last.status if state == "UP" else "UNKNOWN",
                since=verdict.since,
                value=verdict.last.value,
                info=verdict.last.info,
                remedy=verdict.last.remedy,
            )
            for check, verdict in sorted(condition.checks.items())
        ]
        return NodeState(
            node=node,
            state=state,
            heard=condition.heard,
            applied=condition.applied,
            digest=condition.digest,
            checks=checks,
            health=all_checks(check.status for check in checks),
            version=condition.version,
            system=condition.system,
        )

    async def node_health(self, node: str, check: str = "") -> NodeHealth:
        """A node with the history of its checks, or of one."""
        history = await self.history(node, check)
        histories = [CheckHistory(check=name, samples=samples) for name, samples in history.items()]
        return NodeHealth(state=self.node_state(node), history=histories)

    async def history(self, node: str, check: str = "") -> dict[str, list[Sample]]:
        """The kept results of each check, or of one, oldest first."""
        history: dict[str, list[CountedSample]] = {}
        prefix = f"{SAMPLES}{node}/{check}/" if check else f"{SAMPLES}{node}/"
        after, more = "", True
        while more:
            page = await self._store.list(prefix, limit=_PAGE, after=after)
            for entry in page.entries:
                name = entry.key[len(SAMPLES) :].split("/")[1]
                history.setdefault(name, []).append(self._samples.decode(entry.value))
            after, more = page.entries[-1].key if page.entries else "", page.more
        return {
            name: msgspec.convert(sorted(samples, key=lambda sample: sample.count), list[Sample], from_attributes=True)
            for name, samples in sorted(history.items())
        }

    def latest(self, after: str = "") -> list[Measured]:
        """The last result of every check that came after a time: for whoever was away."""
        results = [
            Measured(node, check, verdict.last, verdict.last.status)
            for node, condition in self._held.items()
            if condition.heard > after
            for check, verdict in condition.checks.items()
            if verdict.last.time > after
        ]
        return sorted(results, key=lambda result: (result.sample.time, result.node, result.check))

    async def stream(self) -> AsyncIterator[Measured]:
        """Results from now on, while somebody reads; a reader that falls far behind misses the oldest."""
        seen = self._told
        while True:
            async with self._moved:
                while self._told <= seen:
                    await self._moved.wait()
            missing = min(self._told - seen, len(self._recent))
            seen = self._told
            for measured in list(self._recent)[len(self._recent) - missing :]:
                yield measured

    # Writing

    async def record(
        self,
        node: str,
        results: Iterable[Result] = (),
        *,
        applied: int = 0,
        digest: str = "",
        failures: Sequence[Failure] = (),
        tried: int = 0,
        version: str = "",
        checks: Collection[str] | None = None,
        system: System | None = None,
    ) -> list[Measured]:
        """Keep what a node reported; what it measured, in order. Of checks that are none of `checks`, all that the node
        runs, nothing is kept. Raises `Invalid` for a node with too many checks."""
        async with self._writing:
            before = self._held.get(node)
            now = stamp(self._clock)
            # An ETag is a digest, and maybe which errands came with it.
            condition, measured = _taken(node, before, list(results), now, applied, digest.partition("_")[0])
            gone = [] if checks is None else [name for name in condition.checks if name not in checks]
            if gone:
                left = {name: verdict for name, verdict in condition.checks.items() if name not in gone}
                condition = msgspec.structs.replace(condition, checks=left)
                measured = [result for result in measured if result.check not in gone]
            if failures:
                texts = tuple(
                    one_line(_said(failure, "could not be"), _LONGEST_INFO) for failure in failures[:_MOST_FAILURES]
                )
                condition = msgspec.structs.replace(condition, failures=texts, tried=tried)
            elif digest or (applied and applied >= condition.tried):
                condition = msgspec.structs.replace(condition, failures=(), tried=0)
            if version:
                condition = msgspec.structs.replace(condition, version=version)
            if system is not None:
                condition = msgspec.structs.replace(condition, system=system)
            ops: list[Op] = [Put(NODES + node, msgspec.json.encode(condition))]
            for result in measured:
                slot = f"{SAMPLES}{node}/{result.check}/{result.sample.count % self._kept:05d}"
                ops.append(Put(slot, msgspec.json.encode(result.sample)))
            # Before the node is written: once it no longer has a check, nothing would look for its samples.
            for check in gone:
                await self._forget_samples(f"{SAMPLES}{node}/{check}/")
            at = await self._store.commit(ops)
            has_moved = self.state(node) != "UP" or _standing(before) != _standing(condition)
            self._held[node], self._at[node] = condition, at
            self._heard_s[node] = self.attention.now()
            if has_moved or gone:
                self._tell_moved(node)
            await self._tell(measured)
        return measured

    def _tell_moved(self, node: str) -> None:
        for listener in list(self.listeners):
            listener(node)

    def left(self, node: str) -> None:
        """The node has said that it goes: it is down until it reports again."""
        if node in self._heard_s:
            self._heard_s[node] = self.attention.now() - self._silence_s - 1.0
            self._tell_moved(node)

    async def forget(self, node: str) -> None:
        """Drop everything about a node that was removed."""
        async with self._writing:
            self._held.pop(node, None)
            self._at[node] = await self._store.commit([Delete(NODES + node)])
            await self._forget_samples(f"{SAMPLES}{node}/")

    async def _forget_samples(self, prefix: str) -> None:
        more = True
        while more:
            page = await self._store.list(prefix, limit=_BATCH)
            if page.entries:
                await self._store.commit([Delete(entry.key) for entry in page.entries])
            more = page.more

    async def follow(self) -> None:
        """Keep up with what other head nodes are told; runs until cancelled."""
        while True:
            watch = self._store.watch(NODES, after=await self._store.revision())
            try:
                await self._load()
                async for batch in watch:
                    await self._follow(batch)
            except Compacted:
                continue
            finally:
                await watch.aclose()

    # Inside

    async def _load(self) -> None:
        after, more = "", True
        while more:
            page = await self._store.list(NODES, limit=_PAGE, after=after)
            for entry in page.entries:
                node = entry.key.removeprefix(NODES)
                if entry.revision > self._at.get(node, 0):
                    condition = self._conditions.decode(entry.value)
                    self._held[node], self._at[node] = condition, entry.revision
                    silent_s = (self._clock.now() - parse_rfc3339(condition.heard)).total_seconds()
                    self._heard_s[node] = self.attention.now() - max(silent_s, 0.0)
            after, more = page.entries[-1].key if page.entries else "", page.more

    async def _follow(self, batch: Batch) -> None:
        async with self._writing:
            for event in batch:
                node = event.key.removeprefix(NODES)
                if event.revision <= self._at.get(node, 0):
                    continue
                self._at[node] = event.revision
                if event.entry is None:
                    self._held.pop(node, None)
                    continue
                before, now = self._held.get(node), self._conditions.decode(event.entry.value)
                has_moved = self.state(node) != "UP" or _standing(before) != _standing(now)
                self._held[node] = now
                self._heard_s[node] = self.attention.now()
                if has_moved:
                    self._tell_moved(node)
                await self._tell(_differences(node, before, now))

    async def _tell(self, measured: Sequence[Measured]) -> None:
        if not measured:
            return
        self._recent.extend(measured)
        self._told += len(measured)
        async with self._moved:
            self._moved.notify_all()


def _taken(
    node: str, before: Condition | None, results: Sequence[Result], now: str, applied: int, digest: str
) -> tuple[Condition, list[Measured]]:
    """The node's new condition, and what it measured."""
    checks = dict(before.checks) if before is not None else {}
    measured = []
    for result in results:
        if not re.fullmatch(NAME, result.check):
            raise errors.Invalid(
                f"{result.check!r} cannot be the name of a check", hint="use letters, digits and dashes"
            )
        verdict = checks.get(result.check)
        count = verdict.last.count + 1 if verdict is not None else 0
        time = _before(now, result.age_s) if result.age_s else now
        sample = CountedSample(
            count=count,
            time=time,
            status=result.status,
            value=result.value,
            info=one_line(result.info, _LONGEST_INFO),
            remedy=one_line(result.remedy, _LONGEST_INFO),
        )
        was = verdict.last.status if verdict is not None else None
        since = verdict.since if verdict is not None and was == result.status else time
        checks[result.check] = Verdict(sample, since)
        measured.append(Measured(node, result.check, sample, was))
    if len(checks) > _MOST_CHECKS:
        raise errors.Invalid(f"{node} has {len(checks)} checks; at most {_MOST_CHECKS} are kept", hint="report fewer")
    told = before or Condition(now)
    after = msgspec.structs.replace(
        told, heard=now, applied=applied or told.applied, digest=digest or told.digest, checks=checks
    )
    return after, measured


def _standing(condition: Condition | None) -> tuple[object, ...]:
    """What says how far a node is."""
    return (condition.applied, condition.digest, condition.failures, condition.tried) if condition is not None else ()


def _before(now: str, seconds: float) -> str:
    return as_stamp(parse_rfc3339(now) - timedelta(seconds=seconds))


def _differences(node: str, before: Condition | None, now: Condition) -> list[Measured]:
    results = []
    for check, verdict in now.checks.items():
        previous = before.checks.get(check) if before is not None else None
        if previous != verdict:
            results.append(Measured(node, check, verdict.last, previous.last.status if previous is not None else None))
    return results


def news(
    node: str, actions: Iterable[Action], failures: Iterable[Failure], measured: Iterable[Measured], revision: int = 0
) -> list[News]:
    """One notice for each action, each failure, and each check that says something else than before."""
    items = [News(node, _said(action, "was"), "notice", revision) for action in actions]
    items += [News(node, _said(failure, "could not be"), "warning", revision) for failure in failures]
    items.extend(_turned(result) for result in measured if _has_turned(result))
    return items


def _said(action: Action, verb: str) -> str:
    why = f": {action.text}" if action.text else ""
    return f"{action.kind.capitalize()} {action.name} {verb} {action.verb}{why}"


def _has_turned(result: Measured) -> bool:
    """A check that begins by passing is not reported."""
    return result.before != result.sample.status and not (result.before is None and result.sample.status == "PASS")


def _turned(result: Measured) -> News:
    if result.sample.status == "PASS":
        return News(result.node, f"Check {result.check} passes again")
    word = "failed" if result.sample.status == "FAIL" else "returns no result"
    why = f": {result.sample.info}" if result.sample.info else ""
    return News(result.node, f"Check {result.check} {word}{why}", "warning")
