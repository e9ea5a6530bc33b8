"""What a TAB does: pure decisions of the completer."""

from __future__ import annotations

import pytest

from bedplate.ui.cmsh.completion import Step, columns, step
from bedplate.ui.cmsh.shell import Completion


def _fits(*texts: str, length: int = 0) -> list[Completion]:
    return [Completion(text, length) for text in texts]


def test_tab_puts_in_the_only_word_that_fits_and_a_blank() -> None:
    assert step("categ", _fits("category", length=5)) == Step("category ", 5)


def test_tab_goes_on_inside_a_folder() -> None:
    assert step("set config /et", _fits("/etc/", length=3)) == Step("/etc/", 3)


def test_tab_puts_in_what_all_words_begin_with() -> None:
    assert step("use n", _fits("node001", "node002", length=1)) == Step("node00", 1)


def test_tab_shows_the_ways_when_nothing_more_is_common() -> None:
    fits = _fits("overlay2", "aufs", "devicemapper")
    assert step("add ", fits) == Step(choices=("aufs", "devicemapper", "overlay2"))


def test_tab_corrects_the_case_of_what_was_typed() -> None:
    assert step("use dock", _fits("Docker::Host", length=4)) == Step("Docker::Host ", 4)


def test_tab_does_nothing_where_nothing_fits() -> None:
    assert step("frobnicate", []) == Step()


def test_words_of_different_lengths_are_only_shown() -> None:
    fits = [Completion("node001", 3), Completion("nodes", 1)]
    assert step("use nod", fits).choices == ("node001", "nodes")


def test_columns_are_as_the_manual_shows_them() -> None:
    assert columns(["aufs", "devicemapper", "overlay2"], 80) == "aufs          devicemapper  overlay2"


def test_columns_are_read_downwards() -> None:
    assert columns(["a", "b", "c", "d", "e"], 6) == "a  d\nb  e\nc"


@pytest.mark.parametrize("width", [1, 7, 20, 80])
def test_columns_show_every_word_once(width: int) -> None:
    words = [f"node{number:03d}" for number in range(50)]
    assert sorted(columns(words, width).split()) == words


def test_columns_say_how_many_words_they_leave_out() -> None:
    shown = columns([f"node{number:05d}" for number in range(1000)], 80, most_rows=3)
    assert len(shown.splitlines()) == 4
    left_out = 1000 - len(" ".join(shown.splitlines()[:3]).split())
    assert shown.splitlines()[-1].startswith(f"... and {left_out} more")
