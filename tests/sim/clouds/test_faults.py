"""The fault script: what it may hold, and which requests its rules strike."""

from __future__ import annotations

import pytest
from multidict import MultiDict

from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.sim.clouds import faults
from bedplate.sim.clouds.exchange import Request

SCRIPT = """
seed: 7
rules:
- name: flaky lists
  match: {operation: "get-all-*", path: ^/v2/, method: get, nth: [1, 3], from: 10s, until: 5m}
  fault: 503
- match: {every: 2, times: 2}
  fault: {kind: 429, retry_after: 2s, message: slow down}
"""


def request(operation: str = "get-instance", method: str = "GET", path: str = "/v2/x") -> Request:
    return Request(method, path, MultiDict(), {}, operation=operation)


def strikes(found: faults.Faults, count: int, **kwargs: str) -> list[int]:
    return [number for number in range(1, count + 1) if found.of(request(**kwargs))]


def test_a_script_is_read_whole() -> None:
    script = faults.parse(SCRIPT)
    assert script.seed == 7
    first, second = script.rules
    assert first.name == "flaky lists"
    expected = faults.Match("get-all-*", "^/v2/", "GET", (1, 3), from_s=10.0, until_s=300.0)
    assert (first.match, first.fault.kind) == (expected, "503")
    assert (second.match.every, second.match.times) == (2, 2)
    assert (second.fault.kind, second.fault.retry_after_s, second.fault.message) == ("429", 2.0, "slow down")


def test_all_problems_are_reported_together() -> None:
    text = """
seeds: 1
rules:
- match: {operation: x, nth: 0, probability: 2, path: "(", until: later, hour: 3}
  fault: {kind: 503, over: 1s}
- fault: {kind: storm}
- match: {every: often}
- 7
- fault: {kind: generic-404, style: loud}
- fault: {kind: latency, by: -1s}
"""
    with pytest.raises(errors.Invalid) as caught:
        faults.parse(text)
    problems = "\n".join(caught.value.problems)
    for word in ("seeds", "nth", "probability", "'('", "later", "hour", "over", "storm", "often", "rules[2].fault"):
        assert word in problems
    for word in ("rules[3]: must be a mapping", "loud", "must not be negative"):
        assert word in problems


@pytest.mark.parametrize("text", ["[", "7", "rules: 3"])
def test_what_is_no_script_is_refused(text: str) -> None:
    with pytest.raises(errors.Invalid):
        faults.parse(text)


def test_an_empty_script_is_good_weather() -> None:
    assert faults.parse("").rules == ()


def test_nth_every_and_times_count_only_requests_that_match() -> None:
    found = faults.Faults(ManualClock())
    found.add("500", operation="get-instance", nth=[2, 5])
    assert strikes(found, 3, operation="get-site") == []
    assert strikes(found, 6) == [2, 5]
    found.clear()
    found.add("500", every=3, times=2)
    assert strikes(found, 12) == [3, 6]


async def test_the_window_of_time_begins_when_the_rule_comes_into_force() -> None:
    time = ManualClock()
    found = faults.Faults(time)
    await time.advance(100)
    rule = found.add("500", from_="10s", until="20s")
    struck = []
    for span in (0, 9, 1, 9, 1):
        await time.advance(span)
        struck.append(bool(found.of(request())))
    assert struck == [False, False, True, True, False]
    assert (rule.seen, rule.hits) == (2, 2)


def test_probability_is_the_same_for_the_same_seed() -> None:
    script = "seed: {}\nrules:\n- match: {{probability: 0.3}}\n  fault: 500\n"
    runs = [strikes(faults.Faults(ManualClock(), faults.parse(script.format(seed))), 200) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    assert 30 < len(runs[0]) < 90


def test_method_path_and_operation_all_must_hold() -> None:
    found = faults.Faults(ManualClock())
    found.add("500", method="post", path="attach$", operation="floating_ip_*")
    assert strikes(found, 1, operation="floating_ip_attach", method="POST", path="/v1/a/attach") == [1]
    assert strikes(found, 1, operation="floating_ip_attach", method="GET", path="/v1/a/attach") == []
    assert strikes(found, 1, operation="floating_ip_attach", method="POST", path="/v1/attach/a") == []
    assert strikes(found, 1, operation="instance_view", method="POST", path="/v1/a/attach") == []


def test_additive_faults_all_apply_and_then_the_first_of_the_others() -> None:
    found = faults.Faults(ManualClock())
    for kind in ("latency", "503", "stale-list", "reset"):
        found.add(kind)
    assert [fault.kind for fault in found.of(request())] == ["latency", "503"]


def test_a_script_may_be_used_twice_without_sharing_counts() -> None:
    script = faults.parse("rules:\n- match: {nth: 1}\n  fault: 500\n")
    assert strikes(faults.Faults(ManualClock(), script), 2) == [1]
    assert strikes(faults.Faults(ManualClock(), script), 2) == [1]
