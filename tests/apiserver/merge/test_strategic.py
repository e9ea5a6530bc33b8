"""Strategic merge: recorded answers of kube-apiserver 1.35.4 and what a patch must never do."""

from __future__ import annotations

import copy
import json
import pathlib
from typing import Any

import pytest
from hypothesis import given, settings
from tests.apiserver import applyworld
from tests.apiserver.applycompare import manager_for

from bedplate.apiserver.merge import patches, strategic
from bedplate.apiserver.shape.typegraph import TypeNode, scalar_node
from bedplate.apiserver.status import StatusError

RECORDED: dict[str, Any] = json.loads((pathlib.Path(__file__).parents[1] / "data" / "apply.json").read_text())
NODES = {world.kind: manager_for(world).node for world in applyworld.WORLDS}
CASES = [
    pytest.param(found["kind"], call, id=f"{name} {number}")
    for name, found in RECORDED.items()
    for number, call in enumerate(found["calls"])
    if call["function"] in ("strategic_merge", "json_patch")
]

STRING = scalar_node("string")
ITEM = TypeNode(shape="struct", fields={"name": STRING, "a": STRING, "b": STRING}, name="x.Item")
NODE = TypeNode(
    shape="struct",
    name="x.Thing",
    fields={
        "items": TypeNode(shape="list", element=ITEM, patch_strategy=("merge",), patch_key="name"),
        "words": TypeNode(shape="list", element=STRING, patch_strategy=("merge",)),
        "plain": TypeNode(shape="list", element=ITEM),
        "union": TypeNode(
            shape="struct", fields={"x": STRING, "y": STRING}, patch_strategy=("retainKeys",), name="x.Union"
        ),
        "whole": TypeNode(shape="struct", fields={"x": STRING, "y": STRING}, patch_strategy=("replace",)),
        "map": TypeNode(shape="map", element=TypeNode(shape="map", element=STRING)),
    },
)


@pytest.mark.parametrize(("kind", "call"), CASES)
def test_recorded_answers_of_the_real_server(kind: str, call: dict[str, Any]) -> None:
    def run() -> Any:
        if call["function"] == "json_patch":
            return patches.json_patch(call["live"], call["patch"])
        return strategic.strategic_merge(call["live"], call["patch"], NODES[kind])

    if "code" not in call:
        assert run() == call["result"]
        return
    with pytest.raises(StatusError) as refused:
        run()
    assert (refused.value.code, refused.value.message) == (call["code"], call["message"])


def named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    [
        (
            {"items": named("x", "y")},
            {"items": [{"name": "y", "a": "1"}]},
            {"items": [{"name": "x"}, {"name": "y", "a": "1"}]},
        ),
        ({"items": named("x", "y")}, {"items": named("z")}, {"items": named("z", "x", "y")}),
        ({"items": named("x", "y", "z")}, {"items": named("z", "x")}, {"items": named("y", "z", "x")}),
        ({"items": named("x", "y")}, {"items": [{"name": "x", "$patch": "delete"}]}, {"items": named("y")}),
        ({"items": named("x")}, {"items": [{"$patch": "replace"}, {"name": "z"}]}, {"items": named("z")}),
        ({"items": named("x")}, {"items": [{"$patch": "replace"}]}, {"items": []}),
        ({}, {"items": [{"name": "x", "$patch": "delete"}, {"name": "y"}]}, {"items": named("y")}),
        ({"words": ["a", "b"]}, {"words": ["c", "a"]}, {"words": ["c", "a", "b"]}),
        ({"words": ["a", "b"]}, {"$deleteFromPrimitiveList/words": ["a"]}, {"words": ["b"]}),
        (
            {"words": ["a", "b", "c"]},
            {"$setElementOrder/words": ["c", "a"]},
            {"words": ["b", "c", "a"]},
        ),
        ({"plain": named("x")}, {"plain": named("y")}, {"plain": named("y")}),
        ({"union": {"x": "1"}}, {"union": {"$retainKeys": ["y"], "y": "2"}}, {"union": {"y": "2"}}),
        ({"union": {"x": "1"}}, {"union": {"$patch": "replace", "y": "2"}}, {"union": {"y": "2"}}),
        ({"union": {"x": "1"}}, {"union": {"$patch": "delete"}}, {"union": {}}),
        ({"whole": {"x": "1"}}, {"whole": {"y": "2"}}, {"whole": {"y": "2"}}),
        ({"union": {"x": "1"}}, {"union": None}, {}),
        ({}, {"union": {"x": None, "y": "1"}}, {"union": {"y": "1"}}),
        ({"words": ["a"]}, None, {"words": ["a"]}),
    ],
)
def test_merging(document: dict[str, Any], patch: Any, expected: dict[str, Any]) -> None:
    before = copy.deepcopy((document, patch))
    assert strategic.strategic_merge(document, patch, NODE) == expected
    assert (document, patch) == before


@pytest.mark.parametrize(
    ("patch", "code", "text"),
    [
        ({"items": [{"a": "1"}]}, 500, "map: map[a:1] does not contain declared merge key: name"),
        ({"items": ["x"]}, 500, "list element types are not identical: [[map[name:x]] [x]]"),
        ({"map": {"k": {"a": "1"}}}, 500, "merging an object in json but data type is not struct, instead is: map"),
        ({"strange": {"a": "1"}}, 500, 'unable to find api field in struct Thing for the json field "strange"'),
        ([1], 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
    ],
)
def test_refusals(patch: Any, code: int, text: str) -> None:
    document = {"items": named("x"), "map": {"k": {"a": "2"}}, "strange": {}}
    with pytest.raises(StatusError) as refused:
        strategic.strategic_merge(document, patch, NODE)
    assert (refused.value.code, refused.value.message) == (code, text)


@settings(deadline=None)
@given(base=applyworld.DEPLOYMENT.part, patch=applyworld.DEPLOYMENT.strategic)
def test_no_argument_is_changed_and_unchanged_parts_are_shared(base: dict[str, Any], patch: dict[str, Any]) -> None:
    document = {**base, "metadata": {"name": "x"}}
    before = copy.deepcopy((document, patch))
    try:
        result = strategic.strategic_merge(document, patch, NODES["Deployment"])
    except StatusError:
        result = document
    assert (document, patch) == before
    assert result["metadata"] is document["metadata"]
