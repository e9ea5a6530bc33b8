"""Events are recorded once for as long as a condition holds."""

from __future__ import annotations

from bedplate.api import meta
from bedplate.ipam.controller.telling import AT_ONCE, Teller

POOL = meta.ObjectReference(kind="IPPool", name="p", namespace="ns")


class Heard:
    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []

    def event(self, regarding: meta.ObjectReference, type: str, reason: str, message: str) -> None:
        assert type == "Warning"
        self.texts.append((reason, message))


def test_the_same_again_is_not_told_and_what_comes_back_is() -> None:
    heard = Heard()
    teller = Teller(heard)
    for texts in (["x"], ["x"], [], ["x"], ["x", "y"]):
        teller.state(POOL, "ns/p", "InvalidSpec", texts)
    assert [text for _, text in heard.texts] == ["x", "x", "y"]


def test_nodes_are_told_one_by_one_up_to_a_number_and_then_together() -> None:
    heard = Heard()
    teller = Teller(heard)
    why = {f"n{number:03}": f"no block for n{number:03}" for number in range(500)}
    teller.nodes(POOL, "ns/p", "NoFreeRanges", why)
    assert len(heard.texts) == AT_ONCE + 1 and f"{500 - AT_ONCE} more" in heard.texts[-1][1]
    teller.nodes(POOL, "ns/p", "NoFreeRanges", why)
    assert len(heard.texts) == AT_ONCE + 1
    teller.nodes(POOL, "ns/p", "NoFreeRanges", {**why, "z": "no block for z"})
    assert heard.texts[-1] == ("NoFreeRanges", "no block for z")


def test_a_pool_that_is_gone_is_forgotten() -> None:
    heard = Heard()
    teller = Teller(heard)
    teller.state(POOL, "ns/p", "InvalidSpec", ["x"])
    teller.forget("ns/p")
    teller.state(POOL, "ns/p", "InvalidSpec", ["x"])
    assert len(heard.texts) == 2
