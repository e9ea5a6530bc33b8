"""Random numbers of tests: a seed that a failure prints and that can be given back."""

from __future__ import annotations

import os
import random

import pytest
from tests import outcomes, tiers


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of a test's random numbers: 1, any number in `make soak`, or what `BEDPLATE_TEST_SEED` says."""
    given = os.environ.get("BEDPLATE_TEST_SEED")
    is_soak = tiers.tier(tiers.marks_of(request.node)) == "soak"
    number = int(given) if given else random.SystemRandom().randrange(2**32) if is_soak else 1
    request.node.user_properties.append((outcomes.SEED, number))
    line = f"BEDPLATE_TEST_SEED={number} runs this test with the same numbers"
    request.node.add_report_section("setup", "seed", line)
    return number


@pytest.fixture
def rng(seed: int) -> random.Random:
    return random.Random(seed)
