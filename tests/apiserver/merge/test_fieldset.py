"""Field sets: the FieldsV1 form, its order, and the algebra checked against plain sets of paths."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.apiserver.merge import fieldset

elements = st.sampled_from(
    [
        "f:a",
        "f:b",
        "f:c",
        'k:{"name":"x"}',
        'k:{"port":80,"protocol":"TCP"}',
        'k:{"port":443,"protocol":"TCP"}',
        'v:"s"',
        "v:5",
        "v:40",
        "i:2",
        "i:10",
    ]
)
some_paths = st.frozensets(st.lists(elements, min_size=1, max_size=3).map(tuple), max_size=8)


def build(paths: frozenset[tuple[str, ...]]) -> fieldset.FieldSet:
    """The set of these paths, made in a way that shares nothing with the code under test."""
    tree: dict[str, Any] = {}
    for path in paths:
        node = tree
        for element in path:
            node = node.setdefault(element, {})
        node["."] = {}

    def close(node: dict[str, Any]) -> dict[str, Any]:
        if set(node) == {"."}:
            return {}
        return {element: close(below) if element != "." else {} for element, below in node.items()}

    return fieldset.canonical(close(tree))


def members(fields: fieldset.FieldSet) -> frozenset[tuple[str, ...]]:
    return frozenset(fieldset.paths(fields))


def assert_canonical(fields: fieldset.FieldSet) -> None:
    """Equal to its canonical form, also in the order of keys at every level."""

    def listed(node: dict[str, Any]) -> list[Any]:
        return [(element, listed(below)) for element, below in node.items()]

    assert listed(fields) == listed(fieldset.canonical(fields))


@given(left=some_paths, right=some_paths)
def test_union_difference_and_intersection_are_those_of_sets(left: Any, right: Any) -> None:
    ours, theirs = build(left), build(right)
    before = copy.deepcopy((ours, theirs))
    for result, expected in (
        (fieldset.union(ours, theirs), left | right),
        (fieldset.difference(ours, theirs), left - right),
        (fieldset.intersection(ours, theirs), left & right),
    ):
        assert members(result) == expected
        assert_canonical(result)
    assert (ours, theirs) == before


@given(left=some_paths, right=some_paths)
def test_recursive_difference_also_removes_what_is_below(left: Any, right: Any) -> None:
    result = fieldset.difference(build(left), build(right), recursive=True)
    expected = {path for path in left if not any(path[: len(prefix)] == prefix for prefix in right)}
    assert members(result) == expected
    assert_canonical(result)


@given(paths=some_paths, path=st.lists(elements, min_size=1, max_size=3).map(tuple))
def test_has_knows_members_only(paths: Any, path: Any) -> None:
    assert fieldset.has(build(paths), path) == (path in paths)


def test_elements_are_in_the_order_of_the_real_server() -> None:
    scrambled = {
        "i:10": {},
        "i:2": {},
        'v:"b"': {},
        "v:40": {},
        "v:5": {},
        "v:true": {},
        'k:{"port":443,"protocol":"TCP"}': {},
        'k:{"port":80,"protocol":"UDP"}': {},
        'k:{"port":80,"protocol":"TCP"}': {},
        'k:{"name":"z"}': {},
        "f:b": {},
        "f:a": {"f:z": {}, ".": {}},
    }
    assert list(fieldset.canonical(scrambled)) == [
        "f:a",
        "f:b",
        'k:{"name":"z"}',
        'k:{"port":80,"protocol":"TCP"}',
        'k:{"port":80,"protocol":"UDP"}',
        'k:{"port":443,"protocol":"TCP"}',
        "v:5",
        "v:40",
        'v:"b"',
        "v:true",
        "i:2",
        "i:10",
    ]
    assert list(fieldset.canonical(scrambled)["f:a"]) == [".", "f:z"]


@pytest.mark.parametrize(
    ("element", "expected"),
    [
        (fieldset.value_element("a<b"), 'v:"a\\u003cb"'),
        (fieldset.value_element('quo"te\n'), 'v:"quo\\"te\\n"'),
        (fieldset.value_element("ümlaut"), 'v:"ümlaut"'),
        (fieldset.value_element(80.0), "v:80"),
        (fieldset.value_element(True), "v:true"),
        (fieldset.key_element([("protocol", "TCP"), ("containerPort", 80)]), 'k:{"containerPort":80,"protocol":"TCP"}'),
    ],
)
def test_elements_are_written_as_go_writes_them(element: str, expected: str) -> None:
    assert element == expected


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (["f:spec", "f:replicas"], ".spec.replicas"),
        (["f:containers", 'k:{"name":"nginx"}', "f:image"], '.containers[name="nginx"].image'),
        (["f:ports", 'k:{"protocol":"TCP","containerPort":80}'], '.ports[containerPort=80,protocol="TCP"]'),
        (["f:finalizers", 'v:"a/b"'], '.finalizers[="a/b"]'),
        (["f:list", "i:3"], ".list[3]"),
    ],
)
def test_paths_read_as_in_conflict_messages(path: list[str], text: str) -> None:
    assert fieldset.path_text(path) == text


def test_a_clients_set_is_brought_to_canonical_form() -> None:
    given_fields = {"f:b": {".": {}}, "f:a": None, "x:future": {}, 'k:{"b":1,"a":2}': {}}
    assert fieldset.canonical(given_fields) == {"f:a": {}, "f:b": {}, 'k:{"a":2,"b":1}': {}}


@pytest.mark.parametrize("fields", [{"q": {}}, {"nocolon": {}}, {"k:nonsense": {}}, {"i:x": {}}, {"f:a": 3}, ["f:a"]])
def test_what_is_no_field_set_is_refused(fields: Any) -> None:
    with pytest.raises(fieldset.BadFields):
        fieldset.canonical(fields)
