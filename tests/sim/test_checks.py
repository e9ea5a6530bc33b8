"""Checks of simulated nodes: the same answer to the same question, values that move, faults that come and go."""

from __future__ import annotations

import pytest

from bedplate.sim import checks

HOUR = [float(60 * minute) for minute in range(240)]
MEASURED = (checks.DISK, checks.LOAD, checks.GPU, checks.NTP)


@pytest.mark.parametrize("check", MEASURED)
def test_a_value_is_the_same_when_asked_again_and_moves_with_time(check: str) -> None:
    first = [checks.read(4, check, now_s) for now_s in HOUR]
    assert first == [checks.read(4, check, now_s) for now_s in HOUR]
    assert len({one.value for one in first}) > 20


def test_most_pass_some_fail_and_every_fault_ends() -> None:
    for check in (*MEASURED, "Docker", "KubernetesNodesStatus"):
        for node in range(30):
            said = [checks.read(node, check, now_s).status for now_s in HOUR]
            assert said.count("PASS") > len(said) // 2, (check, node)
    hot = [checks.read(5, checks.GPU, now_s) for now_s in HOUR]
    full = [checks.read(3, checks.DISK, now_s) for now_s in HOUR]
    for found in (hot, full):
        failed = [one for one in found if one.status == "FAIL"]
        assert failed and failed[0].value is not None and "is the limit" in failed[0].info
        assert len(failed) < len(found)


def test_a_check_without_a_value_fails_on_some_node_at_some_time() -> None:
    faults = [
        (node, check)
        for node in range(40)
        for check in ("Docker", "KubernetesNodesStatus", "KubernetesChildNode")
        if any(checks.read(node, check, now_s) == checks.Reading("FAIL", None, "no answer") for now_s in HOUR)
    ]
    assert faults
    assert {node % 10 for node, _ in faults} == {7}
