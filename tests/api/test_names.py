"""Syntax rules of names and labels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.api import names

LABEL = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
VALUE = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", fullmatch=True)


@given(LABEL)
def test_every_dns_label_is_also_a_subdomain_and_a_label_value(text: str) -> None:
    assert names.dns_label_problems(text) == []
    assert names.dns_subdomain_problems(text) == []
    assert names.label_value_problems(text) == []


@given(st.lists(LABEL, min_size=1, max_size=3), VALUE)
def test_a_prefix_and_a_name_make_a_label_key(parts: list[str], name: str) -> None:
    assert names.label_key_problems(f"{'.'.join(parts)}/{name}") == []
    assert names.label_key_problems(name) == []


@pytest.mark.parametrize("text", ["", "-a", "a-", "A", "a.b", "a_b", "a" * 64, "ä", "a\n", "a b"])
def test_what_is_no_dns_label_is_said_to_be_none(text: str) -> None:
    assert names.dns_label_problems(text)


@pytest.mark.parametrize("text", ["", ".", "a..b", "a.", ".a", "a.-b", "A.b", "a" * 254, "a\n"])
def test_what_is_no_subdomain_is_said_to_be_none(text: str) -> None:
    assert names.dns_subdomain_problems(text)


@pytest.mark.parametrize("key", ["", "/a", "a/", "a/b/c", "A.io/a", "a" * 64, "a.io/" + "b" * 64, "-a", "a b", "a\n"])
def test_what_is_no_label_key_is_said_to_be_none(key: str) -> None:
    assert names.label_key_problems(key)


@pytest.mark.parametrize("value", ["-", "a-", "a/b", "a" * 64, "a b", "a\n"])
def test_what_is_no_label_value_is_said_to_be_none(value: str) -> None:
    assert names.label_value_problems(value)


def test_an_empty_label_value_is_valid() -> None:
    assert names.label_value_problems("") == []
