"""Tables, JSON, times and help pages."""

from __future__ import annotations

import json

import pytest

from bedplate.ui.cmsh import layout
from bedplate.ui.cmsh.commands import COMMANDS
from bedplate.ui.cmsh.language import Usage
from bedplate.ui.cmsh.layout import Table

LONG = "Kubernetes 'default' Ingress HTTPS"


def test_columns_are_as_wide_as_their_longest_cell_with_a_ruler_each() -> None:
    text = layout.render(Table(["Name (key)", "Value"], [["a", "long value"], ["longer name", ""]]))
    assert text.splitlines() == [
        "Name (key)  Value",
        "----------- ----------",
        "a           long value",
        "longer name",
    ]


def test_a_long_description_ends_in_a_plus_unless_everything_is_asked_for() -> None:
    table = Table(["Index", "Description"], [["0", LONG]])
    cut = layout.render(table).splitlines()[2].split(maxsplit=1)[1]
    assert cut == "Kubernetes 'default' In+"
    assert len(cut) == 24
    assert LONG in layout.render(table, verbose=True)
    assert LONG in layout.render(table, delimiter=",")


def test_keys_are_never_cut_and_other_cells_only_when_very_long() -> None:
    text = layout.render(Table(["Name (key)", "Roles"], [["n" * 90, "r" * 90]]))
    assert "n" * 90 in text
    assert "r" * 59 + "+" in text
    assert "r" * 60 not in text


def test_a_cell_of_several_lines_stays_on_one() -> None:
    assert layout.render(Table(["Name (key)"], [["a\nb"]])).splitlines()[2] == "a\\nb"


def test_a_delimiter_takes_the_place_of_blanks_and_rulers() -> None:
    assert layout.render(Table(["A (key)", "B"], [["1", "x y"]]), delimiter=";") == "A (key);B\n1;x y\n"


def test_json_has_the_headers_without_the_key_mark() -> None:
    table = Table(["Name (key)", "Time"], [["a", "2026-01-02T03:04:05Z"]], times=frozenset({1}))
    plain, indented = layout.render(table, delimiter="{}"), layout.render(table, delimiter="{2}")
    assert json.loads(plain) == json.loads(indented) == [{"Name": "a", "Time": "2026-01-02T03:04:05Z"}]
    assert len(plain.splitlines()) == 1
    assert '\n    "Name"' in indented
    with pytest.raises(Usage):
        layout.render(table, delimiter="{x}")


def test_times_are_shown_as_the_machine_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert layout.local_time("2021-11-29T02:52:44Z") == "2021/11/29 11:52:44"
        assert layout.local_time("never") == "never"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_explains_itself(name: str) -> None:
    page = layout.help_page(COMMANDS[name])
    headings = [line for line in page.splitlines() if line and not line.startswith(" ")]
    assert headings in (["Name:", "Usage:", "Options:", "Examples:"], ["Name:", "Usage:", "Examples:"])
    assert page.splitlines()[1] == f"        {name} - {COMMANDS[name].about}"
    assert all(usage.split()[0] == name for usage in COMMANDS[name].usage)
