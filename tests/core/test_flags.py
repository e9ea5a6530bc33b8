"""Go's grammar of flags: what may be written, what is refused, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from bedplate.core import flags
from bedplate.core.flags import Duration, Repeated, flag


@dataclass(frozen=True)
class Sample:
    """One flag of each kind."""

    is_on: bool = flag(False, "A boolean.")
    count: int = flag(3, "A number.", short="c")
    rate: float = flag(2.5, "A rate.")
    wait: Duration = flag(90.0, "A duration.")  # noqa: RUF009
    name: str = flag("x", "A text.")
    names: tuple[str, ...] = flag(("a",), "A list.")
    pairs: Repeated = flag((), "Texts with commas in them.")  # noqa: RUF009
    version: str = flag("false", "May stand alone.", is_bare=True)


KNOWN = flags.flags_of(Sample)


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["--is-on"], {"is-on": True}),
        (["--is-on=false"], {"is-on": False}),
        (["--is_on=T"], {"is-on": True}),
        (["--count", "5"], {"count": 5}),
        (["--count=-5"], {"count": -5}),
        (["--count=0x10"], {"count": 16}),
        (["-c=7"], {"count": 7}),
        (["-c", "7"], {"count": 7}),
        (["-c7"], {"count": 7}),
        (["--rate=0.5"], {"rate": 0.5}),
        (["--wait", "1h30m"], {"wait": 5400.0}),
        (["--wait=250ms"], {"wait": 0.25}),
        (["--name=a=b"], {"name": "a=b"}),
        (["--name="], {"name": ""}),
        (["--name", "--count"], {"name": "--count"}),
        (["--names=a,b", "--names", "c"], {"names": ("a", "b", "c")}),
        (["--names="], {"names": ()}),
        (["--pairs=a,b:c", "--pairs", "d,e"], {"pairs": ("a,b:c", "d,e")}),
        (["--pairs=[]"], {"pairs": ()}),
        (["--version"], {"version": "true"}),
        (["--version=raw"], {"version": "raw"}),
        (["--count=1", "--count=2"], {"count": 2}),
    ],
)
def test_a_flag_is_read_as_go_reads_it(words: list[str], values: dict[str, Any]) -> None:
    parsed = flags.parse(KNOWN, words)
    assert (parsed.values, parsed.problems, parsed.arguments) == (values, [], [])


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--nope"], "unknown flag: --nope"),
        (["--cuont=1"], "unknown flag: --cuont (did you mean --count?)"),
        (["-z"], "unknown shorthand flag: -z"),
        (["-name=x"], "unknown shorthand flag: -name (did you mean --name?)"),
        (["--count"], "--count needs a value"),
        (["--count=x"], "--count: 'x' must be an integer"),
        (["--rate=x"], "--rate: 'x' must be a number"),
        (["--is-on=yes"], "--is-on: 'yes' must be true or false"),
        (["--wait=5"], "--wait: '5' is not a duration (for example 5m, 1h30m or 250ms)"),
    ],
)
def test_a_mistake_is_named(words: list[str], problem: str) -> None:
    assert flags.parse(KNOWN, words).problems == [problem]


def test_every_mistake_is_found_in_one_reading() -> None:
    parsed = flags.parse(KNOWN, ["--nope=1", "--count=x", "word", "--is-on=2", "--", "--count"])
    assert len(parsed.problems) == 3
    assert parsed.arguments == ["word", "--count"]


def test_a_boolean_takes_no_separate_word() -> None:
    assert flags.parse(KNOWN, ["--is-on", "false"]).arguments == ["false"]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("is-on", True, "true"),
        ("wait", 90.0, "1m30s"),
        ("names", ("a", "b"), "a,b"),
        ("rate", 50.0, "50"),
        ("count", 3, "3"),
    ],
)
def test_a_value_is_shown_as_it_would_be_written(name: str, value: Any, text: str) -> None:
    one = next(each for each in KNOWN if each.name == name)
    assert flags.render(one, value) == text
    assert flags.parse(KNOWN, [f"--{name}={text}"]).values[name] == value
