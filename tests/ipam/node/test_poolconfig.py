"""A pool's configuration on a node: what its texts mean, and the text that is stored."""

from __future__ import annotations

import json

import pytest
from tests.ipam.node.storekit import VECTORS

from bedplate.ipam.addresses import Address
from bedplate.ipam.node import poolconfig
from bedplate.ipam.node.poolconfig import BadPool


def test_the_document_is_the_originals() -> None:
    config = poolconfig.make(
        "ring",
        subnet="10.61.0.0/24",
        start="10.61.0.9",
        end="10.61.0.16",
        gateway="10.61.0.12",
        exclusions=[("10.61.0.14", "10.61.0.14")],
    )
    stored = json.loads((VECTORS / "stores/10-all-removed.store").read_text())["pools"]["ring"]["last_pool_config"]
    assert config.document == stored
    assert poolconfig.read("ring", stored) == config


def test_exclusions_may_overlap_touch_and_lie_outside() -> None:
    config = poolconfig.make(
        "p",
        subnet="10.0.0.0/16",
        start="10.0.1.0",
        end="10.0.1.255",
        exclusions=[
            ("10.0.1.20", "10.0.1.30"),
            ("10.0.1.10", "10.0.1.25"),
            ("10.0.1.31", "10.0.1.31"),
            ("10.0.0.0", "10.0.1.1"),
            ("10.0.9.1", "10.0.9.2"),
        ],
    )
    base = config.network.base
    assert config.exclusions == ((base + 256, base + 257), (base + 266, base + 287))


def test_host_bits_and_mapped_texts_mean_what_they_mean_to_the_original() -> None:
    config = poolconfig.make("p", subnet="10.0.1.7/16", start="::ffff:10.0.0.1", end="10.0.0.9", gateway="no address")
    assert (str(config.network), config.start & 0xFF, config.gateway) == ("10.0.0.0/16", 1, None)
    assert '"subnet":"10.0.1.7/16","startIP":"::ffff:10.0.0.1"' in config.document
    assert config.in_block(Address(32, 0x0A000009)) and not config.in_block(Address(32, 0x0A00000A))


@pytest.mark.parametrize(
    "texts",
    [
        {"subnet": "10.0.0.0", "start": "10.0.0.1", "end": "10.0.0.2"},
        {"subnet": "10.0.0.0/24", "start": "10.0.1.1", "end": "10.0.0.2"},
        {"subnet": "10.0.0.0/24", "start": "10.0.0.1", "end": "x"},
        {"subnet": "10.0.0.0/24", "start": "10.0.0.3", "end": "10.0.0.2"},
        {"subnet": "10.0.0.0/24", "start": "fd00::1", "end": "fd00::2"},
        {"subnet": "10.0.0.0/24", "start": "10.0.0.1", "end": "10.0.0.2", "exclusions": [("fd00::1", "fd00::2")]},
    ],
)
def test_what_cannot_be_used_is_said(texts: dict[str, object]) -> None:
    with pytest.raises(BadPool, match="pool p"):
        poolconfig.make("p", **texts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "document", ["", "x", "[]", "{}", '{"subnet":"x","startIP":"","endIP":""}', '{"subnet":1}', "\ud800"]
)
def test_a_stored_text_that_says_nothing_is_none(document: str) -> None:
    assert poolconfig.read("p", document) is None
