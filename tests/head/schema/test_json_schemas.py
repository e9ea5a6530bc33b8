"""Each kind's JSON schema says exactly which JSON the kind takes, for every field there is."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.api.headapi import NAME
from bedplate.core import errors
from bedplate.head.entities import SCHEMA
from bedplate.head.schema import codec
from bedplate.head.schema.entity import Field, Key
from bedplate.head.schema.kinds import Kind, Unfit

FIELDS = {(name, field.attribute): field for name, entity in SCHEMA.types.items() for field in entity.fields}
KEYS = [row.kind for entity in SCHEMA.types.values() for row in entity.rows if isinstance(row, Key)]
KINDS: list[Kind] = list(dict.fromkeys([*(field.kind for field in FIELDS.values()), *KEYS]))
CONTROLS = [*map(chr, range(0x20)), "\x7f", "\x85", "\xa0", "\u2028", "\ufeff"]
TEXTS = st.one_of(
    st.text(max_size=12),
    st.text("0123456789abcdefgzAF.:/$-_ =\n\x01\x7f\x85\ufeff ²", max_size=14),
    st.sampled_from(
        [
            "",
            "0.0.0.0/0",
            "10.0.0.0/8",
            "10.1.0.0/8",
            "::1",
            "1.2.3.4",
            "64K",
            "/x",
            "²",
            "9" * 5000,
            "80-90",
            "90-80",
            "0644",
        ]
    ),
)
JSON = st.one_of(
    TEXTS,
    st.none(),
    st.booleans(),
    st.integers(-3, 70000),
    st.sampled_from([1.0, 1.5, -1.0, 1e10]),
    st.lists(TEXTS, max_size=3),
    st.lists(st.one_of(TEXTS, st.integers()), max_size=2),
    st.dictionaries(TEXTS, TEXTS, max_size=1),
)


def takes(kind: Kind, data: Any) -> bool:
    """Whether the kind takes it, or says that its form is right and it still cannot be."""
    try:
        kind.decode(data)
    except Unfit:
        return True
    except ValueError:
        return False
    return True


def shaped(schema: dict[str, Any]) -> list[st.SearchStrategy[Any]]:
    """Values made after a schema, also after that of a list's items: what is made blindly seldom matches a pattern."""
    if "items" in schema:
        return [st.lists(items, max_size=3) for items in shaped(schema["items"])]
    matching = [st.from_regex(schema["pattern"])] if "pattern" in schema else []
    return [*matching, *([st.sampled_from(schema["enum"])] if "enum" in schema else [])]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_kind_takes_what_its_schema_says(kind: Kind) -> None:
    schema = kind.json_schema()
    validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)

    @settings(max_examples=60, deadline=None)
    @given(st.one_of(JSON, *shaped(schema)))
    def check(data: Any) -> None:
        assert validator.is_valid(data) == takes(kind, data), data

    check()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_kind_and_its_schema_agree_about_control_characters(kind: Kind) -> None:
    """Each of them before, in and behind texts of the right form: a pattern alone may let one through."""
    schema = kind.json_schema()
    validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)

    @settings(max_examples=10, deadline=None)
    @given(st.one_of(TEXTS, *shaped(schema.get("items", schema))), st.integers(0, 14))
    def check(text: Any, place: int) -> None:
        for letter in CONTROLS:
            for spoilt in (letter + str(text), str(text)[:place] + letter + str(text)[place:], str(text) + letter):
                data = [spoilt] if kind.multiple else spoilt
                assert validator.is_valid(data) == takes(kind, data), data

    check()


@pytest.mark.parametrize("place", FIELDS, ids=".".join)
def test_a_default_is_one_of_its_kind(place: tuple[str, str]) -> None:
    field: Field = FIELDS[place]
    if field.default not in (None, "", ()):
        assert takes(field.kind, codec.encode_value(field.default, codec.plain))


@given(st.one_of(st.text(max_size=5), st.from_regex(NAME, fullmatch=True)))
def test_what_may_be_a_name_is_said_by_its_pattern(name: str) -> None:
    validator = jsonschema_rs.Draft202012Validator({"type": "string", "pattern": f"^{NAME}$"})
    try:
        codec.decode(SCHEMA, SCHEMA.modes["category"], name, {})
        taken = True
    except errors.Invalid:
        taken = False
    assert taken == validator.is_valid(name)


def test_what_has_the_right_form_and_cannot_be_is_told_apart() -> None:
    def role(port: str) -> dict[str, Any]:
        ports = [{"values": {"port": port}}]
        return {"children": {"roles": {"firewall": {"children": {"open_ports": ports}}}}}

    mode = SCHEMA.modes["category"]
    with pytest.raises(codec.UnfitObject):
        codec.decode(SCHEMA, mode, "x", role("90-80"))
    with pytest.raises(errors.Invalid) as refused:
        codec.decode(SCHEMA, mode, "x", role("ninety"))
    assert not isinstance(refused.value, codec.UnfitObject)
    for wrong in ("", {}, 3):
        with pytest.raises(errors.Invalid):
            codec.decode(SCHEMA, mode, "x", {"type": wrong})
    with pytest.raises(errors.Invalid):
        codec.decode(SCHEMA, mode, "", {})
