"""Networks are claimed machine-wide: one holder at a time, and no claim outlives its process."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from bedplate.core import errors
from bedplate.lab import cluster, network, state
from bedplate.lab.plan import Network, Options, make_plan

# A documentation network: no lab chooses it.
NETWORK = Network("192.0.2.0/24")
HOLD = f"""
import sys
from bedplate.lab import network
from bedplate.lab.plan import Network
held = network.claim(Network("{NETWORK}"))
print("free" if held else "taken", flush=True)
sys.stdin.read()
"""


def test_a_network_held_by_another_process_is_not_given_until_that_process_dies() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        try:
            assert other.stdout.readline() == "free\n"
            assert network.claim(NETWORK) is None
        finally:
            other.kill()
    held = network.claim(NETWORK)
    assert held is not None
    held.close()


def test_another_network_is_free_meanwhile_and_a_closed_claim_is_free_again() -> None:
    held, other = network.claim(NETWORK), network.claim(Network("198.51.100.0/24"))
    assert held is not None and other is not None
    held.close()
    other.close()
    again = network.claim(NETWORK)
    assert again is not None
    again.close()


def test_the_bridge_has_a_hardware_address_of_its_own_whichever_nodes_are_switched_off() -> None:
    plan = make_plan(Options(name="x", nodes=3, subnet="10.77.4.0/24"), [])
    whole = network.switch_batch(plan, {node.name: 100 for node in plan.nodes})
    assert "link add br0 address 02:00:0a:4d:04:02 type bridge\n" in whole
    assert plan.registry == "10.77.4.2"


async def test_a_lab_that_loses_one_network_to_another_lab_keeps_the_one_it_was_told_to_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing() -> list[Network]:
        return []

    monkeypatch.setattr(network, "in_use", nothing)
    options = Options(name="x", nodes=1, subnet="203.0.113.0/24")
    taken = network.claim(Network(make_plan(options, []).pod_cidr))
    assert taken is not None
    with taken, contextlib.ExitStack() as stack:
        record = await cluster._claim(options, state.Shelf(tmp_path), stack)
        assert record.plan.subnet == "203.0.113.0/24"
        assert record.plan.pod_cidr != make_plan(options, []).pod_cidr
        assert network.claim(Network(record.plan.pod_cidr)) is None
    other, refusal = network.claim(Network("203.0.113.0/24")), "--subnet 203.0.113.0/24: overlaps .*, which is in use"
    assert other is not None
    (tmp_path / "another").mkdir()
    with other, contextlib.ExitStack() as stack, pytest.raises(errors.Invalid, match=refusal):
        await cluster._claim(options, state.Shelf(tmp_path / "another"), stack)
