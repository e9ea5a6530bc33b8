"""Lines as people and machines get them."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from bedplate.core import loglines

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def text(event: str = "node.ready", level: str = "info", **values: object) -> str:
    return loglines.as_text(level, event, {"logger": "cloud", **values}, NOW)


def test_a_line_for_people_has_time_level_event_logger_and_sorted_values() -> None:
    assert text(zone="a", node="n 1", n=3, nothing="") == (
        "2026-01-02T03:04:05.678901Z [info     ] node.ready                   [cloud] n=3 node='n 1' nothing= zone=a"
    )
    assert text("a.name.that.is.longer.than.its.column", "warning") == (
        "2026-01-02T03:04:05.678901Z [warning  ] a.name.that.is.longer.than.its.column [cloud]"
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        ("ümlaut", "ümlaut"),
        ("a=b", "'a=b'"),
        ("it's", '"it\'s"'),
        ("two\nlines", "'two\\nlines'"),
        ("\x1b[2Jcleared", "'\\x1b[2Jcleared'"),
        ("\u202eturned", "'\\u202eturned'"),
        (["x"], "['x']"),
        (None, "None"),
    ],
)
def test_values_are_one_word_each_and_nothing_that_a_terminal_obeys(value: object, shown: str) -> None:
    assert text(value=value).endswith(f"[cloud] value={shown}")


def test_colours_change_nothing_but_colours() -> None:
    colored = loglines.as_text("error", "x", {"logger": "cloud", "node": "n1"}, NOW, has_colors=True)
    assert colored.startswith("\x1b[2m2026") and "\x1b[31m\x1b[1merror" in colored
    assert re.sub(r"\x1b\[\d+m", "", colored) == text("x", "error", node="n1")


def test_a_line_for_machines_has_the_values_in_their_order_and_texts_of_what_is_not_json() -> None:
    line = loglines.as_json("info", "node.ready", {"logger": "cloud", "zone": "a", "at": NOW, "many": {1}}, NOW)
    assert list(json.loads(line)) == ["logger", "zone", "at", "many", "event", "level", "timestamp"]
    assert json.loads(line)["at"] == "2026-01-02 03:04:05.678901+00:00" and json.loads(line)["many"] == "{1}"
    assert line.isascii() and "\n" not in line


def failure(kind: type[BaseException], *args: Any, cause: BaseException | None = None) -> BaseException:
    try:
        raise kind(*args) from cause
    except BaseException as err:
        return err


def stacks(error: BaseException) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(loglines.as_json("error", "bug", {}, NOW, error))["exception"]
    return found


def test_a_traceback_for_machines_lists_exception_cause_and_where() -> None:
    error = failure(ValueError, "bad", cause=failure(KeyError, "k"))
    error.add_note("while reading")
    first, second = stacks(error)
    assert (first["exc_type"], first["exc_value"], first["exc_notes"], first["is_cause"]) == (
        "ValueError",
        "bad",
        ["while reading"],
        False,
    )
    assert (second["exc_type"], second["exc_value"], second["is_cause"]) == ("KeyError", "'k'", True)
    assert first["frames"][0]["name"] == "failure" and set(first["frames"][0]) == {"filename", "lineno", "name"}


def test_groups_syntax_errors_and_exceptions_that_cannot_be_written_are_shown_too() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    (group,) = stacks(failure(ExceptionGroup, "two", [ValueError("a"), Silent()]))
    assert group["is_group"] and [member[0]["exc_type"] for member in group["exceptions"]] == ["ValueError", "Silent"]
    assert group["exceptions"][1][0]["exc_value"] == "<a Silent that cannot be written>"
    (syntax,) = stacks(SyntaxError("no", ("x.py", 3, 1, "def")))
    assert (syntax["syntax_error"]["lineno"], syntax["syntax_error"]["line"]) == (3, "def")


def test_exceptions_that_lead_to_each_other_and_deep_ones_end() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__context__, other.__context__ = other, one
    assert [stack["exc_value"] for stack in stacks(one)] == ["one", "other"]

    def deep(levels: int) -> None:
        if levels:
            deep(levels - 1)
        raise ValueError

    try:
        deep(200)
    except ValueError as err:
        (stack,) = stacks(err)
    assert len(stack["frames"]) == loglines.MOST_FRAMES and stack["frames"][0]["name"].startswith("test_")
