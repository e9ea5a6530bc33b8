"""How many addresses pods can get from a block: never the excluded ones, never the gateway."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bedplate.ipam import usable
from bedplate.ipam.pools import CIDRAllocation, CIDRPoolSpec, IPAllocation, IPPoolSpec


def blocks(*ends: tuple[str, str]) -> list[IPAllocation]:
    return [IPAllocation(node_name=f"n{at}", start_ip=low, end_ip=high) for at, (low, high) in enumerate(ends)]


TWO = blocks(("192.168.0.1", "192.168.0.10"), ("192.168.0.11", "192.168.0.20"))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, [10, 10]),
        ({"gateway": "192.168.0.1"}, [9, 10]),
        ({"gateway": "192.168.0.200"}, [10, 10]),
        ({"gateway": "fd00::1"}, [10, 10]),
        ({"exclusions": [{"startIP": "192.168.0.9", "endIP": "192.168.0.12"}]}, [8, 8]),
        ({"perNodeExclusions": [{"startIndex": 0, "endIndex": 3}]}, [6, 6]),
        # The gateway is excluded already: it is not taken away twice.
        ({"gateway": "192.168.0.1", "perNodeExclusions": [{"startIndex": 0, "endIndex": 0}]}, [9, 9]),
    ],
)
def test_a_block_is_counted_without_what_pods_never_get(more: dict[str, Any], expected: list[int]) -> None:
    spec = msgspec.convert({"subnet": "192.168.0.0/24", "perNodeBlockSize": 10, **more}, IPPoolSpec)
    assert usable.in_blocks(spec, TWO) == expected


@pytest.mark.parametrize(
    ("prefix", "gateway", "more", "expected"),
    [
        ("10.0.0.0/24", "", {}, 254),
        ("10.0.0.0/24", "10.0.0.1", {}, 253),
        ("10.0.0.0/31", "", {}, 2),
        ("10.0.0.0/32", "", {}, 1),
        ("10.0.0.0/24", "10.0.0.1", {"perNodeExclusions": [{"startIndex": 0, "endIndex": 10}]}, 244),
        ("fd00::/64", "", {}, 2**64 - 1),
    ],
)
def test_a_prefix_is_counted_without_what_pods_never_get(
    prefix: str, gateway: str, more: dict[str, Any], expected: int
) -> None:
    wide = "fd00::/48" if ":" in prefix else "10.0.0.0/16"
    spec = msgspec.convert({"cidr": wide, "perNodeNetworkPrefix": int(prefix.split("/")[1]), **more}, CIDRPoolSpec)
    assert usable.in_prefixes(spec, [CIDRAllocation(node_name="n", prefix=prefix, gateway=gateway)]) == [expected]


def test_an_entry_that_means_nothing_counts_nothing() -> None:
    assert usable.in_blocks(IPPoolSpec(subnet="10.0.0.0/24"), blocks(("x", "10.0.0.9"))) == []
    assert usable.in_prefixes(CIDRPoolSpec(cidr="10.0.0.0/8"), [CIDRAllocation(prefix="10.0.0")]) == []
