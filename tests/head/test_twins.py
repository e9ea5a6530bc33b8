"""Two machines with the certificate of one node are told apart from an agent that was started again."""

from __future__ import annotations

import pathlib

import pytest
from tests.agent.imaging import bare
from tests.ui.rest.serving import served

from bedplate.core.clock import ManualClock
from bedplate.head.twins import Twins


def heard(twins: Twins, runs: str, addresses: dict[str, str] | None = None) -> list[str]:
    """The warnings after reports of `node001`, a letter for the run of each."""
    told = [twins.heard("node001", run, (addresses or {}).get(run, "10.0.0.1")) for run in runs]
    return [news.text for each in told for news in each]


@pytest.mark.parametrize("runs", ["aaaa", "abcdefg", "aabbcc", "aab" + "b" * 50, "aba", "abab" + "b" * 50])
def test_an_agent_that_is_started_again_is_one_machine(runs: str) -> None:
    assert heard(Twins(ManualClock()), runs) == []


@pytest.mark.parametrize("runs", ["ababa", "aabbaba", "abcabc"])
def test_agents_that_report_in_turns_are_two_machines(runs: str) -> None:
    (told,) = heard(Twins(ManualClock()), runs, {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"})
    assert told.startswith("Two machines report as node001, at 10.0.0.")
    assert "bedplate head revoke-certificate node001 --node" in told


async def test_it_is_told_once_an_hour_and_each_node_is_judged_alone() -> None:
    clock = ManualClock()
    twins = Twins(clock)
    assert len(heard(twins, "abababab")) == 1
    assert [twins.heard("node002", run, "") for run in "cdef"] == [[]] * 4
    await clock.advance(3601)
    assert len(heard(twins, "abab")) == 1
    for _ in range(9):
        # One late report now and then is none of another machine.
        await clock.advance(3601)
        assert heard(twins, "ab") == []
    twins.forget("node001")
    assert heard(twins, "aba") == []


def test_an_agent_that_tells_no_run_is_not_judged() -> None:
    twins = Twins(ManualClock())
    assert [twins.heard("node001", "", "") for _ in range(9)] == [[]] * 9


async def test_people_are_told_of_two_agents_with_one_certificate(tmp_path: pathlib.Path) -> None:
    async with served(tmp_path, tree=bare()) as server, server.client("node001") as client:
        for run in ("0a", "0b", "0a", "0b", "0a"):
            await client.report("node001", run=run)
        told = [each for each in server.notices.latest(100) if "Two machines report as node001" in each.text]
        assert [(each.host, each.severity) for each in told] == [("node001", "warning")]
