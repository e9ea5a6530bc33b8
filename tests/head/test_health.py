"""Results of checks beside the tree: history, bounds, conditions, restarts, two heads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.waiting import DEADLINE_S

from bedplate.api.headapi import Action, Failure, Result, System
from bedplate.core import errors
from bedplate.core.clock import ManualClock, parse_rfc3339
from bedplate.head.health import NODES, SAMPLES, Health, Measured, news
from bedplate.store.interface import Op, Put, Store


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def health(store: Store, clock: ManualClock) -> Health:
    async with Health(store, clock=clock, kept=5, silence_s=60) as opened:
        return opened


async def test_history_is_kept_in_order_and_bounded(health: Health, store: Store, clock: ManualClock) -> None:
    for number in range(12):
        await health.record("node001", [Result("a", "PASS", float(number)), Result("b", "FAIL", info=str(number))])
        await clock.advance(1.5)
    history = await health.history("node001")
    assert [sample.value for sample in history["a"]] == [7.0, 8.0, 9.0, 10.0, 11.0]
    assert [sample.info for sample in history["b"]] == ["7", "8", "9", "10", "11"]
    assert history["a"][0].time == "2026-01-01T00:00:10.500Z"
    assert list(await health.history("node001", "b")) == ["b"]
    assert await health.history("node00") == {}
    assert len((await store.list(SAMPLES)).entries) == 10


async def test_a_condition_says_since_when(health: Health, clock: ManualClock) -> None:
    for status in ("PASS", "FAIL", "FAIL"):
        await health.record("node001", [Result("a", status)])  # type: ignore[arg-type]
        await clock.advance(10)
    held = health.of("node001")
    assert held is not None
    assert (held.checks["a"].last.status, held.checks["a"].since) == ("FAIL", "2026-01-01T00:00:10.000Z")
    assert held.heard == "2026-01-01T00:00:20.000Z"


async def test_a_result_that_was_told_late_has_the_time_of_its_measurement(health: Health, clock: ManualClock) -> None:
    late = Result(check="a", status="FAIL", age_s=90.0)
    (measured,) = await health.record("node001", [late])
    age_s = (clock.now() - parse_rfc3339(measured.sample.time)).total_seconds()
    assert age_s == pytest.approx(90.0, abs=0.01)
    assert health.node_state("node001").checks[0].since == measured.sample.time


async def test_what_was_applied_stays_known(health: Health) -> None:
    await health.record("node001", applied=7, digest="d")
    await health.record("node001", [Result("a", "PASS")])
    held = health.of("node001")
    assert held is not None
    assert (held.applied, held.digest) == (7, "d")


async def test_a_silent_node_is_down_and_one_never_heard_is_unknown(health: Health, clock: ManualClock) -> None:
    await health.record("node001")
    assert (health.state("node001"), health.state("node002")) == ("UP", "UNKNOWN")
    await clock.advance(61)
    assert health.state("node001") == "DOWN"


@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0])
async def test_a_clock_that_is_set_neither_hides_a_silent_node_nor_loses_one(
    health: Health, store: Store, clock: ManualClock, jump_s: float
) -> None:
    await health.record("node001")
    clock.jump(jump_s)
    assert health.state("node001") == "UP"
    await clock.advance(61)
    assert health.state("node001") == "DOWN"
    await health.record("node001")
    clock.jump(-3600.0)
    async with Health(store, clock=clock, silence_s=60) as again:
        assert again.state("node001") == "UP", "a time to come does not count as silence"
        await clock.advance(61)
        assert again.state("node001") == "DOWN"


async def test_everything_outlives_a_restart(health: Health, store: Store, clock: ManualClock) -> None:
    await health.record("node001", [Result("a", "PASS", 1.0)], applied=3)
    async with Health(store, clock=clock) as again:
        assert again.of("node001") == health.of("node001")
        await again.record("node001", [Result("a", "FAIL")])
        assert [one.status for one in (await again.history("node001"))["a"]] == ["PASS", "FAIL"]


async def test_another_head_follows(health: Health, store: Store, clock: ManualClock) -> None:
    async with Health(store, clock=clock) as other:
        seen: list[Measured] = []

        async def read() -> None:
            async for measured in other.stream():
                seen.append(measured)  # noqa: PERF401

        tasks = [asyncio.create_task(other.follow()), asyncio.create_task(read())]
        try:
            async with asyncio.timeout(DEADLINE_S):
                while [one.sample.status for one in seen[-1:]] != ["FAIL"]:
                    await health.record("node001", [Result("a", "PASS"), Result("b", "FAIL")])
                    await asyncio.sleep(0.05)
                assert health.of("node001") is not None
                await health.forget("node001")
                while other.of("node001") is not None:
                    await asyncio.sleep(0.02)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert {(one.check, one.sample.status) for one in seen} == {("a", "PASS"), ("b", "FAIL")}
    for prefix in (NODES, SAMPLES):
        assert (await store.list(prefix)).entries == []


async def test_the_latest_are_told_to_whoever_was_away(health: Health, clock: ManualClock) -> None:
    await health.record("node001", [Result("a", "FAIL"), Result("b", "PASS")])
    await clock.advance(5)
    await health.record("node001", [Result("a", "PASS")])
    told = [(one.check, one.sample.status) for one in health.latest("2026-01-01T00:00:00.000Z")]
    assert told == [("a", "PASS")]
    assert len(health.latest()) == 2


async def test_a_node_with_endless_checks_is_refused_and_nothing_of_it_is_kept(health: Health) -> None:
    with pytest.raises(errors.Invalid):
        await health.record("node001", [Result(f"c{number}", "PASS") for number in range(101)])
    assert health.of("node001") is None


async def test_a_check_that_turns_is_news_and_one_that_goes_on_is_not(health: Health) -> None:
    told: list[str] = []
    for status in ("PASS", "PASS", "FAIL", "FAIL", "UNKNOWN", "PASS"):
        measured = await health.record("n", [Result("disk", status, info="full")])  # type: ignore[arg-type]
        told.extend(one.text for one in news("n", [], [], measured))
    assert told == ["Check disk failed: full", "Check disk returns no result: full", "Check disk passes again"]


def test_a_report_speaks_as_the_manual_does() -> None:
    made = news(
        "basecm10",
        [Action(kind="service", name="shorewall", verb="restarted")],
        [Failure(kind="file", name="/etc/x", verb="written")],
        [],
        9,
    )
    assert [(one.host, one.text, one.severity, one.revision) for one in made] == [
        ("basecm10", "Service shorewall was restarted", "notice", 9),
        ("basecm10", "File /etc/x could not be written", "warning", 9),
    ]


async def test_what_a_check_said_that_is_no_longer_run_is_forgotten(health: Health, store: Store) -> None:
    for _ in range(3):
        await health.record("node001", [Result("a", "PASS"), Result("Docker", "FAIL")], checks=["a", "Docker"])
    assert health.node_state("node001").health == "FAIL"
    assert await health.record("node001", [Result("Docker", "FAIL")], checks=["a"]) == []
    state = health.node_state("node001")
    assert ([check.check for check in state.checks], state.health) == (["a"], "PASS")
    assert list(await health.history("node001")) == ["a"]
    async with Health(store) as other:
        assert other.of("node001") == health.of("node001")
    await health.record("node001", [Result("Docker", "PASS")], checks=["a", "Docker"])
    assert len((await health.history("node001"))["Docker"]) == 1, "it begins again"


async def test_the_history_of_a_check_goes_before_the_node_is_written_without_it(
    health: Health, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head that ends in between forgets it with the next report."""
    await health.record("node001", [Result("a", "PASS"), Result("Docker", "FAIL")], checks=["a", "Docker"])
    commit = store.commit
    histories: list[list[str]] = []

    async def watched(ops: Sequence[Op]) -> int:
        if any(isinstance(op, Put) for op in ops):
            histories.append(list(await health.history("node001")))
        return await commit(ops)

    monkeypatch.setattr(store, "commit", watched)
    await health.record("node001", [Result("a", "PASS")], checks=["a"])
    assert histories == [["a"]]


async def test_who_listens_is_told_of_nodes_that_move_on_and_of_no_others(health: Health, clock: ManualClock) -> None:
    told: list[str] = []
    health.listeners.append(told.append)
    await health.record("node001", [Result("a", "PASS")], applied=1, digest="x")
    await health.record("node001", [Result("a", "FAIL")], applied=1, digest="x")
    await health.record("node001")
    assert told == ["node001"]
    failure = Failure(kind="file", name="/etc/x", verb="written", text="full")
    await health.record("node001", failures=[failure], tried=2)
    await health.record("node001", applied=2, digest="y")
    health.left("node001")
    await health.record("node001", applied=2, digest="y")
    await clock.advance(61)
    await health.record("node001")
    assert told == ["node001"] * 6


async def test_what_a_node_says_of_its_machine_is_kept_until_it_says_something_else(health: Health) -> None:
    assert health.node_state("node001").system is None
    system = System(id="debian", version="12", packages="apt", reboot=True)
    await health.record("node001", system=system)
    await health.record("node001", applied=3)
    assert health.node_state("node001").system == system
    await health.record("node001", system=System(id="debian", version="12", packages="apt"))
    state = health.node_state("node001")
    assert state.system is not None and not state.system.reboot
