"""Notices as lines: what the manual prints, and what other people's commits look like."""

from __future__ import annotations

import time

import pytest

from bedplate.api.headapi import Notice, Revision
from bedplate.head.changes import Change
from bedplate.ui.cmsh import wording


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def _revision(*places: tuple[str, str], message: str = "") -> Revision:
    made = [Change((*place, "notes"), None, "x") for place in places]
    return Revision(number=7, time="2024-10-31T15:58:56Z", author="bob", nonce="n", changes=made, message=message)


def test_a_notice_is_printed_as_the_manual_prints_it() -> None:
    notice = Notice(
        id=1,
        time="2024-10-31T15:58:56.123Z",
        severity="notice",
        host="basecm10",
        text="Service shorewall was restarted",
    )
    assert wording.line(notice) == "Thu Oct 31 15:58:56 2024 [notice] basecm10: Service shorewall was restarted"


def test_a_day_of_one_digit_is_padded_with_a_blank() -> None:
    notice = Notice(id=1, time="2024-11-02T01:02:03Z", severity="warning", host="node001", text="late")
    assert wording.line(notice) == "Sat Nov  2 01:02:03 2024 [warning] node001: late"


def test_times_are_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "XYZ-2")
    time.tzset()
    assert wording.line(Notice(id=1, time="2024-10-31T23:00:00Z", severity="notice", host="a", text="b")).startswith(
        "Fri Nov  1 01:00:00 2024"
    )


def test_a_time_that_cannot_be_read_is_shown_as_it_came() -> None:
    assert (
        wording.line(Notice(id=1, time="yesterday", severity="notice", host="a", text="b")) == "yesterday [notice] a: b"
    )


def test_another_ones_commit_names_who_what_and_why() -> None:
    shown = wording.shown(_revision(("category", "default"), message="more disks"), "basecm10", lambda number: False)
    assert shown is not None
    assert shown.host == "basecm10"
    assert shown.text == "bob committed revision 7: category[default] (more disks)"


def test_many_objects_of_a_commit_are_counted() -> None:
    revision = _revision(*(("device", f"node00{number}") for number in range(5)))
    text = wording.of_revision(revision, "basecm10").text
    assert text == "bob committed revision 7: device[node000], device[node001], device[node002] and 2 more"


def test_ones_own_commit_is_not_shown() -> None:
    assert wording.shown(_revision(("category", "default")), "basecm10", lambda number: number == 7) is None


def _said(host: str, text: str, second: int = 0, severity: str = "notice") -> Notice:
    return Notice(id=1, time=f"2024-10-31T15:58:{second:02d}Z", severity=severity, host=host, text=text)


def test_what_many_hosts_say_alike_is_said_once() -> None:
    news = [_said(f"node{number:03d}", "Service nginx was reloaded", number) for number in (1, 2, 3, 5)]
    assert wording.gathered(news) == [_said("node001..node003,node005", "Service nginx was reloaded", 5)]


def test_what_two_hosts_say_is_said_twice_and_in_order() -> None:
    news = [_said("node001", "a", 1), _said("node009", "b", 2), _said("node002", "a", 3)]
    assert wording.gathered(news) == news


def test_hosts_that_say_it_differently_are_not_gathered() -> None:
    news = [_said("node001", "a"), _said("node002", "a"), _said("node003", "a", severity="error")]
    assert wording.gathered(news) == news


def test_one_host_that_repeats_itself_is_not_gathered() -> None:
    news = [_said("node001", "a", second) for second in range(4)]
    assert wording.gathered(news) == news
