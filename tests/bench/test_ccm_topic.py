"""The join of nodes: when it is over, and which turn counts."""

from __future__ import annotations

import pathlib
from typing import Any

import msgspec
import pytest

from bedplate.api import core
from bench import ccm, managers

ADDRESSES = [{"type": "Hostname", "address": "bench-00000"}, {"type": "InternalIP", "address": "10.0.0.1"}]


def bench_with(**parts: Any) -> ccm.Bench:
    """A bench that sees one node, as its kubelet registered it but for these parts."""
    unused: Any = None
    bench = ccm.Bench(pathlib.Path(), unused, unused, unused, unused)
    bench.nodes.replace([msgspec.convert({**ccm.node(0), **parts}, core.Node)], "1")
    return bench


@pytest.mark.parametrize(
    ("parts", "is_over"),
    [
        ({}, False),
        ({"spec": {}}, False),
        ({"status": {"addresses": ADDRESSES}}, False),
        ({"spec": {}, "status": {"addresses": ADDRESSES}}, True),
    ],
    ids=["as registered", "without addresses", "with the taint", "initialised"],
)
def test_a_join_ends_when_the_nodes_have_no_taint_and_their_addresses(parts: dict[str, Any], is_over: bool) -> None:
    bench = bench_with(**parts)
    assert bench.is_initialised(1) is is_over
    assert not bench.is_initialised(2), "a node that is not there yet is not initialised"


async def test_the_median_turn_counts_and_the_order_alternates(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    seconds = iter([5.0, 1.0, 2.0, 9.0, 7.0, 3.0])

    async def join(bench: ccm.Bench, contender: managers.Contender, setting: str, count: int) -> ccm.Joined:
        order.append(contender.name)
        return ccm.Joined(seconds=next(seconds))

    monkeypatch.setattr(ccm, "join", join)
    contenders = [managers.Contender(name, pathlib.Path(name), "oxide") for name in ("ours", "original")]
    joined = await ccm.join_in_turns(bench_with(), contenders, ccm.FAST, 1)
    assert order == ["ours", "original", "original", "ours", "ours", "original"]
    assert {name: turn.seconds for (name, _), turn in joined.items()} == {"ours": 7.0, "original": 2.0}
