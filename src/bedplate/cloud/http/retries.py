"""Whether and when a failed call is sent again, and when none is sent at all. Pure, but for random numbers and for what
the breaker counts.

Reads and deletions: up to four attempts after a broken connection or one of the statuses that pass. Everything else
only when nothing can have happened: the connection was never made, or the cloud answered 429 or 503. After five
transport failures in a row no call is made for fifteen seconds; then one attempt is let through, and its outcome
decides for all. An answer of any status proves that the endpoint is there, and closes the breaker.
"""

from __future__ import annotations

import random
from datetime import datetime
from email.utils import parsedate_to_datetime

from bedplate.cloud.http import errors
from bedplate.core import clock

__all__ = ["Breaker", "delay_s", "is_repeatable", "retry_after_s"]

ATTEMPTS = 4
FIRST_S = 0.5
LONGEST_S = 10.0
LONGEST_RETRY_AFTER_S = 60.0
_PASSING = frozenset({408, 429, 500, 502, 503, 504})
_NOTHING_DONE = frozenset({429, 503})
_IDEMPOTENT = frozenset({"GET", "HEAD", "DELETE"})
FAILURES = 5
OPEN_S = 15.0


def is_repeatable(error: errors.ApiError) -> bool:
    """Whether the same call may be sent once more."""
    if isinstance(error, errors.Transport):
        if error.is_fail_fast:
            return False
        return error.method in _IDEMPOTENT or not error.is_sent
    return error.status in (_PASSING if error.method in _IDEMPOTENT else _NOTHING_DONE)


def delay_s(attempt: int, error: errors.ApiError, rng: random.Random) -> float:
    """How long to wait after that attempt (the first is 1): what the server asked for, else full jitter."""
    if error.retry_after_s is not None:
        return error.retry_after_s
    return rng.uniform(0.0, min(LONGEST_S, FIRST_S * 2.0 ** (attempt - 1)))


def retry_after_s(text: str, now: datetime) -> float | None:
    """The header Retry-After, in seconds (whole seconds or a date), at most a minute; None when it says nothing."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        # More digits than a float can hold mean without end.
        return LONGEST_RETRY_AFTER_S if len(text) > 9 else min(float(text), LONGEST_RETRY_AFTER_S)
    try:
        moment = parsedate_to_datetime(text)
        seconds = (moment - now).total_seconds()
    except (TypeError, ValueError):
        # Not a date, or one without a time zone.
        return None
    return min(max(0.0, seconds), LONGEST_RETRY_AFTER_S)


class Breaker:
    """Counts failures in a row. Every attempt that was let through must be ended by exactly one of the three calls."""

    def __init__(self, time: clock.Clock) -> None:
        self._time = time
        self._failures = 0
        self._open_until = float("-inf")
        self._has_probe = False

    @property
    def is_open(self) -> bool:
        return self._failures >= FAILURES

    def rests_for(self) -> float:
        """How long no call is allowed; 0 when the breaker is closed or may be probed. Changes nothing."""
        return max(0.0, self._open_until - self._time.monotonic()) if self.is_open else 0.0

    def refuses_for(self) -> float | None:
        """None: go on. Otherwise: the attempt must not be made, and may be worth another try after so many seconds."""
        if not self.is_open:
            return None
        if (left_s := self.rests_for()) > 0:
            return left_s
        if self._has_probe:
            return 1.0
        self._has_probe = True
        return None

    def succeeded(self) -> None:
        """An answer came."""
        self._failures = 0
        self._has_probe = False

    def failed(self) -> None:
        """None came, or it was cut off."""
        self._failures += 1
        self._has_probe = False
        if self.is_open:
            self._open_until = self._time.monotonic() + OPEN_S

    def abandoned(self) -> None:
        """The caller gave up before there was an outcome."""
        self._has_probe = False
