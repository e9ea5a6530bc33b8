"""Why a node selector does not match: the requirement that fails is named."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.cli.ipam.makers import node

from bedplate.cli.ipam.selection import why_not
from bedplate.ipam.pools import NodeSelector


def selector(*terms: dict[str, Any]) -> NodeSelector:
    return msgspec.convert({"nodeSelectorTerms": terms}, NodeSelector)


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": values}


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        ([{"matchExpressions": [expression("role", "In", "worker", "gpu")]}], "role In (worker,gpu) fails"),
        ([{"matchExpressions": [expression("rack", "Exists")]}], "rack Exists fails: the node has no label rack"),
        ([{"matchExpressions": [expression("role", "DoesNotExist")]}], "role DoesNotExist fails"),
        ([{"matchExpressions": [expression("role", "NotIn", "master")]}], "the node's label has the value 'master'"),
        (
            [{"matchExpressions": [expression("slots", "Gt", "8")]}],
            "> 8 fails: the node's label has the value '4'",
        ),
        ([{"matchFields": [expression("metadata.name", "In", "host-b")]}], "the node's name is host-a"),
        ([{}], "the term is empty"),
        ([], "has no terms"),
        (
            [{"matchExpressions": [expression(key, "In", "x")]} for key in ("role", "zone")],
            "term 2: zone In (x) fails",
        ),
    ],
)
def test_the_failing_requirement_is_named(terms: list[dict[str, Any]], reason: str) -> None:
    assert reason in why_not(selector(*terms), node("host-a", role="master", slots="4"))


def test_of_several_requirements_only_those_that_fail_are_named() -> None:
    both = {"matchExpressions": [expression("role", "In", "master"), expression("zone", "In", "a")]}
    text = why_not(selector(both), node("host-a", role="master"))
    assert "zone In (a) fails" in text and "role" not in text


def test_nothing_is_said_of_a_node_that_matches() -> None:
    assert why_not(None, node("host-a")) == ""
    assert why_not(selector({"matchExpressions": [expression("role", "Exists")]}), node("host-a", role="")) == ""
