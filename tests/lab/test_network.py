"""Networks are claimed machine-wide: one holder at a time, and no claim outlives its process."""

from __future__ import annotations

import subprocess
import sys

from bedplate.lab import network
from bedplate.lab.plan import Network

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
