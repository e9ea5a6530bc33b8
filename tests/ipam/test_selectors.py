"""Which nodes a selector matches."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bedplate.ipam import selectors
from bedplate.ipam.pools import NodeSelector

NODE = "worker-1"
LABELS = {"tier": "gold", "rank": "7", "empty": "", "text": "high"}


def matches(terms: list[dict[str, Any]], name: str = NODE, labels: dict[str, str] = LABELS) -> bool:
    selector = msgspec.convert({"nodeSelectorTerms": terms}, NodeSelector)
    return selectors.matcher(selector)(name, labels)


def on(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def field(operator: str, *values: str, key: str = "metadata.name") -> dict[str, Any]:
    return {"matchFields": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (on("tier", "In", "silver", "gold"), True),
        (on("tier", "In", "silver"), False),
        (on("absent", "In", "gold"), False),
        (on("absent", "In", ""), False),
        (on("empty", "In", ""), True),
        (on("tier", "NotIn", "silver"), True),
        (on("tier", "NotIn", "gold"), False),
        (on("absent", "NotIn", "gold"), True),
        (on("tier", "Exists"), True),
        (on("absent", "Exists"), False),
        (on("tier", "DoesNotExist"), False),
        (on("absent", "DoesNotExist"), True),
        (on("rank", "Gt", "6"), True),
        (on("rank", "Gt", "7"), False),
        (on("rank", "Gt", "0"), True),
        (on("rank", "Lt", "8"), True),
        (on("rank", "Lt", "7"), False),
        (on("absent", "Lt", "7"), False),
        (on("text", "Gt", "1"), False),
        (on("text", "Lt", "1"), False),
        (field("In", NODE), True),
        (field("In", "worker-2"), False),
        (field("NotIn", "worker-2"), True),
        (field("NotIn", NODE), False),
    ],
)
def test_one_requirement(term: dict[str, Any], expected: bool) -> None:
    assert matches([term]) is expected


@pytest.mark.parametrize("written", ["7", "07", "0007", "9223372036854775807"])
def test_an_integer_may_have_leading_zeros_and_64_bits(written: str) -> None:
    assert matches([on("rank", "Gt", "6")], labels={"rank": written})


@pytest.mark.parametrize("written", ["7.0", "0x7", "", "9223372036854775808", "-9223372036854775809", "7_0", "٧"])
def test_other_labels_compare_with_nothing(written: str) -> None:
    assert not matches([on("rank", "Gt", "0")], labels={"rank": written})
    assert not matches([on("rank", "Lt", "1")], labels={"rank": written})


@pytest.mark.parametrize(
    "term",
    [
        {},
        on("tier", "In"),
        on("tier", "Exists", "gold"),
        on("tier", "Sounds", "gold"),
        on("rank", "Gt", "six"),
        on("rank", "Gt", "1", "2"),
        on("rank", "Gt", "-1"),  # no label can have this value
        on("rank", "Gt", "99999999999999999999"),
        on("tier", "NotIn", "not a label value"),
        on("no key!", "DoesNotExist"),
        on("absent", "NotIn", "x" * 64),
        field("Exists"),
        field("In", NODE, "worker-2"),
        field("NotIn", "x", key="spec.unschedulable"),
    ],
)
def test_a_term_that_means_nothing_matches_nothing_but_does_not_silence_others(term: dict[str, Any]) -> None:
    assert not matches([term])
    assert matches([term, on("tier", "Exists")])
    assert matches([on("tier", "Exists"), term])


def test_requirements_of_a_term_must_all_hold_and_terms_are_alternatives() -> None:
    both = {**on("tier", "Exists"), **field("In", NODE)}
    assert matches([both]) and not matches([both], name="worker-2")
    assert matches([on("absent", "Exists"), on("tier", "Exists")])
    assert not matches([on("absent", "Exists"), on("tier", "In", "x")])
    two = {"matchExpressions": [*on("tier", "Exists")["matchExpressions"], *on("absent", "Exists")["matchExpressions"]]}
    assert not matches([two])


def test_no_selector_is_for_every_node_and_no_term_for_none() -> None:
    assert selectors.matcher(None)("any", {})
    assert not matches([])
