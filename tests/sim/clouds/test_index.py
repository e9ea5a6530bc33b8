"""The memory of a simulated cloud: whatever happened, a list shows one earlier moment, whole."""

from __future__ import annotations

import ipaddress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bedplate.core.clock import ManualClock
from bedplate.sim.clouds.exchange import Refused
from bedplate.sim.clouds.index import Index
from bedplate.sim.clouds.oxide.floating import Pool, Pools


class Steps:
    """A clock that is moved by hand, without a loop."""

    def __init__(self) -> None:
        self.at = 0.0
        self.now = ManualClock().now
        self.sleep = ManualClock().sleep

    def monotonic(self) -> float:
        return self.at


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 3)), st.integers(0, 2)), max_size=30
    ),
    st.integers(0, 40),
)
def test_a_list_shows_what_was_true_so_long_ago(changes: list[tuple[str, int | None, int]], lag: int) -> None:
    time = Steps()
    index = Index(time)
    states: list[tuple[float, dict[str, Any]]] = [(float("-inf"), {})]
    for key, value, pause in changes:
        time.at += pause
        if value is None:
            index.drop(key)
        else:
            index.put(key, {"value": value})
        state = {row.key: row.data["value"] for row in index}
        states.append((time.at, state))
    expected = [state for at, state in states if at <= time.at - lag][-1]
    for _ in range(2):
        seen = index.select("all", lag, lambda rows: list(rows))
        assert {row.key: row.data["value"] for row in seen} == expected
    assert {row.key: row.data["value"] for row in index.pick("abc", lag)} == expected


@given(st.lists(st.one_of(st.just("take"), st.integers(0, 9).map(lambda n: f"203.0.113.{n}"), st.integers(0, 20))))
def test_an_address_is_never_given_to_two(wishes: list[str | int]) -> None:
    pools = Pools()
    pools.add(Pool("p", "p", ipaddress.ip_network("203.0.113.0/29"), is_default=True))
    held: list[str] = []
    for wish in wishes:
        if isinstance(wish, int):
            if wish < len(held):
                pools.release(held.pop(wish))
            continue
        allocator = {"type": "auto"} if wish == "take" else {"type": "explicit", "ip": wish}
        try:
            address, _ = pools.allocate(allocator)
        except Refused as refused:
            assert len(held) >= 7 or wish in held or wish in ("203.0.113.8", "203.0.113.9"), refused.message
            continue
        assert address not in held
        held.append(address)
