"""How a rehearsal went: each stage with its time, writes, and what counts as success."""

from __future__ import annotations

import dataclasses

from bedplate.setup.engine.journal import StageRecord
from bedplate.setup.rehearsal.outcome import Outcome, Writes

_BEGAN, _ENDED = "2026-01-01T00:00:00.000+00:00", "2026-01-01T00:01:02.500+00:00"
_DONE = (
    StageRecord("Check Cluster", "kubernetes", "done", "", _BEGAN, _BEGAN),
    StageRecord("Upgrade node001", "kubernetes", "done", "", _BEGAN, _ENDED),
)
_GOOD = Outcome(
    _DONE,
    Writes(120, ("12:00:01 write-00007: refused", "12:00:02 write-00007: again"), (), 1.25),
    2,
    {"node001": "cp1"},
)


def test_a_rehearsal_in_which_all_is_done_and_nothing_lost_is_good_and_tells_times_and_originals() -> None:
    assert _GOOD.is_good
    assert list(_GOOD.lines()) == [
        "ok         0.0 s  Check Cluster",
        "ok        62.5 s  Upgrade node001 (for cp1)",
        "Writes through the proxy: 120, 0 lost; 2 retries of 1 of them with 2 control plane nodes; "
        "the slowest took 1.2 s",
        "  retried: 12:00:01 write-00007: refused",
    ]


def test_a_stage_that_failed_is_told_with_its_error_and_those_after_it_as_not_run() -> None:
    failed = StageRecord("Upgrade node002", "kubernetes", "failed", "no such package", _BEGAN, _ENDED)
    after = StageRecord("Print Summary", "kubernetes")
    outcome = dataclasses.replace(_GOOD, stages=(*_DONE, failed, after))
    assert not outcome.is_good
    told = list(outcome.lines())
    assert told[2] == "failed    62.5 s  Upgrade node002: no such package"
    assert told[3].split() == ["not", "run", "Print", "Summary"]


def test_lost_writes_and_writes_that_nobody_could_look_for_are_a_failure() -> None:
    lost = dataclasses.replace(_GOOD, writes=Writes(3, (), ("write-00001",)))
    assert not lost.is_good and "  lost: write-00001" in list(lost.lines())
    unknown = dataclasses.replace(_GOOD, writes=Writes(3, (), None))
    assert not unknown.is_good and "nobody could look" in "\n".join(unknown.lines())
    assert not dataclasses.replace(_GOOD, writes=Writes()).is_good, "a client that wrote nothing shows nothing"


def test_a_run_without_stages_is_a_failure() -> None:
    assert not dataclasses.replace(_GOOD, stages=()).is_good


def test_of_many_retries_the_first_are_shown() -> None:
    many = dataclasses.replace(_GOOD, writes=Writes(3, tuple(f"12:00:01 write-{number}: no" for number in range(25))))
    assert many.is_good, "with one control plane node they are expected"
    assert list(many.lines())[-1] == "  and 15 more writes that were retried"
