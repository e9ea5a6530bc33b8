"""Random sequences of cloud answers and node states: no node is ever deleted that must not be.

Two clouds, their nodes in memory, and either the plan alone (most sequences) or the whole of a pass: asking, planning,
carrying out. What is allowed is judged by `Oracle`, which shares no code with the plan: it writes down every answer the
clouds gave and every state the nodes had, and checks each deletion against that record.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from tests.cloud.controllers.fakenodes import FakeNodes, condition, conflict
from tests.cloud.scripted import FAULTS, Events, ScriptedProvider

from bedplate.api import core
from bedplate.api.resources import ResourceRef
from bedplate.cloud.controllers import lifecycle_plan
from bedplate.cloud.controllers.lifecycle import LifecycleController, LifecycleOptions, Monitor, sight
from bedplate.cloud.controllers.lifecycle_brake import Census, Sighting
from bedplate.cloud.controllers.lifecycle_plan import Action, Answer, Memory, Moment, Question
from bedplate.cloud.errors import CloudError, InstanceNotFound
from bedplate.cloud.interface import Listing
from bedplate.cloud.labels import LABEL_EXCLUDE_FROM_LIFECYCLE
from bedplate.cloud.routing import Clouds
from bedplate.core import clock, logging

PLANNED, PLANNED_FULL = 600, 200_000
"""Sequences through the plan in `make test`, always the same, and in `make soak`."""
PASSED, PASSED_FULL = 120, 20_000
"""Sequences through whole passes."""
NODES_EACH, LONGEST = 5, 9
ANSWERS = ("gone", "gone", "gone", "gone", "there", "off", "cached-gone", "cached-there", *FAULTS)
EVENTS = (
    "none", "none", "none", "ready", "not-ready", "unknown", "exclude", "include", "rejoin",
    "foreign", "deleting", "other-id", "stale", "fresh-cache", "restart", "clock-ahead", "clock-back", "conflict",
    "join", "rejoin-ahead", "stale-ready",
)  # fmt: skip
CLOUDS = ("one", "two")
PLAYED = ("one-0", "one-1", "two-0", "two-1")
GAPS = (5.0, 5.0, 5.0, 4.0, 60.0)
HELD, HELD_FULL = 300, 50_000
"""Sequences in which many nodes are absent for long, through the plan and through whole passes."""
HOLD_S = 15.0
LISTS = (*["good"] * 20, "refused", "empty", "shows-absent")
"""What a list of machines shows; only a good one proves anything."""
HELD_ANSWERS = (*["same"] * 40, "gone", "there", "off", "cached-gone", "500")
HELD_EVENTS = (*["none"] * 40, *(event for event in EVENTS if event not in ("restart", "join")))
REGISTRY = CollectorRegistry()
seen: Counter[str] = Counter()


class Clock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.at = 1000.0
        self.wall = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


@dataclass
class Record:
    """One answer of a cloud about one machine."""

    outcome: str
    at: float
    is_fresh: bool


@dataclass
class Look:
    """What one pass over one cloud saw."""

    at: float
    is_listed: bool = False
    """It read a complete list with a machine in it and without any that is absent."""
    denied: set[tuple[str, str]] = field(default_factory=set)
    """Those that were denied without a cache."""


@dataclass
class Oracle:
    """Knows every answer and every state, and what they allow."""

    options: LifecycleOptions
    time: Clock
    answers: dict[tuple[str, str], list[Record]] = field(default_factory=dict)
    """By (uid, provider ID), the row of answers since the last break."""
    suspects: set[tuple[str, str]] = field(default_factory=set)
    """Those whose last certain answer was absence."""
    joined: dict[str, float] = field(default_factory=dict)
    clouds: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    """The managed nodes of each cloud, as the cache has them."""
    looks: dict[str, list[Look]] = field(default_factory=dict)

    def begin(self, cloud: str) -> None:
        self.looks.setdefault(cloud, []).append(Look(self.time.at))

    def is_proven(self, cloud: str) -> bool:
        """Whether every look since at least the hold proved every absence, none too far from the next."""
        suspects = self.suspects & self.clouds[cloud]
        hold_s, later = self.options.mass_deletion_hold_s, self.time.at
        for look in reversed(self.looks.get(cloud, [])):
            if not look.is_listed or suspects - look.denied or later - look.at > hold_s / 3:
                return False
            if self.looks[cloud][-1].at - look.at >= hold_s > 0:
                return True
            later = look.at
        return False

    def answered(self, node: core.Node, outcome: str, fresh: bool) -> None:
        self.answers.setdefault(identity(node), []).append(Record(outcome, self.time.at, fresh))
        if outcome == "absent":
            self.suspects.add(identity(node))
            if fresh and (looks := self.looks.get(node.spec.provider_id.partition("://")[0])):
                looks[-1].denied.add(identity(node))
        elif outcome == "present":
            self.suspects.discard(identity(node))

    def check(self, judged: core.Node, truth: core.Node, cloud: str) -> None:
        """Whether this node may be deleted now."""
        uid = judged.metadata.uid
        assert truth.metadata.uid == uid, "another node of the same name"
        assert not truth.is_ready, "a ready node"
        assert not is_excluded(truth), "an excluded node"
        assert truth.spec.provider_id.startswith(f"{cloud}://"), "a foreign node"
        row = self.answers[identity(truth)]
        assert len(row) >= 2 and [one.outcome for one in row[-2:]] == ["absent", "absent"], "not absent twice in a row"
        assert row[-1].is_fresh, "the last answer came out of a cache"
        rows = [one for one in row if one.outcome == "absent"]
        assert any(row[-1].at - one.at >= self.options.node_monitor_period_s for one in rows), "too soon"
        created = truth.metadata.creation_timestamp
        assert created is not None
        grace = self.options.node_startup_grace_period_s
        assert (self.time.wall - created).total_seconds() >= grace, "a young node"
        assert self.time.at - self.joined.get(uid, -1e9) >= grace, "a young node, whatever the wall clock says"
        unproven = {name: nodes & self.suspects for name, nodes in self.clouds.items() if not self.is_proven(name)}
        for name, managed in ((cloud, self.clouds[cloud]), ("", set.union(*self.clouds.values()))):
            absent = sum(len(nodes) for of, nodes in unproven.items() if name in ("", of))
            most = max(1, len(managed) * self.options.max_node_deletions_percent // 100)
            assert absent <= most, f"{absent} absent of {len(managed)}"
            seen["opened"] += len(self.suspects & managed) > most


class Script:
    """What one cloud answers in this pass, told to the oracle."""

    def __init__(self, kinds: dict[str, str], oracle: Oracle, cloud: str) -> None:
        self._kinds, self._oracle, self._cloud = kinds, oracle, cloud
        self.list_kind = "good"

    def outcome(self, node: core.Node, fresh: bool) -> str:
        """`gone`, `there`, `off` or the name of a fault."""
        kind = self._kinds.get(node.name, "there")
        if kind.startswith("cached-"):
            is_gone = (kind == "cached-gone") != fresh
            kind = "gone" if is_gone else "there"
        told = "error" if kind in FAULTS else "absent" if kind == "gone" else "present"
        self._oracle.answered(node, told, fresh)
        return kind

    def answer(self, question: Question, at: float) -> Answer:
        """The answer as the plan gets it."""
        kind = self.outcome(question.node, question.is_fresh)
        if kind in FAULTS:
            return Answer(None, at, at, question.is_fresh, error=kind)
        return Answer(kind != "gone", at, at, question.is_fresh, is_shutdown=kind == "off")

    async def exists(self, node: core.Node, *, fresh: bool = False) -> bool:
        kind = self.outcome(node, fresh)
        if kind in FAULTS:
            raise FAULTS[kind]()
        if kind == "gone" and len(node.name) % 2:
            raise InstanceNotFound(node.name)
        return kind != "gone"

    async def is_shutdown(self, node: core.Node, *, fresh: bool = False) -> bool:
        return self._kinds.get(node.name) == "off"

    async def metadata(self, node: core.Node) -> None:
        return None

    def was_absent(self, name: str, within_s: float) -> bool:
        return False

    async def listing(self, nodes: Sequence[core.Node]) -> Listing:
        if self.list_kind == "refused":
            raise CloudError("no list")
        gone = [node for node in nodes if identity(node) in self._oracle.suspects]
        if self.list_kind == "shows-absent" and gone:
            return Listing(3, frozenset({gone[0].name}))
        self._oracle.looks[self._cloud][-1].is_listed = self.list_kind != "empty"
        return Listing(0 if self.list_kind == "empty" else 3, frozenset())


class CheckedNodes(FakeNodes):
    """Nodes in memory whose deletions the oracle judges."""

    oracle: Oracle

    async def delete(self, ref: ResourceRef[Any], name: str, *, uid: str = "", resource_version: str = "") -> None:
        assert uid and resource_version
        truth = self.node(name)
        await super().delete(ref, name, uid=uid, resource_version=resource_version)
        self.oracle.check(truth, truth, truth.spec.provider_id.partition("://")[0])
        seen["deleted"] += 1


class World:
    """Two clouds, their nodes, and the controller under test."""

    def __init__(self, options: LifecycleOptions) -> None:
        self.time = Clock()
        self.nodes = CheckedNodes()
        self.nodes.oracle = self.oracle = Oracle(options, self.time)
        self.has_looked = False
        self.kinds: dict[str, str] = {}
        self.numbers = 0
        self.scripts = {cloud: Script(self.kinds, self.oracle, cloud) for cloud in CLOUDS}
        providers = []
        for cloud in CLOUDS:
            provider = ScriptedProvider(cloud)
            provider.instances = self.scripts[cloud]
            providers.append(provider)
            for number in range(NODES_EACH):
                self.join(cloud, f"{cloud}-{number}", is_old=True)
        self.events = Events()
        self.controller = LifecycleController(
            self.nodes,
            Clouds(providers),
            self.nodes.cache,
            self.events,
            options,
            self.time,
            REGISTRY,  # type: ignore[arg-type]
        )
        self.restart()

    def restart(self) -> None:
        self.has_looked = False
        parts = self.controller.parts()
        self.controller.absent.clear()
        self.absent = dict.fromkeys(CLOUDS, 0)
        self.monitors = [part for part in parts if isinstance(part, Monitor)]
        self.memories = [Memory() for _ in self.monitors]
        self.oracle.answers.clear()
        self.oracle.suspects.clear()
        self.oracle.joined.clear()
        self.oracle.looks.clear()

    def join(self, cloud: str, name: str, *, is_old: bool = False) -> None:
        if name in self.nodes.raw:
            self.nodes.drop(name)
        created = datetime(2025, 1, 1, tzinfo=UTC) if is_old else self.time.wall
        node = self.nodes.put(
            name,
            metadata={"creationTimestamp": clock.rfc3339(created)},
            spec={"providerID": f"{cloud}://{name}"},
            status=condition("False" if not is_old or name.endswith(("0", "1")) else "True"),
        )
        if self.has_looked:
            # Of a node that was there before the first pass only its own timestamp tells the age.
            self.oracle.joined[node.metadata.uid] = self.time.at

    def happen(self, event: str, cloud: str, name: str) -> None:
        nodes, time = self.nodes, self.time
        ready = {"ready": "True", "not-ready": "False", "unknown": "Unknown"}
        match event:
            case "ready" | "not-ready" | "unknown" if name in nodes.raw:
                nodes.put(name, status=condition(ready[event]))
            case "exclude" | "include" if name in nodes.raw:
                nodes.put(name, metadata={"labels": {LABEL_EXCLUDE_FROM_LIFECYCLE: "" if event == "exclude" else None}})
            case "foreign" | "other-id" if name in nodes.raw:
                scheme = "aws" if event == "foreign" else cloud
                nodes.put(name, spec={"providerID": f"{scheme}://{name}-{event}"})
            case "deleting" if name in nodes.raw:
                nodes.put(name, metadata={"deletionTimestamp": clock.rfc3339(time.wall)})
            case "rejoin":
                self.join(cloud, name)
            case "rejoin-ahead":
                self.join(cloud, name)
                time.wall += timedelta(days=1)
            case "stale-ready" if name in nodes.raw:
                nodes.is_stale = True
                nodes.put(name, status=condition("True"))
            case "join":
                self.numbers += 1
                self.join(cloud, f"{cloud}-x{self.numbers}")
            case "stale":
                nodes.is_stale = True
            case "fresh-cache":
                nodes.is_stale = False
                nodes.catch_up()
            case "restart":
                self.restart()
            case "clock-ahead":
                time.wall += timedelta(days=1)
            case "clock-back":
                time.wall -= timedelta(hours=1)
            case "conflict":
                nodes.refusals.append(conflict(name))

    def advance(self, gap_s: float) -> None:
        self.time.at += gap_s
        self.time.wall += timedelta(seconds=gap_s)

    async def look(self) -> None:
        """Every cloud's monitor once."""
        for number, monitor in enumerate(self.monitors):
            self._look_around()
            if number < len(CLOUDS):
                self.oracle.begin(CLOUDS[number])
            self.memories[number] = await monitor.look(self.memories[number])

    async def plan(self) -> None:
        """The same with the plan alone; its deletions are judged, and then happen."""
        rules, nodes = self.controller.options.rules, self.nodes
        for number, cloud in enumerate(CLOUDS):
            self._look_around()
            self.oracle.begin(cloud)
            mine, others = (
                [node for node in nodes.cache if is_of(node, one)] for one in (cloud, *set(CLOUDS) - {cloud})
            )
            now = Moment(self.time.at, self.time.wall)
            surveyed = lifecycle_plan.survey(mine, self.memories[number], rules, now)
            answers = {
                one.node.metadata.uid: self.scripts[cloud].answer(one, now.monotonic) for one in surveyed.questions
            }
            elsewhere = Census(lifecycle_plan.count_managed(others), sum(self.absent.values()) - self.absent[cloud])
            sighting = Sighting()
            if lifecycle_plan.is_braked(surveyed, answers, rules, now, elsewhere):
                sighting = await sight((self.scripts[cloud],), mine)
            judged = lifecycle_plan.judge(surveyed, answers, rules, now, elsewhere, sighting)
            self.absent[cloud] = judged.census.absent
            deleted = [one.node for one in judged.verdicts if one.action is Action.DELETE]
            self.memories[number] = lifecycle_plan.after_deletions(
                judged.memory, (node.metadata.uid for node in deleted)
            )
            seen["blocked"] += sum(one.action is Action.BLOCK for one in judged.verdicts)
            for node in deleted:
                self._delete(node, cloud)

    def _delete(self, node: core.Node, cloud: str) -> None:
        """As the controller does: not without a last look."""
        truth = self.nodes.node(node.name) if node.name in self.nodes.raw else None
        if truth is not None and not lifecycle_plan.may_still_delete(node, truth):
            self.oracle.check(node, truth, cloud)
            self.nodes.drop(node.name)
            seen["deleted"] += 1

    def _look_around(self) -> None:
        """What the caches show now breaks rows of answers, and is what the brake counts."""
        self.has_looked = True
        oracle, cached = self.oracle, list(self.nodes.cache)
        here = set(map(identity, cached))
        oracle.answers = {key: row for key, row in oracle.answers.items() if key in here}
        hands_off = {identity(node) for node in cached if is_excluded(node) or node.metadata.is_deleting}
        for one in hands_off | {identity(node) for node in cached if node.is_ready}:
            oracle.answers.pop(one, None)
            oracle.suspects.discard(one)
        for cloud in CLOUDS:
            oracle.clouds[cloud] = {identity(node) for node in cached if is_of(node, cloud)} - hands_off


def identity(node: core.Node) -> tuple[str, str]:
    return node.metadata.uid, node.spec.provider_id


def is_excluded(node: core.Node) -> bool:
    return node.metadata.labels.get(LABEL_EXCLUDE_FROM_LIFECYCLE, "false") != "false"


def is_of(node: core.Node, cloud: str) -> bool:
    return node.spec.provider_id.startswith(f"{cloud}://")


CHOICES = (EVENTS, PLAYED, *(ANSWERS for _ in PLAYED), GAPS)
"""What is chosen for one pass: one event, an answer about each of four nodes, and the time since the last pass. Numbers
tend to be small, so what comes last is more often the first of its kind."""
SEQUENCE = st.tuples(
    st.sampled_from((20, 20, 40, 0)),
    st.sampled_from((0.0, 12.0, 20.0)),
    # All choices of a pass in one number: a tenth of the drawing, and it shrinks just as well.
    st.lists(st.integers(0, math.prod(map(len, CHOICES)) - 1), min_size=3, max_size=LONGEST),
)


def chosen(number: int) -> list[Any]:
    """The choices that a number stands for."""
    found = []
    for choice in CHOICES:
        number, index = divmod(number, len(choice))
        found.append(choice[index])
    return found


async def play(sequence: Any, *, is_whole: bool) -> None:
    percent, grace_s, passes = sequence
    world = World(LifecycleOptions(max_node_deletions_percent=percent, node_startup_grace_period_s=grace_s))
    for one in passes:
        event, name, *answers, gap_s = chosen(one)
        world.happen(event, name.partition("-")[0], name)
        world.kinds.update(zip(PLAYED, answers, strict=True))
        world.advance(gap_s)
        if is_whole:
            await world.look()
        else:
            await world.plan()
        seen.update(answers)
        seen[event] += 1
    seen["sequences"] += 1
    seen["blocked"] += len(world.events.of("NodeDeletionBlocked"))


HELD_CHOICES = (HELD_EVENTS, PLAYED, *(HELD_ANSWERS for _ in PLAYED), LISTS, LISTS, GAPS[:4])
# What spoils a proof is rare among the choices, so each pass is drawn evenly, from a seed.
HELD_SEQUENCE = st.lists(st.integers(0, 2**32), min_size=5, max_size=12)


async def play_held(passes: list[int], *, is_whole: bool) -> None:
    """Two machines of each cloud are gone from the beginning, and what happens to the proof of that is chosen."""
    world = World(LifecycleOptions(mass_deletion_hold_s=HOLD_S, node_startup_grace_period_s=0.0))
    world.kinds.update(dict.fromkeys(PLAYED, "gone"))
    for one in passes:
        event, name, *answers, list_one, list_two, gap_s = map(random.Random(one).choice, HELD_CHOICES)
        world.happen(event, name.partition("-")[0], name)
        world.kinds.update((name, kind) for name, kind in zip(PLAYED, answers, strict=True) if kind != "same")
        for cloud, kind in zip(CLOUDS, (list_one, list_two), strict=True):
            world.scripts[cloud].list_kind = kind
        world.advance(gap_s)
        await (world.look() if is_whole else world.plan())
        seen.update((*answers, list_one, list_two))
    seen["sequences"] += 1


def run_held(count: int, *, is_whole: bool, is_new: bool = False) -> None:
    """Play that many sequences of many absences; the proof must be completed in some, and be spoilt in every way."""
    seen.clear()
    with asyncio.Runner() as runner:

        @hypothesis.settings(max_examples=count, derandomize=not is_new)
        @hypothesis.given(HELD_SEQUENCE)
        def every(passes: list[int]) -> None:
            runner.run(play_held(passes, is_whole=is_whole))

        every()
    assert seen["sequences"] >= count
    assert seen["opened"] > count / 20, "the brake opens in some of them, or they prove nothing"
    assert all(seen[kind] for kind in (*LISTS, *HELD_ANSWERS))


def run_sequences(count: int, *, is_whole: bool, is_new: bool = False) -> None:
    """Play that many sequences; new ones, or those that every run plays."""
    seen.clear()
    with asyncio.Runner() as runner:

        @hypothesis.settings(max_examples=count, derandomize=not is_new)
        @hypothesis.given(SEQUENCE)
        def every(sequence: Any) -> None:
            runner.run(play(sequence, is_whole=is_whole))

        every()
    assert seen["sequences"] >= count
    assert seen["deleted"] > count / 20, "the sequences lead to deletions, or they prove nothing"
    assert seen["blocked"] > count / 20
    assert all(seen[kind] for kind in (*ANSWERS, *EVENTS))


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of log lines that nobody reads would take most of the time."""
    monkeypatch.setattr(logging.Logger, "_write", lambda *_: None)


def test_no_sequence_of_answers_and_states_has_the_plan_delete_what_must_stay() -> None:
    run_sequences(PLANNED, is_whole=False)


def test_no_sequence_of_answers_and_states_has_a_pass_delete_what_must_stay() -> None:
    run_sequences(PASSED, is_whole=True)


@pytest.mark.parametrize("is_whole", [False, True])
def test_no_sequence_opens_the_brake_without_its_proof(is_whole: bool) -> None:
    run_held(HELD, is_whole=is_whole)


@pytest.mark.soak
@pytest.mark.parametrize("is_whole", [False, True])
def test_no_sequence_opens_the_brake_without_its_proof_in_full(is_whole: bool) -> None:
    run_held(HELD_FULL, is_whole=is_whole, is_new=True)


@pytest.mark.soak
@pytest.mark.parametrize(("count", "is_whole"), [(PLANNED_FULL, False), (PASSED_FULL, True)])
def test_no_sequence_deletes_what_must_stay_in_full(count: int, is_whole: bool) -> None:
    run_sequences(count, is_whole=is_whole, is_new=True)
