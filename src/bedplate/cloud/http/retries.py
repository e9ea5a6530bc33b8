"""Whether and when a failed call is sent again. Pure, but for the random numbers it is given.

Reads and deletions: up to four attempts after a broken connection or one of the statuses that pass. Everything else
only when nothing can have happened: the connection was never made, or the cloud answered 429 or 503.
"""

from __future__ import annotations

import random
from datetime import datetime
from email.utils import parsedate_to_datetime

from bedplate.cloud.http import errors

__all__ = ["delay_s", "is_repeatable", "retry_after_s"]

ATTEMPTS = 4
FIRST_S = 0.5
LONGEST_S = 10.0
LONGEST_RETRY_AFTER_S = 60.0
_PASSING = frozenset({408, 429, 500, 502, 503, 504})
_NOTHING_DONE = frozenset({429, 503})
_IDEMPOTENT = frozenset({"GET", "HEAD", "DELETE"})


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
