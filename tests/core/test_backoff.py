"""Backoff grows to its cap, with jitter, and starts over after a success."""

import random

from bedplate.core.backoff import Backoff


def test_waits_double_up_to_the_cap() -> None:
    backoff = Backoff(first_s=1, cap_s=10, jitter=0)
    assert [backoff.next() for _ in range(6)] == [1, 2, 4, 8, 10, 10]


def test_jitter_only_lengthens_and_at_most_by_its_factor() -> None:
    backoff = Backoff(first_s=1, cap_s=1, jitter=0.5, rng=random.Random(7))
    waits = [backoff.next() for _ in range(200)]
    assert all(1 <= wait <= 1.5 for wait in waits)
    assert len(set(waits)) > 100


def test_reset_forgets_the_failures() -> None:
    backoff = Backoff(first_s=1, cap_s=100, jitter=0)
    backoff.next(), backoff.next()
    backoff.reset()
    assert backoff.next() == 1


def test_thousands_of_failures_do_not_overflow() -> None:
    backoff = Backoff(first_s=1, cap_s=30, jitter=0, failures=100_000)
    assert backoff.next() == 30
