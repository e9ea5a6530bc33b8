"""The brake on deletions: how many it allows, and the one way in which it opens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.cloud.controllers.test_lifecycle_plan import ERROR, GONE, THERE, Passes, nodes
from tests.cloud.scripted import node

from bedplate.cloud.controllers import lifecycle_brake, lifecycle_plan
from bedplate.cloud.controllers.lifecycle_brake import Absence, Census, Proof, Sighting, Stage
from bedplate.cloud.controllers.lifecycle_plan import Action, Rules

GOOD = Sighting(machines=7, error="")
GONE_TWO = {"g0": GONE, "g1": GONE}
MIXED = [*nodes(7), node("g0", provider_id="fake://g0"), node("g1", provider_id="fake://g1")]
"""Nine nodes, two of which were terminated together: more than the brake allows."""
BAD_LISTS = [
    Sighting(),
    Sighting(machines=7, error="500"),
    Sighting(machines=0, error=""),
    Sighting(machines=7, nodes=frozenset({"g1"}), error=""),
]


@pytest.mark.parametrize(
    ("managed", "percent", "expected"),
    [(0, 20, 1), (1, 20, 1), (9, 20, 1), (10, 20, 2), (14, 20, 2), (15, 20, 3), (100, 1, 1), (7, 100, 7), (10, 0, 1)],
)
def test_the_share_is_rounded_down_and_one_is_always_allowed(managed: int, percent: int, expected: int) -> None:
    assert lifecycle_brake.allowed(managed, percent) == expected


def held(passes: Passes, seconds: float) -> list[set[Action]]:
    """Pass after pass for that long; what was decided about the two."""
    found = []
    for _ in range(round(seconds / passes.rules.period_s)):
        actions = passes.step(MIXED, GONE_TWO)
        found.append({actions["g0"], actions["g1"]})
    return found


def test_two_of_nine_are_deleted_after_the_hold_and_not_before() -> None:
    passes = Passes(sighting=GOOD)
    assert {Action.BLOCK} == set.union(*held(passes, 905))
    assert held(passes, 5) == [{Action.DELETE}]
    assert passes.judged is not None
    assert passes.judged.census == Census(9, 0), "what is proven gone does not hold up other clouds"


def test_every_look_after_the_first_is_without_a_cache_while_a_proof_runs() -> None:
    passes = Passes(sighting=GOOD)
    held(passes, 10)
    assert passes.asked == {"g0": True, "g1": True}
    passes.sighting = Sighting(error="no list")
    held(passes, 10)
    assert passes.asked == {"g0": False, "g1": False}, "nothing can be proven: the cache will do"


@pytest.mark.parametrize("sighting", BAD_LISTS)
def test_a_list_that_proves_nothing_never_opens_it(sighting: Sighting) -> None:
    passes = Passes(sighting=sighting)
    assert {Action.BLOCK} == set.union(*held(passes, 4000))


@pytest.mark.parametrize("sighting", BAD_LISTS)
def test_one_bad_list_starts_the_proof_again(sighting: Sighting) -> None:
    passes = Passes(sighting=GOOD)
    held(passes, 880)
    passes.sighting = sighting
    held(passes, 5)
    passes.sighting = GOOD
    assert {Action.BLOCK} == set.union(*held(passes, 900))
    assert Action.DELETE in set.union(*held(passes, 10))


@pytest.mark.parametrize("between", [ERROR, None])
def test_one_look_without_a_denial_starts_the_proof_again(between: str | None) -> None:
    passes = Passes(sighting=GOOD)
    held(passes, 880)
    passes.step(MIXED, GONE_TWO if between is None else {**GONE_TWO, "g1": between}, after_s=5 if between else 400)
    assert {Action.BLOCK} == set.union(*held(passes, 895))
    assert Action.DELETE in set.union(*held(passes, 15))


def test_a_third_absence_starts_the_proof_again() -> None:
    passes = Passes(sighting=GOOD)
    held(passes, 880)
    more = [*MIXED[:6], node("r6", provider_id="fake://r6"), *MIXED[7:]]
    for _ in range(180):
        assert set(passes.step(more, {**GONE_TWO, "r6": GONE}).values()) == {Action.KEEP, Action.BLOCK}
    for _ in range(3):
        last = passes.step(more, {**GONE_TWO, "r6": GONE})
    assert [last[name] for name in ("g0", "g1", "r6")] == [Action.DELETE] * 3


def test_a_machine_that_is_there_again_lets_the_other_go_as_ever() -> None:
    passes = Passes(sighting=GOOD)
    held(passes, 100)
    assert passes.step(MIXED, {"g0": GONE, "g1": THERE})["g0"] is Action.DELETE
    assert passes.memory.proof == Proof()


def test_the_hold_is_a_flag_and_zero_never_opens() -> None:
    assert Action.DELETE in set.union(*held(Passes(Rules(hold_s=60), sighting=GOOD), 70))
    never = Passes(Rules(hold_s=0), sighting=GOOD)
    assert {Action.BLOCK} == set.union(*held(never, 4000))
    assert never.asked == {"g0": False, "g1": False}
    assert "--mass-deletion-hold=0" in never.verdicts["g0"].outlook


def test_absences_of_another_cloud_that_are_not_proven_keep_it_closed() -> None:
    passes = Passes(sighting=GOOD, elsewhere=Census(managed=3, absent=3))
    assert {Action.BLOCK} == set.union(*held(passes, 1000))
    assert "other clouds" in passes.verdicts["g0"].outlook
    passes.elsewhere = Census(managed=3, absent=0)
    assert held(passes, 5) == [{Action.DELETE}]


def test_one_confirmation_opens_it_by_the_same_proof() -> None:
    passes = Passes(Rules(confirmations=1), sighting=GOOD)
    assert {Action.BLOCK} == set.union(*held(passes, 900))
    assert Action.DELETE in set.union(*held(passes, 10))


def test_the_event_counts_down_and_is_told_when_the_proof_begins_and_breaks() -> None:
    passes = Passes(sighting=GOOD)
    told: list[str] = []

    def step(seconds: float) -> None:
        held(passes, seconds)
        told.extend(one.outlook for one in passes.verdicts.values() if one.is_told and one.node.name == "g0")

    step(5)
    assert told == ["it opens by itself after 15m of proof (--mass-deletion-hold) from now on"]
    step(5)
    begun = passes.wall
    opens = begun + timedelta(seconds=900)
    assert lifecycle_brake.opening_told(told[1]) == opens
    assert ", in 15m (--mass" in told[1]
    for _ in range(60):
        step(5)
    assert len(told) == 3 and ", in 10m (--mass" in told[2]
    assert lifecycle_brake.opening_told(told[2]) == opens
    passes.sighting = Sighting(machines=0, error="")
    for _ in range(12):
        step(5)
    assert len(told) == 4 and "no machine at all" in told[3]
    assert lifecycle_brake.opening_told(told[3]) is None


@pytest.mark.parametrize("gap_s", [5.0, 300.0])
def test_looks_too_far_apart_prove_nothing(gap_s: float) -> None:
    absences = [Absence("g0", 0.0, is_fresh=True)]
    proof, now = Proof(), 0.0
    while now < 900:
        proof = lifecycle_brake.prove(proof, absences, GOOD, 900.0, now)
        assert proof.stage is Stage.COUNTING
        now += gap_s
    assert lifecycle_brake.prove(proof, absences, GOOD, 900.0, now).stage is Stage.PROVEN
    assert lifecycle_brake.prove(proof, absences, GOOD, 900.0, now + 301).stage is Stage.COUNTING


def test_a_list_is_read_only_where_the_brake_holds() -> None:
    passes = Passes()
    now = lifecycle_plan.Moment(1000.0, datetime(2026, 1, 1, tzinfo=UTC))
    surveyed = lifecycle_plan.survey(MIXED, passes.memory, passes.rules, now)
    gone = {f"uid-{name}": lifecycle_plan.Answer(False, 0, 0) for name in GONE_TWO}
    assert lifecycle_plan.is_braked(surveyed, gone, Rules(), now)
    assert not lifecycle_plan.is_braked(surveyed, {"uid-g0": gone["uid-g0"]}, Rules(), now)
    assert not lifecycle_plan.is_braked(surveyed, gone, Rules(hold_s=0), now)
    assert not lifecycle_plan.is_braked(surveyed, gone, Rules(max_percent=100), now)
