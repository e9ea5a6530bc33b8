"""A revision for some nodes first: what the next step of a roll-out is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from bedplate.head.rollout import Rollout, Seen, Standing, batch_size, begin, resumed, standing, step

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODES = [f"n{number}" for number in range(1, 8)]
DONE, BUSY = Seen(True), Seen(False)


def looking(seen: Mapping[str, Seen], other: Seen = BUSY) -> Callable[[str], Seen]:
    return lambda node: seen.get(node, other)


def started(batch: int = 2, *, max_failed: int = 0, settle_s: float = 0.0, other: Seen = BUSY, **seen: Seen) -> Rollout:
    return begin(
        7,
        NODES,
        by="anna",
        batch=batch,
        max_failed=max_failed,
        settle_s=settle_s,
        seen=looking(seen, other),
        now=NOW,
    )


@pytest.mark.parametrize(
    ("text", "nodes", "size"),
    [("10%", 20, 2), ("10%", 1, 1), ("34%", 3, 2), ("100%", 7, 7), ("5", 3, 5), ("1", 900, 1)],
)
def test_a_batch_is_a_number_or_a_share(text: str, nodes: int, size: int) -> None:
    assert batch_size(text, nodes) == size


@pytest.mark.parametrize("text", ["", "0", "0%", "101%", "-1", "5 %", "x", "1e3", "٣", "99999999"])
def test_what_is_no_batch_is_told(text: str) -> None:
    with pytest.raises(ValueError):
        batch_size(text, 10)


def test_batches_follow_one_another_once_all_have_applied_it() -> None:
    rollout = started()
    assert (rollout.released, list(rollout.held)) == (2, NODES[2:])
    assert step(rollout, looking({"n1": DONE}), NOW).released == 2
    rollout = step(rollout, looking({"n1": DONE, "n2": DONE}), NOW)
    assert rollout.released == 4
    assert step(rollout, looking({"n1": DONE, "n2": DONE}), NOW) == rollout
    for _ in range(2):
        rollout = step(rollout, looking({}, DONE), NOW)
    assert (rollout.released, rollout.state, list(rollout.held)) == (7, "running", [])
    rollout = step(rollout, looking({}, DONE), NOW)
    assert (rollout.state, rollout.is_open) == ("done", False)


def test_each_batch_is_watched_for_a_while() -> None:
    rollout = step(started(settle_s=10), looking({}, DONE), NOW)
    assert (rollout.released, bool(rollout.well_since)) == (2, True)
    rollout = step(rollout, looking({}, DONE), NOW + timedelta(seconds=9))
    assert rollout.released == 2
    unsettled = step(rollout, looking({"n1": BUSY}, DONE), NOW + timedelta(seconds=9))
    assert step(unsettled, looking({}, DONE), NOW + timedelta(seconds=11)).released == 2, "the time starts again"
    assert step(rollout, looking({}, DONE), NOW + timedelta(seconds=10)).released == 4


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        (Seen(False, ["file /etc/x: no space", "b"]), "n2: file /etc/x: no space; b"),
        (Seen(False, is_up=False), "n2: it has stopped reporting"),
        (Seen(True, failing={"Docker": "no answer"}), "n2: check Docker: no answer fails"),
    ],
)
def test_a_node_that_fails_stops_it_and_somebody_may_let_it_go_on(seen: Seen, text: str) -> None:
    stopped = step(started(), looking({"n1": DONE, "n2": seen}), NOW)
    assert (stopped.state, stopped.text, stopped.released) == ("stopped", text, 2)
    assert list(stopped.held) == NODES[2:]
    assert step(stopped, looking({}, DONE), NOW) == stopped, "it does not go on by itself"
    going = resumed(stopped)
    assert (going.state, going.forgiven) == ("running", ("n2",))
    assert step(going, looking({"n1": DONE, "n2": seen}), NOW).released == 4


def test_some_may_fail_where_that_was_allowed() -> None:
    bad = Seen(False, ["x"])
    rollout = step(started(3, max_failed=1), looking({"n2": bad}, DONE), NOW)
    assert (rollout.state, rollout.released, rollout.failed) == ("running", 6, {"n2": "x"})
    assert step(rollout, looking({"n2": bad, "n5": bad}, DONE), NOW).state == "stopped"


def test_what_was_broken_before_is_not_its_fault() -> None:
    rollout = started(n1=Seen(False, failing={"Docker": "old"}), n2=Seen(False, is_up=False))
    seen = {"n1": Seen(True, failing={"Docker": "old"}), "n2": Seen(False, is_up=False)}
    assert step(rollout, looking(seen), NOW).released == 4, "who was silent is not waited for"
    worse = {"n1": Seen(True, failing={"Docker": "old", "ntp": ""}), "n2": DONE}
    assert step(rollout, looking(worse), NOW).text == "n1: check ntp fails"


def test_a_check_that_fails_before_the_change_is_there_says_nothing_about_it() -> None:
    assert standing(started(), "n1", Seen(False, failing={"ntp": ""})) == Standing("pending")


@pytest.mark.parametrize("state", ["paused", "stopped", "done", "undone"])
def test_what_does_not_run_stays_as_it_is(state: str) -> None:
    rollout = msgspec.structs.replace(started(), state=state)
    assert step(rollout, looking({}, DONE), NOW) == rollout
    assert bool(rollout.held) == (state in ("paused", "stopped"))


kinds = some.sampled_from([DONE, BUSY, Seen(False, ["x"]), Seen(False, is_up=False), Seen(True, failing={"ntp": ""})])


@given(some.integers(1, 9), some.integers(0, 2), some.lists(some.lists(kinds, min_size=7, max_size=7), max_size=12))
def test_whatever_nodes_do_no_more_of_them_fail_than_allowed_and_one_batch(
    batch: int, most: int, looks: list[list[Seen]]
) -> None:
    rollout = started(batch, max_failed=most)
    for look in looks:
        seen = dict(zip(NODES, look, strict=True))
        after = step(rollout, looking(seen), NOW)
        assert after.released - rollout.released in range(batch + 1)
        if after.released > rollout.released:
            states = [standing(rollout, node, seen[node]).state for node in NODES[: rollout.released]]
            assert "pending" not in states and states.count("failed") <= most
        if after.state == "done":
            assert after.released == len(NODES)
        rollout = after
