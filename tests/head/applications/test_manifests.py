"""Manifests: variables, documents, and every fault with its line."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.core import errors
from bedplate.head.applications.manifests import read, render, substitute

NAMES = st.text(string.ascii_letters + "_", min_size=1, max_size=6)
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\n"


def problems(text: str) -> list[str]:
    with pytest.raises(errors.Invalid) as raised:
        read(text)
    return list(raised.value.problems)


def test_item_183_variables_are_replaced_and_those_without_a_value_are_reported() -> None:
    text, unknown = substitute("$A ${A}b $Ab ${B} $B $B", {"A": "1"})
    assert (text, unknown) == ("1 1b $Ab ${B} $B $B", ("Ab", "B"))


def test_item_183_a_lone_dollar_is_untouched_and_two_are_one() -> None:
    text = "cost: 5$, $5 ${ ${} $(A) $$A $$ $"
    assert substitute(text, {"A": "1"}) == ("cost: 5$, $5 ${ ${} $(A) $A $ $", ())


@given(st.text(), st.dictionaries(NAMES, st.text(string.ascii_lowercase)))
def test_text_without_dollars_stays_and_escaped_text_comes_back(text: str, variables: dict[str, str]) -> None:
    assert substitute(text.replace("$", "$$"), variables) == (text, ())


@given(st.dictionaries(NAMES, st.text(string.ascii_lowercase + "$ "), min_size=1))
def test_values_are_not_looked_into(variables: dict[str, str]) -> None:
    text = " ".join(f"${{{name}}}" for name in variables)
    assert substitute(text, variables) == (" ".join(variables.values()), ())


def test_several_documents_and_lists_are_objects_with_their_lines() -> None:
    text = "---\n# nothing here\n---\n" + CONFIG_MAP % "a" + "---\napiVersion: v1\nkind: List\nitems:\n"
    text += "- {apiVersion: apps/v1, kind: Deployment, metadata: {name: b, namespace: x}}\n- {}\n"
    assert problems(text) == ["line 8: apiVersion must be VERSION or GROUP/VERSION, such as v1 or apps/v1"]
    first, second = read(text.replace("- {}\n", ""))
    assert (first.group, first.version, first.kind, first.namespace, first.name, first.line) == (
        *("", "v1", "ConfigMap", "", "a"),
        4,
    )
    assert (str(second), second.group, second.version, second.line) == ("Deployment x/b", "apps", "v1", 8)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: [", "line 3: did not find expected node content"),
        ("a: 1\n\tb: 2\n", "line 2: found a tab character that violates indentation"),
        ("a: 1\na: 2\n", "line 2: the key 'a' is given twice"),
        ("a: 1\n---\nb: \x07\n", "line 3: "),
        ("hello", "line 1: must be an object with apiVersion, kind and metadata"),
        ("kind: ConfigMap\n", "line 1: apiVersion must be VERSION"),
        ("apiVersion: v1\nkind: config map\n", "line 1: kind must be"),
        ("apiVersion: v1\nkind: ConfigMap\n", "line 1: ConfigMap: metadata is missing"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n", "line 1: ConfigMap: metadata.name must be"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {generateName: x-}\n", "generateName cannot be kept applied"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ..}\n", "metadata.name must be"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a/b}\n", "metadata.name must be"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: ../b}\n", "metadata.namespace must be"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {b: 1}}\n", "must be text; put numbers in"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nx: .nan\n", "not a number that JSON has"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nx: &x [*x]\n", "an alias contains itself"),
        (CONFIG_MAP % "a" + "---\n" + CONFIG_MAP % "a", "line 5: ConfigMap a is already on line 1"),
        ("[" * 5000, "exceeded max depth"),
    ],
)
def test_item_187_a_fault_is_told_with_its_line(text: str, problem: str) -> None:
    (told,) = problems(text)
    assert problem in told


def test_the_same_object_with_and_without_its_namespace_is_one() -> None:
    other = CONFIG_MAP.replace("%s", "a, namespace: default")
    assert problems(CONFIG_MAP % "a" + "---\n" + other) == ["line 5: ConfigMap default/a is already on line 1"]


def test_values_are_those_of_json() -> None:
    (manifest,) = read(CONFIG_MAP % "a" + "data: {2: x, yes: 2026-01-01}\nbig: 0x10\n")
    assert manifest.body["data"] == {"2": "x", "true": "2026-01-01"} and manifest.body["big"] == 16


def test_what_cannot_be_read_only_with_its_variables_is_told() -> None:
    text = CONFIG_MAP % "a" + "data: {x: $X}\n"
    assert render(text, {"X": "1"}).objects[0].body["data"] == {"x": 1}
    assert render(text, {}).unknown == ("X",)
    with pytest.raises(errors.Invalid):
        render(text, {"X": "}}"})


@given(st.text(max_size=200))
def test_any_text_is_objects_or_a_refusal(text: str) -> None:
    try:
        read(text)
    except errors.Invalid as err:
        assert err.problems
