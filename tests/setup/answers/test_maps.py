"""Answers that are mappings: operators in every spelling, and options as text and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.setup.places import MINIMAL

from bedplate.core import errors
from bedplate.setup.answers import document, jsonschema
from bedplate.setup.answers.maps import Operators, Options
from bedplate.setup.operators import OPERATORS, SPELLINGS

_keys = st.from_regex(r"[a-z]{1,3}(\[[0-9]\])?(\.[a-z]{1,3})?", fullmatch=True)
_scalars = st.one_of(st.booleans(), st.integers(-(10**9), 10**9), st.text(max_size=12))


@given(st.dictionaries(_keys, _scalars, max_size=4))
def test_options_are_the_same_after_they_were_shown_and_typed(options: dict[str, Any]) -> None:
    assert Options().problem(options) == ""
    assert Options().parse(Options().text(options)) == options


@pytest.mark.parametrize("value", [[], "a", {"a b": 1}, {"a": None}, {"a": [1]}, {"a": float("nan")}, {1: 2}, {"": 1}])
def test_options_of_another_form_are_refused(value: Any) -> None:
    assert Options().problem(value)


@given(st.text(max_size=30))
def test_any_text_is_taken_or_refused(text: str) -> None:
    for kind in (Options(), Operators()):
        assert isinstance(kind.problem(kind.parse(text)), str)


def answers(text: str) -> dict[str, Any]:
    loaded: dict[str, Any] = document.load(MINIMAL + f"  operators: {text}\n").values["kubernetes"]["operators"]
    return loaded


def test_both_spellings_of_an_operator_are_accepted_and_its_name_is_saved() -> None:
    for spelling, operator in SPELLINGS.items():
        chosen = answers(f"{{{spelling}: {{chart: /x.tgz}}}}")
        assert list(chosen) == [operator.name]
        assert chosen[operator.name]["version"] == operator.known[0]
    assert list(answers("{spark-operator: , metallb: }")) == ["metallb", "spark-operator"]
    assert [each.known[0] for each in OPERATORS if each.name == "netq"] == ["4.13"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{nosuch: }", "kubernetes.operators.nosuch (line 10): unknown operator; known are"),
        ("{metalb: }", "kubernetes.operators.metalb (line 10): unknown operator; did you mean metallb?"),
        ("{metallb: {version: '9'}}", "kubernetes.operators.metallb.version (line 10): must be one of 0.14.8, not '9'"),
        ("{netq: {version: 4.10}}", "kubernetes.operators.netq.version (line 10): must be a text: write it in quotes"),
        ("{metallb: {chart: x.tgz}}", "kubernetes.operators.metallb.chart (line 10): must be an absolute path"),
        ("{metallb: {values: /x}}", "kubernetes.operators.metallb.values (line 10): unknown key; did you mean values_"),
        ("{metallb: {options: [a]}}", "kubernetes.operators.metallb.options (line 10): must be a mapping"),
        ("{metallb: [a]}", "kubernetes.operators.metallb (line 10): must be a mapping"),
        ("[metallb]", "kubernetes.operators (line 10): must be a mapping"),
        ("{postgres-operator: , postgresql-operator: }", "is the same operator; name it once"),
    ],
)
def test_item_49_what_is_wrong_with_operators_is_told_with_key_and_line(text: str, told: str) -> None:
    with pytest.raises(errors.Invalid) as refused:
        answers(text)
    assert told in "\n".join(refused.value.problems)


def test_item_48_operators_are_the_same_after_they_were_saved_and_loaded() -> None:
    text = MINIMAL + "  operators: {gpu-operator: {chart: /g.tgz, options: {a.b: true, c: '550'}}, spark-operator: }\n"
    saved = document.save(document.load(text).values)
    assert document.save(document.load(saved).values) == saved
    assert "c: '550'" in saved


def test_the_schema_knows_the_versions_of_each_operator() -> None:
    import jsonschema_rs as validator

    checker = validator.Draft202012Validator(jsonschema.schema())
    good = {"metallb": {"version": "0.14.8", "options": {"a[0].b": 1}}, "cm-kubernetes-spark-operator": None}
    assert checker.is_valid({"kubernetes": {"operators": good}})
    for bad in ({"bogus": {}}, {"metallb": {"version": "1"}}, {"metallb": {"options": {"a b": 1}}}):
        assert not checker.is_valid({"kubernetes": {"operators": bad}})
