"""How much one node may report, and what becomes of the rest."""

from __future__ import annotations

import pytest

from bedplate.core.clock import ManualClock
from bedplate.head.intake import Intake, Rate, TooManyReports
from bedplate.head.notices import News


def made(clock: ManualClock, notices: int = 30) -> Intake:
    return Intake(clock, Rate(3, 0.5), Rate(notices, 1.0))


async def test_a_node_that_reports_too_often_is_told_when_to_come_back() -> None:
    clock = ManualClock()
    intake = made(clock)
    for _ in range(3):
        intake.admit("node001")
    with pytest.raises(TooManyReports, match="node001 reports too often") as refused:
        intake.admit("node001")
    assert refused.value.retry_after_s == 2.0
    intake.admit("node002")
    await clock.advance(2.0)
    intake.admit("node001")
    with pytest.raises(TooManyReports):
        intake.admit("node001")


def test_a_report_makes_a_few_notices_warnings_first_and_counts_the_rest() -> None:
    intake = made(ManualClock())
    news = [News("n", f"action {i}") for i in range(500)] + [News("n", "failed", "warning")]
    told = intake.told("n", news)
    assert len(told) == 20
    assert told[0].text == "action 0" and told[-2].text == "failed"
    assert told[-1] == News("n", "482 more events of this node were left out", "warning")
    assert intake.told("m", [News("m", "x")]) == [News("m", "x")]


async def test_what_a_node_may_tell_runs_out_and_comes_back() -> None:
    clock = ManualClock()
    intake = made(clock, notices=5)
    news = [News("n", str(i)) for i in range(10)]
    assert [item.text for item in intake.told("n", news)] == [
        "0",
        "1",
        "2",
        "3",
        "6 more events of this node were left out",
    ]
    assert intake.told("n", news) == []
    await clock.advance(3.0)
    told = [item.text for item in intake.told("n", [News("n", "again")])]
    assert told == ["again", "10 more events of this node were left out"]
    assert [item.text for item in intake.told("n", [News("n", "then")])] == ["then"]
