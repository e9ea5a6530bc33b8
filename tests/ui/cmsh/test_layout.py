"""Tables, JSON, times and help pages."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from bedplate.head.entities import SCHEMA
from bedplate.head.objects import Obj
from bedplate.head.schema.tables import Block, list_table
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


@pytest.mark.parametrize("place", [0, 700, 1199])
def test_thousands_of_rows_are_as_wide_as_the_longest_cell_of_all(place: int) -> None:
    rows = [[f"node{number:04}", number, number % 2 == 0, "x"] for number in range(1200)]
    rows[place] = ["a\nname of many letters", 7, None, "n" * 90]
    lines = layout.render(Table(["Name (key)", "Number", "Even", "Notes"], rows)).splitlines()
    widths = [len("a\\nname of many letters"), len("Number"), len("Even"), 60]
    assert lines[1] == " ".join("-" * width for width in widths)
    assert len(lines) == 1202
    assert lines[2 + place] == f"a\\nname of many letters {7:<6} {'':<4} {'n' * 59}+"
    numbers = [number for number in range(1200) if number != place]
    assert all(
        lines[2 + number] == f"node{number:04}".ljust(widths[0]) + f" {number:<6} {'no' if number % 2 else 'yes':<4} x"
        for number in numbers
    )
    assert layout.render(Table(["A", "B", "C", "D"], rows), delimiter=";").count("\n") == 1202
    assert len(json.loads(layout.render(Table(["A", "B", "C", "D"], rows), delimiter="{}"))) == 1200


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


def test_a_block_that_was_laid_before_is_laid_again_only_in_other_widths(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    lines = layout._lines
    monkeypatch.setattr(layout, "_lines", lambda widths, cells: made.append(len(cells[0])) or lines(widths, cells))  # type: ignore[func-returns-value]
    names = [f"node{number:04}" for number in range(1200)]
    devices = {name: Obj("PhysicalNode", name, {"ip": "10.0.0.2"}) for name in names}

    def listed(before: Sequence[Block], changed: dict[str, Obj], **how: bool) -> tuple[list[Block], list[int]]:
        headers, blocks = list_table(SCHEMA.mode("device"), changed, before=before)
        made.clear()
        text = layout.render(Table(headers, blocks=blocks), **how)
        done = [count for count in made if count > 1]
        _, fresh = list_table(SCHEMA.mode("device"), changed)
        assert text == layout.render(Table(headers, blocks=fresh), **how)
        return blocks, done

    blocks, done = listed((), devices)
    assert sorted(done) == [200, 500, 500]
    blocks, done = listed(blocks, devices)
    assert done == []
    changed = devices | {"node0007": Obj("PhysicalNode", "node0007", {"category": "other", "ip": "10.0.0.1"})}
    blocks, done = listed(blocks, changed)
    assert done == [500]
    wide = changed | {"node1100": Obj("PhysicalNode", "node1100", {"category": "c" * 70, "ip": "10.0.0.1"})}
    blocks, done = listed(blocks, wide)
    assert sorted(done) == [200, 500, 500], "a longer cell makes the column wider for all"
    last = wide | {"node1101": Obj("PhysicalNode", "node1101", {"ip": "10.0.0.3", "network": "n" * 20})}
    assert listed(blocks, last)[1] == [200], "nothing stands behind the last column"
    assert len(listed(blocks, wide, verbose=True)[1]) == 3
    assert listed(blocks, wide)[1] == [] == listed(blocks, wide, verbose=True)[1]
    listed(blocks, changed)
