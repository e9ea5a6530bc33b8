"""The texts of refusals, as apimachinery words them."""

from __future__ import annotations

import pytest

from bedplate.apiserver.status import FieldProblem, invalid_kind

ONE = FieldProblem.required("a")
TWO = FieldProblem.invalid("b", "x<y", "no")


@pytest.mark.parametrize(
    ("problems", "summary"),
    [
        ([ONE], "a: Required value"),
        ([ONE, ONE], "a: Required value"),
        ([ONE, TWO], '[a: Required value, b: Invalid value: "x<y": no]'),
        ([ONE, TWO, ONE], '[a: Required value, b: Invalid value: "x<y": no]'),
    ],
)
def test_the_message_names_each_problem_once(problems: list[FieldProblem], summary: str) -> None:
    refusal = invalid_kind("apps", "Deployment", "d", problems)
    assert refusal.message == f'Deployment.apps "d" is invalid: {summary}'
    assert refusal.details is not None
    assert len(refusal.details["causes"]) == len(problems)
