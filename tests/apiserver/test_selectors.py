"""Label and field selectors as functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.apiserver import selectors


def matches(text: str, labels: dict[str, str]) -> bool:
    predicate = selectors.label_predicate(selectors.parse_labels(text))
    return predicate is None or predicate(labels)


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        ("", {}, True),
        ("a=1", {"a": "1"}, True),
        ("a==1", {"a": "2"}, False),
        ("a!=1", {}, True),
        ("a in (1, 2)", {"a": "2"}, True),
        ("a in (1,)", {"a": ""}, True),
        ("a notin (1)", {}, True),
        ("a,!b", {"a": ""}, True),
        ("a,!b", {"a": "", "b": ""}, False),
        ("n>3", {"n": "4"}, True),
        ("n>3", {"n": "x"}, False),
        ("n<3", {"n": "2"}, True),
        ("example.com/a=1,b", {"example.com/a": "1", "b": "x"}, True),
    ],
)
def test_label_terms(text: str, labels: dict[str, str], expected: bool) -> None:
    assert matches(text, labels) is expected


@pytest.mark.parametrize("text", ["a in", "a in b", "=x", "a=b c", "a=b=c", "a,", "n>x", "-a=1", "a=-", "/x=1"])
def test_broken_label_selectors_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        selectors.parse_labels(text)


@given(st.text(max_size=30))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        selectors.parse_labels(text)
    except ValueError:
        pass


VALUES = st.sampled_from(["", "1", "2", "3"])


@given(st.dictionaries(st.sampled_from("ab"), VALUES), st.sampled_from("ab"), st.sets(VALUES, min_size=1))
def test_in_and_notin_are_opposites(labels: dict[str, str], key: str, values: set[str]) -> None:
    wanted = ",".join(sorted(values))
    assert matches(f"{key} in ({wanted})", labels) is not matches(f"{key} notin ({wanted})", labels)


def test_label_selector_objects() -> None:
    selector = {
        "matchLabels": {"a": "1"},
        "matchExpressions": [
            {"key": "b", "operator": "In", "values": ["x", "y"]},
            {"key": "c", "operator": "DoesNotExist"},
        ],
    }
    predicate = selectors.of_label_selector(selector)
    assert predicate({"a": "1", "b": "y"})
    assert not predicate({"a": "1", "b": "y", "c": ""})
    assert selectors.of_label_selector({})({})
    with pytest.raises(ValueError):
        selectors.of_label_selector({"matchExpressions": [{"key": "a", "operator": "Near"}]})


def test_field_terms_compare_texts() -> None:
    terms = selectors.parse_fields("spec.unschedulable=true,metadata.name!=b", ["spec.unschedulable"])
    predicate = selectors.field_predicate(terms)
    assert predicate is not None
    assert predicate({"metadata": {"name": "a"}, "spec": {"unschedulable": True}})
    assert not predicate({"metadata": {"name": "b"}, "spec": {"unschedulable": True}})
    assert not predicate({"metadata": {"name": "a"}})


def test_field_values_may_hold_escaped_commas() -> None:
    assert selectors.parse_fields(r"metadata.name=a\,b", []) == (selectors.FieldTerm("metadata.name", "a,b"),)


def test_unknown_fields_are_refused_with_what_is_known() -> None:
    with pytest.raises(ValueError, match=r'"data.k" is not a known field selector: only "metadata.name"'):
        selectors.parse_fields("data.k=1", [])
