"""Each rule that keeps a node alive, and the one way in which a node is deleted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cloud.scripted import node

from bedplate.api.core import Node, Taint
from bedplate.api.names import TAINT_UNINITIALIZED
from bedplate.cloud import taints
from bedplate.cloud.controllers import lifecycle_plan
from bedplate.cloud.controllers.lifecycle_brake import Census, Sighting
from bedplate.cloud.controllers.lifecycle_plan import Action, Answer, Judgement, Memory, Moment, Rules
from bedplate.cloud.labels import LABEL_EXCLUDE_FROM_LIFECYCLE

START = datetime(2026, 1, 1, tzinfo=UTC)
GONE, THERE, OFF, ERROR = "gone", "there", "off", "error"


@dataclass
class Passes:
    """Runs pass after pass, a period apart, with answers by node name."""

    rules: Rules = field(default_factory=Rules)
    memory: Memory = field(default_factory=Memory)
    monotonic: float = 1000.0
    wall: datetime = START
    elsewhere: Census = field(default_factory=Census)
    asked: dict[str, bool] = field(default_factory=dict)
    judged: Judgement | None = None
    sighting: Sighting = field(default_factory=Sighting)

    def step(self, nodes: list[Node], answers: dict[str, str], *, after_s: float | None = None) -> dict[str, Action]:
        span = self.rules.period_s if after_s is None else after_s
        self.monotonic += span
        self.wall += timedelta(seconds=span)
        now = Moment(self.monotonic, self.wall)
        surveyed = lifecycle_plan.survey(nodes, self.memory, self.rules, now)
        self.asked = {one.node.name: one.is_fresh for one in surveyed.questions}
        given = {
            one.node.metadata.uid: answer(answers[one.node.name], self.monotonic, one.is_fresh)
            for one in surveyed.questions
            if one.node.name in answers
        }
        self.judged = lifecycle_plan.judge(surveyed, given, self.rules, now, self.elsewhere, self.sighting)
        self.memory = self.judged.memory
        verdicts = (*surveyed.verdicts, *self.judged.verdicts)
        self.verdicts = {one.node.name: one for one in verdicts}
        assert all(one.reason for one in verdicts)
        assert len(verdicts) == len(nodes)
        return {one.node.name: one.action for one in verdicts}


def answer(kind: str, at: float, is_fresh: bool) -> Answer:
    if kind == ERROR:
        return Answer(None, at, at, is_fresh, error="down")
    return Answer(kind != GONE, at, at, is_fresh, is_shutdown=kind == OFF)


def nodes(count: int, *, ready: str = "True") -> list[Node]:
    return [node(f"r{number}", provider_id=f"fake://r{number}", ready=ready) for number in range(count)]


LOST = node("lost", provider_id="fake://lost")
CLUSTER = [LOST, *nodes(9)]


def test_two_absences_a_period_apart_delete_and_the_second_is_asked_fresh() -> None:
    passes = Passes()
    assert passes.step(CLUSTER, {"lost": GONE})["lost"] is Action.KEEP
    assert passes.asked == {"lost": False}
    assert passes.step(CLUSTER, {"lost": GONE})["lost"] is Action.DELETE
    assert passes.asked == {"lost": True}


@pytest.mark.parametrize("ready", ["False", "Unknown", None])
def test_whatever_is_not_ready_is_asked_about(ready: str | None) -> None:
    passes = Passes()
    passes.step([node("lost", ready=ready)], {"lost": THERE})
    assert "lost" in passes.asked


def test_answers_closer_than_a_period_count_once() -> None:
    passes = Passes()
    passes.step(CLUSTER, {"lost": GONE})
    assert passes.step(CLUSTER, {"lost": GONE}, after_s=4.9)["lost"] is Action.KEEP
    assert passes.step(CLUSTER, {"lost": GONE}, after_s=0.2)["lost"] is Action.DELETE


def test_a_cached_second_answer_does_not_count() -> None:
    surveyed = lifecycle_plan.survey(CLUSTER, Memory(), Rules(), Moment(0, START))
    first = lifecycle_plan.judge(surveyed, {"uid-lost": answer(GONE, 0, False)}, Rules(), Moment(0, START))
    surveyed = lifecycle_plan.survey(CLUSTER, first.memory, Rules(), Moment(60, START))
    second = lifecycle_plan.judge(surveyed, {"uid-lost": answer(GONE, 60, False)}, Rules(), Moment(60, START))
    assert [one.action for one in second.verdicts] == [Action.KEEP]


def test_of_three_answers_the_second_may_not_be_cached_either() -> None:
    rules, memory, found = Rules(confirmations=3), Memory(), []
    for second, is_fresh in ((0, False), (5, False), (10, True), (15, True)):
        surveyed = lifecycle_plan.survey(CLUSTER, memory, rules, Moment(second, START))
        answers = {"uid-lost": answer(GONE, second, is_fresh)}
        judged = lifecycle_plan.judge(surveyed, answers, rules, Moment(second, START))
        memory = judged.memory
        found.append(judged.verdicts[0].action)
    assert found == [Action.KEEP, Action.KEEP, Action.KEEP, Action.DELETE]


@pytest.mark.parametrize("between", [THERE, OFF, ERROR])
def test_any_other_answer_in_between_starts_again(between: str) -> None:
    passes = Passes()
    passes.step(CLUSTER, {"lost": GONE})
    passes.step(CLUSTER, {"lost": between})
    assert passes.step(CLUSTER, {"lost": GONE})["lost"] is Action.KEEP
    assert passes.step(CLUSTER, {"lost": GONE})["lost"] is Action.DELETE


def test_no_answer_at_all_starts_again() -> None:
    passes = Passes()
    passes.step(CLUSTER, {"lost": GONE})
    passes.step(CLUSTER, {})
    assert passes.step(CLUSTER, {"lost": GONE})["lost"] is Action.KEEP


def test_being_ready_in_between_starts_again() -> None:
    passes = Passes()
    passes.step(CLUSTER, {"lost": GONE})
    passes.step([node("lost", provider_id="fake://lost", ready="True"), *CLUSTER[1:]], {})
    assert passes.asked == {}
    assert passes.step(CLUSTER, {"lost": GONE})["lost"] is Action.KEEP


def test_another_node_of_the_same_name_starts_again_and_is_young() -> None:
    passes = Passes()
    passes.step(CLUSTER, {"lost": GONE})
    again = node("lost", provider_id="fake://lost", uid="reborn")
    for _ in range(23):
        assert passes.step([again, *CLUSTER[1:]], {"lost": GONE})["lost"] is Action.KEEP
    passes.step([again, *CLUSTER[1:]], {"lost": GONE}, after_s=10)
    assert passes.step([again, *CLUSTER[1:]], {"lost": GONE})["lost"] is Action.DELETE


def test_another_provider_id_starts_again() -> None:
    passes = Passes()
    unnamed = node("lost")
    passes.step([unnamed, *CLUSTER[1:]], {"lost": GONE})
    assert passes.step(CLUSTER, {"lost": GONE})["lost"] is Action.KEEP
    assert passes.step(CLUSTER, {"lost": GONE})["lost"] is Action.DELETE


def test_a_lost_memory_starts_again() -> None:
    passes = Passes()
    passes.step(CLUSTER, {"lost": GONE})
    passes.memory = Memory()
    assert passes.step(CLUSTER, {"lost": GONE})["lost"] is Action.KEEP


def test_one_confirmation_is_asked_fresh_at_once() -> None:
    passes = Passes(Rules(confirmations=1))
    assert passes.step(CLUSTER, {"lost": GONE})["lost"] is Action.DELETE
    assert passes.asked == {"lost": True}


def test_more_confirmations_are_waited_for() -> None:
    passes = Passes(Rules(confirmations=4))
    found = [passes.step(CLUSTER, {"lost": GONE})["lost"] for _ in range(4)]
    assert found == [Action.KEEP, Action.KEEP, Action.KEEP, Action.DELETE]


def test_an_excluded_node_is_neither_asked_about_nor_tainted() -> None:
    excluded = node("lost", provider_id="fake://lost", labels={LABEL_EXCLUDE_FROM_LIFECYCLE: ""})
    passes = Passes()
    for _ in range(3):
        assert passes.step([excluded, *CLUSTER[1:]], {"lost": GONE})["lost"] is Action.KEEP
    assert passes.asked == {}


def test_a_node_being_deleted_is_left_alone() -> None:
    passes = Passes()
    assert passes.step([node("lost", deleted=START)], {})["lost"] is Action.KEEP
    assert passes.asked == {}


def test_a_young_node_is_not_deleted() -> None:
    young = node("lost", provider_id="fake://lost", created=START)
    passes = Passes(Rules(grace_s=20))
    found = [passes.step([young, *CLUSTER[1:]], {"lost": GONE})["lost"] for _ in range(3)]
    assert set(found) == {Action.KEEP}
    assert passes.verdicts["lost"].withheld == "grace"
    passes.step([young, *CLUSTER[1:]], {"lost": GONE})
    assert passes.step([young, *CLUSTER[1:]], {"lost": GONE})["lost"] is Action.DELETE


def test_a_wall_clock_that_jumps_ahead_makes_nobody_old() -> None:
    passes = Passes(Rules(grace_s=60))
    passes.step(CLUSTER[1:], {})
    young = node("lost", provider_id="fake://lost", created=passes.wall)
    passes.wall += timedelta(days=400)
    for _ in range(5):
        assert passes.step([young, *CLUSTER[1:]], {"lost": GONE})["lost"] is Action.KEEP


def test_a_wall_clock_that_jumps_back_deletes_nobody_early() -> None:
    passes = Passes(Rules(grace_s=60))
    passes.wall -= timedelta(days=4000)
    for _ in range(30):
        assert passes.step(CLUSTER, {"lost": GONE})["lost"] is Action.KEEP


def test_a_node_never_initialised_must_be_absent_throughout_the_grace_period() -> None:
    fresh = node("lost", taints=(Taint(key=TAINT_UNINITIALIZED, effect="NoSchedule"),))
    passes = Passes(Rules(grace_s=20))
    found = [passes.step([fresh, *CLUSTER[1:]], {"lost": GONE})["lost"] for _ in range(6)]
    assert found[:4] == [Action.KEEP] * 4
    assert found[-1] is Action.DELETE
    passes = Passes(Rules(grace_s=20))
    for _ in range(6):
        passes.step([fresh, *CLUSTER[1:]], {"lost": GONE})
        assert passes.step([fresh, *CLUSTER[1:]], {"lost": ERROR})["lost"] is Action.KEEP


def test_the_brake_stops_all_deletions_and_tells_once_in_a_while() -> None:
    passes = Passes()
    mixed = [*nodes(7), *(node(f"g{number}", provider_id=f"fake://g{number}") for number in range(3))]
    gone = {f"g{number}": GONE for number in range(3)}
    told = 0
    for _ in range(10):
        found = passes.step(mixed, gone)
        assert {found[name] for name in gone} == {Action.BLOCK}
        told += sum(one.is_told for one in passes.verdicts.values())
    assert told == 3
    passes.step(mixed, gone, after_s=301)
    assert sum(one.is_told for one in passes.verdicts.values()) == 3


def test_the_brake_lets_go_when_fewer_are_absent_after_one_fresh_look() -> None:
    passes = Passes()
    mixed = [*nodes(7), *(node(f"g{number}", provider_id=f"fake://g{number}") for number in range(3))]
    for _ in range(3):
        passes.step(mixed, {f"g{number}": GONE for number in range(3)})
    assert passes.asked == {"g0": False, "g1": False, "g2": False}
    answers = {"g0": THERE, "g1": GONE, "g2": GONE}
    assert passes.step(mixed, answers)["g1"] is Action.KEEP
    found = passes.step(mixed, answers)
    assert passes.asked == {"g0": False, "g1": True, "g2": True}
    assert (found["g1"], found["g2"]) == (Action.DELETE, Action.DELETE)


def test_a_hundred_percent_lifts_the_brake() -> None:
    passes = Passes(Rules(max_percent=100))
    everything = [node(f"g{number}", provider_id=f"fake://g{number}") for number in range(5)]
    gone = {one.name: GONE for one in everything}
    passes.step(everything, gone)
    assert set(passes.step(everything, gone).values()) == {Action.DELETE}


def test_the_absent_of_other_clouds_count_too() -> None:
    passes = Passes(elsewhere=Census(managed=3, absent=1))
    one = [LOST]
    passes.step(one, {"lost": GONE})
    assert passes.step(one, {"lost": GONE})["lost"] is Action.BLOCK


def test_a_large_cloud_elsewhere_does_not_lift_a_small_ones_brake() -> None:
    passes = Passes(elsewhere=Census(managed=1000, absent=0))
    both = [LOST, node("lost2", provider_id="fake://lost2")]
    gone = {"lost": GONE, "lost2": GONE}
    passes.step(both, gone)
    assert set(passes.step(both, gone).values()) == {Action.BLOCK}


def test_an_error_after_absence_still_counts_for_the_brake() -> None:
    passes = Passes()
    mixed = [*nodes(8), LOST, node("lost2", provider_id="fake://lost2"), node("lost3", provider_id="fake://lost3")]
    gone = {"lost": GONE, "lost2": GONE, "lost3": GONE}
    passes.step(mixed, gone)
    passes.step(mixed, {**gone, "lost2": ERROR, "lost3": ERROR})
    assert passes.step(mixed, {**gone, "lost2": ERROR, "lost3": ERROR})["lost"] is Action.BLOCK


def test_ready_and_excluded_nodes_count_as_they_should() -> None:
    excluded = [node(f"x{number}", ready="True", labels={LABEL_EXCLUDE_FROM_LIFECYCLE: "1"}) for number in range(50)]
    passes = Passes()
    passes.step([*CLUSTER, *excluded], {"lost": GONE})
    assert passes.judged is not None
    assert passes.judged.census == Census(10, 1)


def test_a_deleted_node_that_the_cache_still_has_is_not_deleted_twice() -> None:
    passes = Passes()
    passes.step(CLUSTER, {"lost": GONE})
    passes.step(CLUSTER, {"lost": GONE})
    passes.memory = lifecycle_plan.after_deletions(passes.memory, ["uid-lost"])
    assert passes.step(CLUSTER, {"lost": GONE})["lost"] is Action.KEEP
    assert passes.asked == {}
    passes.step(CLUSTER[1:], {})
    assert "uid-lost" not in passes.memory.nodes


def test_a_stopped_machine_is_tainted_once_and_untainted_when_ready() -> None:
    passes = Passes()
    assert passes.step(CLUSTER, {"lost": OFF})["lost"] is Action.TAINT
    assert passes.verdicts["lost"].taints == (taints.SHUTDOWN,)
    tainted = node("lost", provider_id="fake://lost", taints=(taints.SHUTDOWN,))
    assert passes.step([tainted], {"lost": OFF})["lost"] is Action.KEEP
    assert passes.step([tainted], {"lost": THERE})["lost"] is Action.KEEP
    ready = node("lost", provider_id="fake://lost", taints=(taints.SHUTDOWN,), ready="True")
    assert passes.step([ready], {})["lost"] is Action.UNTAINT
    assert passes.verdicts["lost"].taints == (taints.SHUTDOWN,)


def test_out_of_service_needs_the_flag_and_two_passes() -> None:
    passes = Passes(Rules(is_out_of_service_tainted=True))
    tainted = node("lost", provider_id="fake://lost", taints=(taints.SHUTDOWN,))
    passes.step(CLUSTER, {"lost": OFF})
    assert passes.verdicts["lost"].taints == (taints.SHUTDOWN,)
    passes.step([tainted], {"lost": OFF})
    assert passes.verdicts["lost"].taints == (taints.OUT_OF_SERVICE,)
    both = (taints.SHUTDOWN, taints.OUT_OF_SERVICE)
    assert passes.step([node("lost", provider_id="fake://lost", taints=both)], {"lost": OFF})["lost"] is Action.KEEP
    passes.step([node("lost", provider_id="fake://lost", taints=both, ready="True")], {})
    assert passes.verdicts["lost"].taints == both
    passes = Passes()
    passes.step([node("lost", provider_id="fake://lost", taints=both, ready="True")], {})
    assert passes.verdicts["lost"].taints == (taints.SHUTDOWN,)


def test_out_of_service_needs_a_second_look_without_a_cache() -> None:
    passes = Passes(Rules(is_out_of_service_tainted=True))
    passes.step([LOST], {"lost": OFF})
    assert passes.asked == {"lost": False}
    passes.step([LOST], {"lost": OFF})
    assert passes.asked == {"lost": True}
    passes.step([LOST], {"lost": OFF})
    assert passes.asked == {"lost": False}
    rules = Rules(is_out_of_service_tainted=True)
    memory = Memory()
    for second in range(0, 50, 5):
        surveyed = lifecycle_plan.survey([LOST], memory, rules, Moment(second, START))
        judged = lifecycle_plan.judge(surveyed, {"uid-lost": answer(OFF, second, False)}, rules, Moment(second, START))
        assert judged.verdicts[0].taints == (taints.SHUTDOWN,), "a cache may say the same for as long as it lasts"
        memory = judged.memory


def test_an_error_between_two_shutdowns_starts_their_count_again() -> None:
    passes = Passes(Rules(is_out_of_service_tainted=True))
    for kind in (OFF, ERROR, OFF):
        passes.step([LOST], {"lost": kind})
    assert passes.verdicts["lost"].taints == (taints.SHUTDOWN,)


@pytest.mark.parametrize(
    ("found", "is_allowed"),
    [
        (LOST, True),
        (node("lost", provider_id="fake://lost", version="99", ready="Unknown"), True),
        (node("lost", provider_id="fake://lost", uid="other"), False),
        (node("lost", provider_id="fake://moved"), False),
        (node("lost", provider_id="fake://lost", ready="True"), False),
        (node("lost", provider_id="fake://lost", labels={LABEL_EXCLUDE_FROM_LIFECYCLE: "x"}), False),
        (node("lost", provider_id="fake://lost", deleted=START), False),
    ],
)
def test_a_last_look_may_spare_a_node(found: Node, is_allowed: bool) -> None:
    assert (lifecycle_plan.may_still_delete(LOST, found) == "") is is_allowed


STATES = {
    "ready": node("a", provider_id="fake://a", ready="True"),
    "again": node("a", provider_id="fake://a", ready="True", version="2"),
    "not ready": node("a", provider_id="fake://a", ready="False"),
    "other machine": node("a", provider_id="fake://b", ready="True"),
    "other node": node("a", provider_id="fake://a", uid="new", ready="True"),
    "tainted": node("a", provider_id="fake://a", ready="True", taints=(taints.SHUTDOWN,)),
    "excluded": node("a", provider_id="fake://a", ready="True", labels={LABEL_EXCLUDE_FROM_LIFECYCLE: "true"}),
    "leaving": node("a", provider_id="fake://a", ready="True", deleted=START),
}


@given(
    st.lists(st.tuples(st.sampled_from(sorted(STATES)), st.sampled_from([GONE, THERE, OFF, ERROR])), max_size=12),
    st.booleans(),
)
def test_what_is_remembered_of_calm_nodes_changes_no_decision(steps: list[tuple[str, str]], has_taint: bool) -> None:
    rules = Rules(is_out_of_service_tainted=has_taint, max_percent=100)
    remembering, forgetful = Passes(rules), Passes(rules)
    for state, said in steps:
        present = [STATES[state], *CALM]
        forgetful.memory = replace(forgetful.memory, calm={})
        actions = remembering.step(present, {"a": said})
        assert actions == forgetful.step(present, {"a": said})
        assert (remembering.memory, remembering.asked) == (forgetful.memory, forgetful.asked)
        assert remembering.judged is not None and forgetful.judged is not None
        assert remembering.judged.census == forgetful.judged.census


CALM = nodes(3)


def test_a_node_that_stays_the_same_object_is_not_judged_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = Passes()
    passes.step(CLUSTER, {"lost": THERE})
    judged: list[str] = []
    without_asking = lifecycle_plan._without_asking
    monkeypatch.setattr(
        lifecycle_plan,
        "_without_asking",
        lambda node, past, rules: (judged.append(node.name), without_asking(node, past, rules))[1],
    )
    changed = node("r0", provider_id="fake://r0", ready="True", version="2")
    assert len(passes.step([LOST, changed, *CLUSTER[2:]], {"lost": THERE})) == 10
    assert judged == ["lost", "r0"]
