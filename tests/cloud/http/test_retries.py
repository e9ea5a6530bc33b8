"""Retry-After, and the breaker's states."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.cloud.http.retries import Breaker, retry_after_s
from bedplate.core.clock import ManualClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        (" 7 ", 7.0),
        ("60", 60.0),
        ("3600", 60.0),
        ("9" * 400, 60.0),
        (format_datetime(NOW + timedelta(seconds=20), usegmt=True), 20.0),
        (format_datetime(NOW + timedelta(hours=1), usegmt=True), 60.0),
        (format_datetime(NOW - timedelta(hours=1), usegmt=True), 0.0),
        ("Thu, 01 Jan 2026 00:00:09 -0000", None),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("٣", None),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_at_most_a_minute(text: str, seconds: float | None) -> None:
    assert retry_after_s(text, NOW) == seconds


@given(st.text(max_size=40))
def test_no_header_breaks_it(text: str) -> None:
    found = retry_after_s(text, NOW)
    assert found is None or 0 <= found <= 60


async def test_the_breaker_opens_after_five_failures_in_a_row_and_lets_one_through_afterwards() -> None:
    time = ManualClock()
    breaker = Breaker(time)
    for _ in range(4):
        breaker.failed()
    breaker.succeeded()
    for _ in range(5):
        assert breaker.refuses_for() is None
        breaker.failed()
    assert breaker.refuses_for() == pytest.approx(15.0) == breaker.rests_for()
    await time.advance(15)
    assert breaker.rests_for() == 0.0
    assert breaker.refuses_for() is None, "one may try"
    assert breaker.refuses_for() is not None, "only one"
    breaker.abandoned()
    assert breaker.refuses_for() is None, "the one gave up: another may"
    breaker.succeeded()
    assert breaker.refuses_for() is None and breaker.refuses_for() is None
