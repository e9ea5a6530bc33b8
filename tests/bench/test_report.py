"""How figures are compared: ratios point the same way for rates and times, goals are judged, absent peers are shown."""

from __future__ import annotations

import pytest

from bedplate.core import errors
from bench import report


def test_ratio_is_above_one_whenever_ours_is_better() -> None:
    assert report.Row("rate", ours=300, peer=100, unit="per s").ratio == 3
    assert report.Row("time", ours=2, peer=6, unit="s", is_less_better=True).ratio == 3


def test_goal_is_met_by_the_ratio_and_not_by_the_figure() -> None:
    assert report.Row("rate", ours=300, peer=100, unit="per s", goal=3).is_met is True
    assert report.Row("rate", ours=299, peer=100, unit="per s", goal=3).is_met is False
    assert report.Row("memory", ours=80, peer=100, unit="MB", goal=1 / 0.7, is_less_better=True).is_met is False
    assert report.Row("memory", ours=70, peer=100, unit="MB", goal=1 / 0.7, is_less_better=True).is_met is True


def test_limit_is_judged_without_a_peer() -> None:
    assert report.Row("ready", ours=0.9, peer=None, unit="s", limit=1.0, is_less_better=True).is_met is True
    assert report.Row("ready", ours=1.1, peer=0.1, unit="s", limit=1.0, is_less_better=True).is_met is False


def test_row_without_goal_has_no_verdict() -> None:
    row = report.Row("rate", ours=300, peer=100, unit="per s")
    assert row.is_met is None
    assert row.verdict() == ""


def test_table_shows_every_row_with_unit_ratio_and_verdict() -> None:
    rows = [
        report.Row("gets", ours=9000, peer=3000, unit="per s", goal=3),
        report.Row("lists", ours=50, peer=100, unit="per s", goal=1.5),
        report.Row("lab", ours=40, peer=None, unit="s"),
    ]
    topic = report.Topic("api server", "what is measured", "peer", rows, ["a note"])
    text = "\n".join(topic.lines())
    assert "api server: what is measured" in text
    gets, lists, lab = (next(line for line in topic.lines() if line.startswith(row.name)) for row in rows)
    assert gets.split() == ["gets", "9,000", "3,000", "3.00x", "at", "least", "3x:", "met", "[per", "s]"]
    assert "0.50x" in lists and "MISSED" in lists
    assert lab.split() == ["lab", "40.00", "-", "-", "[s]"]
    assert "a note" in text


def test_document_keeps_the_figures_unrounded() -> None:
    topic = report.Topic("store", "commits", "etcd", [report.Row("one", ours=1 / 3, peer=2 / 3, unit="per s")])
    assert topic.document()["rows"][0] == {
        "name": "one",
        "unit": "per s",
        "bedplate": 1 / 3,
        "etcd": 2 / 3,
        "ratio": 0.5,
        "goal": "",
    }


def test_page_keeps_its_text_around_the_figures() -> None:
    page = "# Title\n\n<!-- figures -->\nold\n<!-- end of figures -->\n\nmore\n"
    filled = report.filled(page, ["one", "two"])
    assert filled == "# Title\n\n<!-- figures -->\n```text\none\ntwo\n```\n<!-- end of figures -->\n\nmore\n"
    assert report.filled(filled, ["one", "two"]) == filled


def test_page_without_a_place_for_figures_is_refused() -> None:
    with pytest.raises(errors.Invalid, match="no place for figures"):
        report.filled("# Title\n", ["one"])
