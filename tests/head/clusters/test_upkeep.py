"""What the head does for clusters unasked: when a snapshot is due, and which node renews its certificates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bedplate.api.headapi import ErrandState
from bedplate.core.clock import rfc3339
from bedplate.head.clusters.snapshots import Snapshot
from bedplate.head.clusters.upkeep import Plan, renewals_due, snapshots_due

NOW = datetime(2026, 1, 10, tzinfo=UTC)
DAILY = Plan(86400.0, 7)


def ago(hours: float) -> str:
    return rfc3339(NOW - timedelta(hours=hours))


def asked(care: str, state: str, hours: float, node: str = "node001") -> ErrandState:
    return ErrandState(
        id="1",
        node=node,
        kind="care",
        state=state,
        asked=ago(hours),
        until=ago(hours),
        by="x",
        care=care,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("plan", "since", "taken", "errands", "is_due"),
    [
        (DAILY, ago(23), [], [], False),
        (DAILY, ago(25), [], [], True),
        (DAILY, "", [ago(23)], [], False),
        (DAILY, "", [ago(50), ago(25)], [], True),
        (DAILY, "", [ago(25)], [asked("snapshot", "waiting", 0.1)], False),
        (DAILY, "", [ago(25)], [asked("snapshot", "accepted", 20)], False),
        (DAILY, "", [ago(25)], [asked("snapshot", "failed", 1)], False),
        (DAILY, "", [ago(25)], [asked("snapshot", "failed", 3)], True),
        (DAILY, "", [ago(25)], [asked("renew", "waiting", 0.1)], True),
        (Plan(0.0, 7), ago(100), [], [], False),
    ],
)
def test_item_181_a_snapshot_is_due_after_its_interval_and_a_failed_one_is_tried_again(
    plan: Plan, since: str, taken: list[str], errands: list[ErrandState], is_due: bool
) -> None:
    assert snapshots_due(plan, since, [Snapshot(taken=each) for each in taken], errands, NOW) is is_due


def test_item_180_one_node_at_a_time_renews_and_none_twice_a_day() -> None:
    planes = [("node001", True), ("node002", True), ("node003", False)]
    assert renewals_due(planes, [], NOW) == "node001"
    assert renewals_due(planes, [asked("renew", "accepted", 0.1)], NOW) == ""
    assert renewals_due(planes, [asked("renew", "done", 1)], NOW) == "node002"
    both = [asked("renew", "done", 1), asked("renew", "failed", 2, "node002")]
    assert renewals_due(planes, both, NOW) == ""
    assert renewals_due(planes, [asked("renew", "failed", 25)], NOW) == "node001"
