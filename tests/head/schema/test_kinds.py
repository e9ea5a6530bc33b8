"""Kinds of values: read, checked, shown, carried in JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.head.objects import Secret, Value
from bedplate.head.schema import codec, kinds, ranges

CASES: list[tuple[kinds.Kind, str, Value, str]] = [
    (kinds.Text(), "some text", "some text", "some text"),
    (kinds.Bool(), "YES", True, "yes"),
    (kinds.Bool(), "off", False, "no"),
    (kinds.Integer(-1), "-1", -1, "-1"),
    (kinds.Port(), "65535", 65535, "65535"),
    (kinds.Choice(("ACCEPT", "DROP")), "accept", "ACCEPT", "ACCEPT"),
    (kinds.Address(), "fe80::0001", "fe80::1", "fe80::1"),
    (kinds.Cidr(), "10.141.0.0/16", "10.141.0.0/16", "10.141.0.0/16"),
    (kinds.Size(), "100GB", "100GB", "100GB"),
    (kinds.Path(), "$spool/tmp", "$spool/tmp", "$spool/tmp"),
    (kinds.Duration(), "90s", 90.0, "1m30s"),
    (kinds.Blob(), "a\nb", "a\nb", "<3B>"),
    (ranges.Reference("network"), "internalnet", "internalnet", "internalnet"),
    (ranges.ListOf(kinds.Text()), "b, a,b", ("b", "a"), "b,a"),
    (
        ranges.NodeList(),
        "node00[4-6],node010",
        ("node004", "node005", "node006", "node010"),
        "node004..node006,node010",
    ),
]


@pytest.mark.parametrize(("kind", "text", "value", "shown"), CASES)
def test_a_value_is_read_shown_and_carried(kind: kinds.Kind, text: str, value: Value, shown: str) -> None:
    assert kind.parse(text) == value
    assert kind.show(value) == shown
    assert kind.decode(json.loads(json.dumps(codec.encode_value(value, codec.plain)))) == value
    assert kind.json_schema()["type"] in ("string", "boolean", "integer", "number", "array")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (kinds.Text("[a-z]+", "lower case"), "A"),
        (kinds.Text(), "a\x00b"),
        (kinds.Bool(), ""),
        (kinds.Integer(), "1.5"),
        (kinds.Integer(0, 5), "6"),
        (kinds.Port(), "0"),
        (kinds.Port(), "70000"),
        (kinds.Choice(("a",)), "b"),
        (kinds.Address(), "10.1.1"),
        (kinds.Cidr(), "10.141.0.1/16"),
        (kinds.Cidr(), "10.141.0.0"),
        (kinds.Size(), "much"),
        (kinds.Path(), "relative/path"),
        (kinds.Duration(), "soon"),
        (kinds.Duration(), "-5m"),
        (ranges.ListOf(kinds.Address()), "10.0.0.1,x"),
        (ranges.NodeList(), "node[3-1]"),
        (ranges.NodeList(), "node[a-b]"),
        (ranges.NodeList(), "-x"),
    ],
)
def test_what_is_wrong_is_refused(kind: kinds.Kind, text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        kind.parse(text)


@pytest.mark.parametrize("kind", [case[0] for case in CASES])
def test_foreign_json_is_refused_and_never_taken_for_a_value(kind: kinds.Kind) -> None:
    with pytest.raises(ValueError, match=r"."):
        kind.decode({"an": "object"})


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0B"),
        (914, "914B"),
        (1023, "1023B"),
        (1024, "1KiB"),
        (1034, "1.01KiB"),
        (1219, "1.19KiB"),
        (249900, "244KiB"),
    ],
)
def test_item_025_sizes_are_shown_as_documented(count: int, shown: str) -> None:
    assert kinds.size_in_words(count) == shown


def test_item_027_a_secret_shows_only_whether_it_is_set() -> None:
    kind = kinds.SecretText()
    assert kind.show("") == "< not set >"
    value = kind.parse("hush")
    assert kind.show(value) == "*****"
    assert "hush" not in f"{value} {value!r} {kind.lines(value)}"
    assert value == Secret("hush")
    assert value != Secret("other")


def test_item_013_a_list_is_joined_in_tables_and_printed_by_line() -> None:
    kind = ranges.ListOf(kinds.Text())
    assert kind.show(("a", "b")) == "a,b"
    assert kind.lines(("a", "b")) == ["a", "b"]


@given(st.one_of(st.text(), st.integers(), st.booleans(), st.lists(st.text()), st.none(), st.floats()))
def test_no_kind_fails_otherwise_than_by_saying_so(data: object) -> None:
    for kind, *_ in CASES:
        try:
            value = kind.decode(data)
        except ValueError:
            continue
        kind.show(value)
        assert kind.decode(json.loads(json.dumps(codec.encode_value(value, codec.plain)))) == value
