"""When a user's certificate is due, and for whom the head issues one. Pure.

In: the grants of a user, whether the tree has them and lets the head write their kubeconfig, a moment. Out: what to do.
A certificate is due at 80 % of its life; one that ran out while no head was there is due as well. Users whom nobody
granted anything, and those who are being removed, get none.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import datetime, timedelta

from bedplate.people import grants
from bedplate.people.certificates import LIFE
from bedplate.people.grants import Grant

__all__ = ["Need", "due_at", "life_of", "need", "newest"]

SHARE = 0.8


class Need(enum.Enum):
    """What a user needs."""

    NOTHING = "nothing"
    FIRST = "first"
    RENEWAL = "renewal"


def due_at(issued: datetime | None, expires: datetime) -> datetime:
    """When a certificate is renewed; where its beginning is not known, it has lived as long as they usually do."""
    begins = issued if issued is not None and issued < expires else expires - LIFE
    return begins + SHARE * (expires - begins)


def life_of(issued: datetime | None, expires: datetime) -> timedelta:
    """How long its successor is valid: as long as it was."""
    return expires - issued if issued is not None and issued < expires else LIFE


def newest(present: Sequence[Grant]) -> Grant | None:
    """The grant with the certificate that was issued last."""
    dated = [grant for grant in present if grant.expires is not None]
    return max(dated, key=lambda grant: grant.expires or datetime.min, default=None)


def need(present: Sequence[Grant], now: datetime, *, in_tree: bool, is_managed: bool) -> Need:
    """What to do for one user. Someone whom the tree does not have got the first certificate elsewhere, or none."""
    there = [grant for grant in present if grant.owner != grants.LEAVING]
    if not there or (in_tree and not is_managed):
        return Need.NOTHING
    last = newest(there)
    if last is None or last.expires is None:
        # Rights first: with a certificate alone nobody can do anything.
        return Need.FIRST if in_tree and any(grant.is_ready for grant in there) else Need.NOTHING
    return Need.RENEWAL if now >= due_at(last.issued, last.expires) else Need.NOTHING
