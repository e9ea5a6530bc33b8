"""When a certificate is due, and who gets one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bedplate.head.people import renewing
from bedplate.head.people.renewing import Need
from bedplate.people import grants
from bedplate.people.grants import Grant

ISSUED = datetime(2026, 1, 1, tzinfo=UTC)
EXPIRES = ISSUED + timedelta(days=100)


def grant(**values: Any) -> Grant:
    given = {"issued": ISSUED, "expires": EXPIRES, "is_ready": True, **values}
    return Grant(user="john", namespace="john-restricted", name="john-1234567", **given)


def need(now: datetime, *present: Grant, in_tree: bool = True, is_managed: bool = True) -> Need:
    return renewing.need(present, now, in_tree=in_tree, is_managed=is_managed)


@pytest.mark.parametrize(("days", "expected"), [(0, Need.NOTHING), (79, Need.NOTHING), (80, Need.RENEWAL)])
def test_a_certificate_is_due_at_eighty_percent_of_its_life(days: int, expected: Need) -> None:
    assert need(ISSUED + timedelta(days=days), grant()) is expected


@pytest.mark.parametrize("in_tree", [True, False])
def test_one_that_ran_out_while_no_head_was_there_is_due(in_tree: bool) -> None:
    assert need(EXPIRES + timedelta(days=200), grant(), in_tree=in_tree, is_managed=in_tree) is Need.RENEWAL


def test_where_the_beginning_is_not_known_it_lived_a_year() -> None:
    assert renewing.due_at(None, EXPIRES) == EXPIRES - timedelta(days=73)
    assert renewing.life_of(None, EXPIRES) == timedelta(days=365)
    assert renewing.life_of(ISSUED, EXPIRES) == timedelta(days=100)


def test_a_user_of_the_tree_gets_the_first_certificate_once_there_are_rights() -> None:
    fresh = grant(issued=None, expires=None)
    assert need(ISSUED, fresh) is Need.FIRST
    assert need(ISSUED, grant(issued=None, expires=None, is_ready=False)) is Need.NOTHING
    assert need(ISSUED, fresh, in_tree=False, is_managed=False) is Need.NOTHING


def test_nobody_who_was_removed_or_is_not_managed_gets_one() -> None:
    late = EXPIRES + timedelta(days=1)
    assert need(late) is Need.NOTHING
    assert need(late, grant(owner=grants.LEAVING)) is Need.NOTHING
    assert need(late, grant(), is_managed=False) is Need.NOTHING


def test_the_newest_certificate_of_several_namespaces_counts() -> None:
    newer = grant(issued=EXPIRES, expires=EXPIRES + timedelta(days=100))
    assert need(EXPIRES, grant(), newer) is Need.NOTHING
