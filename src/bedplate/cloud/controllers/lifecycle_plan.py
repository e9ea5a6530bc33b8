"""What the cloud node lifecycle controller does: the only place where the deletion of a Node is decided.

In: the nodes of one cloud, what the cloud answered about those that are not ready, the memory of earlier passes, and
how many nodes of other clouds seem absent. Out: a `Verdict` for every node, with a sentence that says why, and the
memory for the next pass. Pure: no clock is read, nothing is asked or written here. A pass has two halves:

    survey(nodes, memory)  →  what is settled already, and whom to ask, cached or fresh
    judge(pass, answers)   →  what to do with every node, and the memory that the next pass gets

The rules that keep nodes alive, in the order in which they are applied: not ours; excluded by its label; ready; not
absent for certain; not absent often enough, far enough apart, the last time uncached; too young; too many at once
(`lifecycle_brake`), unless it is proven that they are gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from bedplate.api import core
from bedplate.cloud import taints
from bedplate.cloud.controllers import lifecycle_brake as brakes
from bedplate.cloud.controllers.lifecycle_brake import Absence, Census, Proof, Sighting, Stage
from bedplate.cloud.labels import is_excluded

__all__ = [
    "Action",
    "Answer",
    "Judgement",
    "Memory",
    "Moment",
    "Past",
    "Question",
    "Rules",
    "Survey",
    "Verdict",
    "after_deletions",
    "count_managed",
    "is_braked",
    "judge",
    "may_still_delete",
    "survey",
]

REPEAT_EVENT_S = 300.0
"""A blocked deletion is told again after this time."""
REPEAT_CHANGE_S = 60.0
"""And after this one when the proof that opens the brake has begun or was broken since."""
GRACE, BRAKE, UNCONFIRMED = "grace", "brake", "unconfirmed"
HOLDS = (GRACE, BRAKE)


@dataclass(frozen=True, slots=True)
class Rules:
    """The flags that matter here."""

    period_s: float = 5.0
    confirmations: int = 2
    max_percent: int = 20
    grace_s: float = 120.0
    hold_s: float = 900.0
    is_out_of_service_tainted: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """Both clocks: spans are measured with the monotonic one, only a node's age needs the wall."""

    monotonic: float
    wall: datetime


@dataclass(frozen=True, slots=True)
class Answer:
    """What a cloud said of one node. `exists` None: it could not be found out, and `error` says why.

    `asked_at` and `answered_at` are monotonic; `is_fresh`: no cache was used.
    """

    exists: bool | None
    asked_at: float
    answered_at: float
    is_fresh: bool = False
    error: str = ""
    is_shutdown: bool | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """What earlier passes found about one node (one uid under one provider ID)."""

    provider_id: str = ""
    first_seen: float | None = None
    """When it joined; None when it was there before the first pass, so that only its own timestamp tells its age."""
    absences: int = 0
    """Absent answers in a row, each a period after the one before."""
    absent_since: float = 0.0
    absent_at: float = 0.0
    is_suspect: bool = False
    """The last answer, errors aside, was absence: it counts for the brake until refuted."""
    shutdowns: int = 0
    is_held: bool = False
    """Absent, and kept for other reasons: until those pass there is no need to bypass the cache."""
    blocked_at: float | None = None
    blocked_as: Stage | None = None
    """When the blocked deletion was told, and at which stage of the proof."""
    is_deleted: bool = False
    """Deleted by an earlier pass; the cache has not heard of it yet."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What one pass hands to the next, by uid. A process that starts has none, and so deletes nothing at once."""

    nodes: Mapping[str, Past] = field(default_factory=dict)
    is_first: bool = True
    proof: Proof = field(default_factory=Proof)
    """Of the absences while the brake holds."""
    calm: Mapping[str, Verdict] = field(default_factory=dict, compare=False, repr=False)
    """Of managed nodes that are ready and need nothing: the verdict holds as long as the node is the same object."""


class Action(StrEnum):
    """What is done with a node."""

    KEEP = "keep"
    DELETE = "delete"
    BLOCK = "block"
    """It would be deleted, or is about to be, but too many are absent at once."""
    TAINT = "taint"
    UNTAINT = "untaint"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One decision about one node; `taints` are those to add or to remove. `withheld` names what stopped a deletion."""

    node: core.Node
    action: Action
    reason: str
    taints: tuple[core.Taint, ...] = ()
    withheld: str = ""
    is_told: bool = False
    """Whether the event of a blocked deletion is due."""
    outlook: str = ""
    """Of a blocked deletion: when the brake opens by itself, or why it does not."""


@dataclass(frozen=True, slots=True)
class Question:
    """A node whose cloud must be asked; `is_fresh`: the answer may do harm, so no cache may give it."""

    node: core.Node
    is_fresh: bool


@dataclass(frozen=True, slots=True)
class Survey:
    """The first half of a pass: what needs no cloud, whom to ask about, and how many nodes are managed."""

    verdicts: tuple[Verdict, ...]
    questions: tuple[Question, ...]
    managed: int
    memory: Memory


@dataclass(frozen=True, slots=True)
class Judgement:
    """The second half: decisions, counts for the other clouds' brakes, and the memory of the next pass.

    `outlook`: while the brake holds, when it opens by itself, or why not.
    """

    verdicts: tuple[Verdict, ...]
    census: Census
    memory: Memory
    outlook: str = ""


def survey(nodes: Iterable[core.Node], memory: Memory, rules: Rules, now: Moment) -> Survey:
    """Sort the nodes of one cloud; those that are gone from the list, or are other nodes by now, are forgotten."""
    verdicts: list[Verdict] = []
    questions: list[Question] = []
    pasts: dict[str, Past] = {}
    calm: dict[str, Verdict] = {}
    others: list[core.Node] = []
    was_calm, known, unchanged = memory.calm, memory.nodes, 0
    for node in nodes:
        uid = node.metadata.uid
        before = was_calm.get(uid)
        if before is not None and before.node is node:
            # Thousands of these are the usual case. Its past has not changed either, nor do rules while a program runs.
            calm[uid], pasts[uid] = before, known[uid]
            verdicts.append(before)
            unchanged += 1
            continue
        others.append(node)
        past = _recall(node, memory, now)
        verdict = _without_asking(node, past, rules)
        if verdict is None:
            questions.append(Question(node, _needs_fresh(past, rules)))
        else:
            verdicts.append(verdict)
            if (past.is_suspect or past.shutdowns) and not past.is_deleted:
                past = Past(past.provider_id, past.first_seen)
            if verdict.action is Action.KEEP and node.is_ready and not past.is_deleted and count_managed((node,)):
                calm[uid] = verdict
        pasts[uid] = past
    managed = count_managed(others) + unchanged
    return Survey(tuple(verdicts), tuple(questions), managed, Memory(pasts, False, memory.proof, calm))


def count_managed(nodes: Iterable[core.Node]) -> int:
    """How many of these nodes (of our clouds) the brake counts: those whose lifecycle is ours and not over."""
    return sum(not node.metadata.is_deleting and not is_excluded(node.metadata.labels) for node in nodes)


def _needs_fresh(past: Past, rules: Rules) -> bool:
    """Whether the next answer counts only when no cache gave it: towards a deletion, or towards out-of-service."""
    is_for_deletion = not past.is_held if past.absences > 0 else rules.confirmations <= 1
    return is_for_deletion or (rules.is_out_of_service_tainted and past.shutdowns == 1)


def _recall(node: core.Node, memory: Memory, now: Moment) -> Past:
    past = memory.nodes.get(node.metadata.uid)
    if past is None:
        return Past(node.spec.provider_id, None if memory.is_first else now.monotonic)
    if past.provider_id != node.spec.provider_id:
        # What was said of another machine proves nothing about this one.
        return Past(node.spec.provider_id, past.first_seen)
    return past


def _without_asking(node: core.Node, past: Past, rules: Rules) -> Verdict | None:
    """What is certain without the cloud; None when it must be asked."""
    if node.metadata.is_deleting:
        return Verdict(node, Action.KEEP, "it is already being deleted")
    if node.is_ready:
        return _when_ready(node, rules)
    if is_excluded(node.metadata.labels):
        return Verdict(
            node, Action.KEEP, "its label excludes it from lifecycle management: it is never deleted or tainted"
        )
    if past.is_deleted:
        return Verdict(node, Action.KEEP, "this manager has deleted it; the watch has not confirmed that yet")
    return None


def _when_ready(node: core.Node, rules: Rules) -> Verdict:
    ours = [taints.SHUTDOWN] if taints.has(node.spec.taints, taints.SHUTDOWN) else []
    if rules.is_out_of_service_tainted and taints.OUT_OF_SERVICE in _bare(node.spec.taints):
        ours.append(taints.OUT_OF_SERVICE)
    if ours:
        shown = ", ".join(taint.key for taint in ours)
        return Verdict(node, Action.UNTAINT, f"it is ready again: {shown} goes", tuple(ours))
    return Verdict(node, Action.KEEP, "it is ready: its cloud is not queried")


def _bare(present: Iterable[core.Taint]) -> set[core.Taint]:
    return {core.Taint(key=taint.key, value=taint.value, effect=taint.effect) for taint in present}


def judge(
    surveyed: Survey,
    answers: Mapping[str, Answer],
    rules: Rules,
    now: Moment,
    elsewhere: Census | None = None,
    sighting: Sighting | None = None,
) -> Judgement:
    """Decide about every node that was asked about; `answers` by uid; a missing answer is not absence."""
    silence = Answer(None, now.monotonic, now.monotonic, error="the cloud was not queried")
    pasts = _after_answers(surveyed, answers, rules, silence)
    elsewhere = elsewhere if elsewhere is not None else Census()
    census, proof = _counted(surveyed, pasts), Proof()
    brake = outlook = ""
    if brakes.engaged(census, elsewhere, rules.max_percent):
        absences = _absences(surveyed, answers, pasts)
        sighting = sighting if sighting is not None else Sighting()
        proof = brakes.prove(surveyed.memory.proof, absences, sighting, rules.hold_s, now.monotonic)
        if proof.stage is Stage.PROVEN:
            census = replace(census, absent=0)
        if brake := brakes.engaged(census, elsewhere, rules.max_percent):
            outlook = brakes.outlook(proof, rules.hold_s, now.monotonic, now.wall)
    verdicts = []
    for question in surveyed.questions:
        uid = question.node.metadata.uid
        verdict = _verdict(question.node, answers.get(uid, silence), pasts[uid], rules, now, brake, proof.stage)
        # While a proof is possible every look counts towards it, and so must be without a cache.
        is_held = verdict.withheld == GRACE or (verdict.withheld == BRAKE and not proof.is_listed)
        pasts[uid] = replace(pasts[uid], is_held=is_held)
        if verdict.is_told:
            pasts[uid] = replace(pasts[uid], blocked_at=now.monotonic, blocked_as=proof.stage)
        verdicts.append(replace(verdict, outlook=outlook if verdict.action is Action.BLOCK else ""))
    return Judgement(tuple(verdicts), census, Memory(pasts, False, proof, surveyed.memory.calm), outlook)


def is_braked(
    surveyed: Survey, answers: Mapping[str, Answer], rules: Rules, now: Moment, elsewhere: Census | None = None
) -> bool:
    """Whether so many seem absent that it takes a proof: then the cloud's machines must be listed in this pass."""
    silence = Answer(None, now.monotonic, now.monotonic)
    census = _counted(surveyed, _after_answers(surveyed, answers, rules, silence))
    elsewhere = elsewhere if elsewhere is not None else Census()
    return rules.hold_s > 0 and brakes.engaged(census, elsewhere, rules.max_percent) != ""


def _after_answers(surveyed: Survey, answers: Mapping[str, Answer], rules: Rules, silence: Answer) -> dict[str, Past]:
    pasts = dict(surveyed.memory.nodes)
    for question in surveyed.questions:
        uid = question.node.metadata.uid
        pasts[uid] = _remember(pasts[uid], answers.get(uid, silence), rules)
    return pasts


def _counted(surveyed: Survey, pasts: Mapping[str, Past]) -> Census:
    return Census(surveyed.managed, sum(past.is_suspect for past in pasts.values()))


def _absences(surveyed: Survey, answers: Mapping[str, Answer], pasts: Mapping[str, Past]) -> list[Absence]:
    """Those that the proof is about; what an earlier pass deleted was proven then."""
    absences = []
    for question in surveyed.questions:
        uid = question.node.metadata.uid
        if (past := pasts[uid]).is_suspect:
            is_fresh = uid in answers and answers[uid].is_fresh
            absences.append(Absence(question.node.name, past.absent_since if past.absences else None, is_fresh))
    return absences


def _remember(past: Past, answer: Answer, rules: Rules) -> Past:
    """The memory after one answer. An error ends a row of absences, but does not refute the suspicion."""
    if answer.exists is None:
        return replace(past, absences=0, shutdowns=0)
    if answer.exists:
        return Past(past.provider_id, past.first_seen, shutdowns=_shutdowns(past, answer))
    past = replace(past, is_suspect=True, shutdowns=0)
    if past.absences == 0:
        return _first_absence(past, answer, rules)
    is_later = answer.asked_at - past.absent_at >= rules.period_s
    if not is_later or not answer.is_fresh:
        # Too soon, or out of a cache that may hold the very answer that was counted: it says nothing new.
        return past
    return replace(past, absences=past.absences + 1, absent_at=answer.answered_at)


def _shutdowns(past: Past, answer: Answer) -> int:
    """How often in a row the machine was off; what a cache keeps of a restart counts only the first time."""
    if answer.is_shutdown is not True:
        return 0
    return past.shutdowns + (1 if past.shutdowns == 0 or answer.is_fresh else 0)


def _first_absence(past: Past, answer: Answer, rules: Rules) -> Past:
    if rules.confirmations <= 1 and not answer.is_fresh:
        return past
    return replace(past, absences=1, absent_since=answer.answered_at, absent_at=answer.answered_at)


def _verdict(
    node: core.Node, answer: Answer, past: Past, rules: Rules, now: Moment, brake: str, stage: Stage
) -> Verdict:
    if answer.exists is None:
        return Verdict(node, Action.KEEP, f"whether its machine exists could not be determined: {answer.error}")
    if answer.exists:
        return _when_present(node, answer, past, rules)
    if grace := _grace(node, past, rules, now):
        return Verdict(node, Action.KEEP, f"its machine does not exist, but {grace}", withheld=GRACE)
    if brake:
        is_due = _is_block_due(past, now, stage)
        return Verdict(node, Action.BLOCK, f"its machine does not exist, but {brake}", withheld=BRAKE, is_told=is_due)
    if past.absences < rules.confirmations or not answer.is_fresh:
        return Verdict(node, Action.KEEP, _unconfirmed(past, rules), withheld=UNCONFIRMED)
    return Verdict(node, Action.DELETE, f"its machine does not exist, as {past.absences} answers in a row said")


def _is_block_due(past: Past, now: Moment, stage: Stage) -> bool:
    """Whether the event is to be written (again): at once, when the proof begins, and then once in a while."""
    if past.blocked_at is None:
        return True
    pause_s = REPEAT_EVENT_S
    if stage is not past.blocked_as:
        pause_s = 0.0 if past.blocked_as is Stage.BEGINS else REPEAT_CHANGE_S
    return now.monotonic - past.blocked_at >= pause_s


def _unconfirmed(past: Past, rules: Rules) -> str:
    if past.absences >= rules.confirmations:
        return "its machine does not exist; after so long the cloud is asked once more, without a cache"
    return (
        f"its machine does not exist; that has {past.absences} of {rules.confirmations} confirmations, which must be "
        f"{rules.period_s:g} s apart and, after the first, without a cache (--node-deletion-confirmations)"
    )


def _when_present(node: core.Node, answer: Answer, past: Past, rules: Rules) -> Verdict:
    if answer.is_shutdown is None:
        return Verdict(node, Action.KEEP, f"its machine exists; whether it is switched off is unknown: {answer.error}")
    if not answer.is_shutdown:
        return Verdict(node, Action.KEEP, "it is not ready, but its machine exists and is not switched off")
    expected = [taints.SHUTDOWN]
    if rules.is_out_of_service_tainted and past.shutdowns >= 2:
        expected.append(taints.OUT_OF_SERVICE)
    missing = tuple(taint for taint in expected if taint not in _bare(node.spec.taints))
    if not missing:
        return Verdict(node, Action.KEEP, "its machine is switched off, and it is already tainted")
    return Verdict(node, Action.TAINT, "its machine is switched off: the taint is added", missing)


def _grace(node: core.Node, past: Past, rules: Rules, now: Moment) -> str:
    """Why a node is still too young to be deleted; a cloud may take a while to show a new machine."""
    created = node.metadata.creation_timestamp
    age_s = (now.wall - created).total_seconds() if created is not None else 0.0
    if past.first_seen is not None:
        # The wall clock may jump ahead; what this process has seen is certain.
        age_s = min(age_s, now.monotonic - past.first_seen)
    if age_s < rules.grace_s:
        return f"it joined {max(0.0, age_s):.0f} s ago, and the grace period is {rules.grace_s:g} s"
    is_unknown = taints.is_uninitialized(node) and not node.spec.provider_id
    if is_unknown and (past.absences == 0 or now.monotonic - past.absent_since < rules.grace_s):
        return f"it was never initialised, and is given {rules.grace_s:g} s for its machine to appear"
    return ""


def after_deletions(memory: Memory, uids: Iterable[str]) -> Memory:
    """The memory when these nodes were deleted."""
    nodes = dict(memory.nodes)
    for uid in uids:
        nodes[uid] = replace(nodes[uid], is_deleted=True)
    return replace(memory, nodes=nodes)


def may_still_delete(judged: core.Node, current: core.Node) -> str:
    """Why a node, read again just before its deletion, must not be deleted after all; empty when it may."""
    if current.metadata.uid != judged.metadata.uid:
        return "another node has joined under its name"
    if current.spec.provider_id != judged.spec.provider_id:
        return "its provider ID has changed"
    if current.is_ready:
        return "it is ready again"
    if is_excluded(current.metadata.labels):
        return "its label now excludes it from lifecycle management"
    if current.metadata.is_deleting:
        return "it is being deleted by another client"
    return ""
