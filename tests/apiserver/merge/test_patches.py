"""JSON patch and merge patch: results and refusals as seen on kube-apiserver 1.35.4."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.apiserver.merge import patches
from bedplate.apiserver.status import StatusError

DOCUMENT = {"data": {"x": "1", "a/b": "s", "m~n": "t"}, "list": [1, 2, 3], "deep": {"er": {"k": [{"z": 1}]}}}

values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
documents = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


def op(kind: str, path: str | None = None, **more: Any) -> dict[str, Any]:
    return {"op": kind, **({} if path is None else {"path": path}), **more}


@pytest.mark.parametrize(
    ("operations", "path", "expected"),
    [
        ([op("add", "/data/y", value="2")], ("data", "y"), "2"),
        ([op("add", "/list/1", value=9)], ("list",), [1, 9, 2, 3]),
        ([op("add", "/list/-", value=9)], ("list",), [1, 2, 3, 9]),
        ([op("add", "/list/3", value=9)], ("list",), [1, 2, 3, 9]),
        ([op("add", "/list/-1", value=9)], ("list",), [1, 2, 3, 9]),
        ([op("remove", "/list/-1")], ("list",), [1, 2]),
        ([op("remove", "/data/a~1b")], ("data",), {"x": "1", "m~n": "t"}),
        ([op("replace", "/data/m~0n", value="u")], ("data", "m~n"), "u"),
        ([op("replace", "/data/new", value="v")], ("data", "new"), "v"),
        ([op("add", "/data/x")], ("data", "x"), None),
        ([op("move", "/data/y", **{"from": "/data/x"})], ("data",), {"a/b": "s", "m~n": "t", "y": "1"}),
        ([op("move", "/list/0", **{"from": "/list/2"})], ("list",), [3, 1, 2]),
        ([op("copy", "/data/z", **{"from": "/deep/er"})], ("data", "z"), {"k": [{"z": 1}]}),
        ([op("copy", "/data/z", **{"from": "/data/none"})], ("data", "z"), None),
        ([op("test", "/data/x", value="1"), op("add", "/data/y", value="2")], ("data", "y"), "2"),
        ([op("test", "/data/none", value=None)], ("data", "x"), "1"),
        ([op("test", "", value=DOCUMENT)], ("data", "x"), "1"),
        ([op("replace", "", value={"only": 1})], ("only",), 1),
        ([op("add", "/deep/er/k/0/y", value=2), op("remove", "/deep/er/k/0/z")], ("deep", "er", "k"), [{"y": 2}]),
    ],
)
def test_operations_do_what_the_real_server_does(operations: list[Any], path: tuple[str, ...], expected: Any) -> None:
    found = patches.json_patch(DOCUMENT, operations)
    for key in path:
        found = found[key]
    assert found == expected


@pytest.mark.parametrize(
    "operations",
    [
        [op("test", "/data/x", value="2")],
        [op("test", "/list/0", value=1.0)],
        [op("test", "/list/0", value=True)],
        [op("add", "/zz/x", value=1)],
        [op("add", "/list/5", value=1)],
        [op("add", "/list/x", value=1)],
        [op("add", "", value={})],
        [op("remove", "/data/none")],
        [op("remove", "/list/3")],
        [op("replace", "/list/7", value=1)],
        [op("replace", "", value="v")],
        [op("foo", "/data")],
        [{"path": "/data"}],
        [op("add", value=1)],
        [op("move", "/data/y", **{"from": "/data/none"})],
        [op("move", "/data/y")],
        [op("copy", "/data/y", **{"from": "/zz/y"})],
        [None],
    ],
)
def test_operations_that_do_not_apply_are_unprocessable(operations: list[Any]) -> None:
    with pytest.raises(StatusError) as refused:
        patches.json_patch(DOCUMENT, operations)
    assert refused.value.code == 422
    assert refused.value.reason == "Invalid"
    assert refused.value.message == "the server rejected our request due to an error in our request"


@pytest.mark.parametrize(
    ("operations", "text"),
    [
        ({"a": 1}, "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
        ([1], "json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"),
        ([op("add", 3)], "json: cannot unmarshal number into Go struct field jsonPatchOp.path of type string"),
    ],
)
def test_a_patch_of_the_wrong_form_is_a_bad_request(operations: Any, text: str) -> None:
    with pytest.raises(StatusError) as refused:
        patches.json_patch(DOCUMENT, operations)
    assert (refused.value.code, refused.value.message) == (400, f"error decoding patch: {text}")


def test_a_null_patch_changes_nothing() -> None:
    assert patches.json_patch(DOCUMENT, None) == DOCUMENT


def test_too_many_operations_are_refused() -> None:
    with pytest.raises(StatusError) as refused:
        patches.json_patch(DOCUMENT, [op("test", "/data/x", value="1")] * 10_001)
    assert refused.value.code == 413
    assert "maximum operations in a JSON patch is 10000, got 10001" in refused.value.message


def test_a_failing_operation_leaves_no_trace_of_those_before_it() -> None:
    before = copy.deepcopy(DOCUMENT)
    with pytest.raises(StatusError):
        patches.json_patch(DOCUMENT, [op("add", "/deep/er/k/0/q", value=1), op("remove", "/nowhere")])
    assert before == DOCUMENT


def test_a_copied_value_is_independent_of_its_source() -> None:
    operations = [op("copy", "/other", **{"from": "/deep"}), op("remove", "/other/er/k")]
    found = patches.json_patch(DOCUMENT, operations)
    assert found["deep"] == DOCUMENT["deep"]
    assert found["other"] == {"er": {}}


def test_unchanged_parts_are_shared() -> None:
    found = patches.json_patch(DOCUMENT, [op("add", "/data/y", value="2")])
    assert found["deep"] is DOCUMENT["deep"]
    assert found["data"] is not DOCUMENT["data"]


paths = st.sampled_from(["", "/a", "/b", "/c", "/a/a", "/a/b", "/a/0", "/b/-", "/b/1", "/a/a/a"])
operations = st.lists(
    st.one_of(
        st.builds(
            lambda kind, path, value: op(kind, path, value=value), st.sampled_from(["add", "replace"]), paths, values
        ),
        st.builds(lambda path: op("remove", path), paths),
        st.builds(
            lambda kind, path, source: op(kind, path, **{"from": source}),
            st.sampled_from(["move", "copy"]),
            paths,
            paths,
        ),
    ),
    max_size=5,
)


@given(document=documents, changes=operations)
def test_json_patch_never_changes_its_arguments(document: dict[str, Any], changes: list[Any]) -> None:
    before = copy.deepcopy((document, changes))
    try:
        patches.json_patch(document, changes)
    except StatusError:
        pass
    assert (document, changes) == before


# --- merge patch -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({"a": "foo"}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({}, {"a": [{"x": None, "y": 1}, None]}, {"a": [{"y": 1}, None]}),
        ({"a": {"k": 1}}, {"a": [{"x": None}]}, {"a": [{"x": None}]}),
    ],
)
def test_merge_patch(document: dict[str, Any], patch: dict[str, Any], expected: dict[str, Any]) -> None:
    assert patches.merge_patch(document, patch) == expected


@pytest.mark.parametrize(
    ("patch", "text"),
    [
        (None, "Invalid JSON Patch"),
        ([1], "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"),
        ("x", "error decoding patch: json: cannot unmarshal string into Go value of type map[string]interface {}"),
    ],
)
def test_a_merge_patch_that_is_no_object_is_a_bad_request(patch: Any, text: str) -> None:
    with pytest.raises(StatusError) as refused:
        patches.merge_patch({}, patch)
    assert (refused.value.code, refused.value.message) == (400, text)


@given(document=documents, patch=documents)
def test_merge_patch_changes_no_argument_and_removes_nulls(document: dict[str, Any], patch: dict[str, Any]) -> None:
    before = copy.deepcopy((document, patch))
    result = patches.merge_patch(document, patch)
    assert (document, patch) == before
    assert set(result) == {*document, *patch} - {key for key, value in patch.items() if value is None}
