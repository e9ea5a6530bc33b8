"""CEL: what the real server said of every rule in cases/cel.yaml, and what a table cannot say."""

from __future__ import annotations

import pytest
from tests.apiserver import recorded

from bedplate.apiserver import cel
from bedplate.apiserver.cel import declarations, types, values

GROUPS = {group["name"]: group for group in recorded.questions("cel")}
ANSWERS = recorded.answers("cel")
REFUSED = GROUPS["refused"]
JUDGED = [(name, rule) for name, group in GROUPS.items() for rule in group.get("valid", ())]


def run(source: str, **variables: object) -> object:
    declared = dict.fromkeys(variables, types.DYN)
    return cel.compile_expression(source, declared).run(*variables.values())


def causes_of(rule: str, found: recorded.Answer) -> recorded.Answer:
    """Those of the causes that are about the rule."""
    endings = (f"failed rule: {rule}", f"evaluating rule: {rule}", f"for rule: {rule}")
    return [cause for cause in found if cause[2].endswith(endings)]


@pytest.mark.parametrize(("name", "rule"), JUDGED)
def test_a_rule_judges_as_on_the_real_server(name: str, rule: str) -> None:
    group = GROUPS[name]
    found = recorded.judge_object(recorded.with_rules(group["schema"], [rule]), group["spec"], group.get("old"))
    assert found == causes_of(rule, ANSWERS[name]["causes"])


@pytest.mark.parametrize("name", [name for name, group in GROUPS.items() if group.get("valid")])
def test_accepted_rules_are_accepted(name: str) -> None:
    crd = recorded.definition(name, recorded.with_rules(GROUPS[name]["schema"], GROUPS[name]["valid"]))
    assert recorded.judge_definition(crd) == []


@pytest.mark.parametrize("rule", REFUSED["refused"])
def test_a_refused_rule_is_refused_in_the_same_words(rule: str) -> None:
    crd = recorded.definition("refused", recorded.with_rules(REFUSED["schema"], [rule]))
    assert recorded.judge_definition(crd) == ANSWERS["refused"][rule]


def test_the_table_is_large_enough() -> None:
    assert len(JUDGED) + len(REFUSED["refused"]) >= 120


def test_an_error_on_one_side_of_and_yields_to_false_on_the_other() -> None:
    assert run("1 / a == 1 && false", a=0) is False
    assert run("false && 1 / a == 1", a=0) is False
    with pytest.raises(values.CelError, match="division by zero"):
        run("true && 1 / a == 1", a=0)


def test_numbers_of_different_kinds_are_equal_but_a_bool_is_no_number() -> None:
    assert run("a == b", a=1, b=1.0) is True
    assert run("a == b", a=True, b=1) is False
    assert run("a in b", a=True, b=[1]) is False


def test_overflow_is_an_error_in_both_directions() -> None:
    for source in ("a + 1 > 0", "-(a + 1) > 0", "a * 2 > 0"):
        with pytest.raises(values.CelError, match="integer overflow"):
            run(source, a=2**63 - 1)


def test_integer_division_and_remainder_go_towards_zero_for_large_numbers_too() -> None:
    assert run("a / b", a=-(2**62) - 1, b=2) == -(2**61)
    assert run("a % b", a=-(2**62) - 1, b=2) == -1
    assert run("a % b", a=2**63 - 1, b=7) == 0
    assert run("a % b", a=-7, b=4) == -3


@pytest.mark.parametrize("text", ["9" * 5000, f"0.{'9' * 5000}", f"1e{'9' * 5000}", "1e101", "1e-1001"])
def test_a_number_that_is_too_long_is_no_quantity(text: str) -> None:
    assert run("isQuantity(a)", a=text) is False
    with pytest.raises(values.CelError):
        run("quantity(a)", a=text)


@pytest.mark.parametrize("text", ["9" * 100, f"{'9' * 100}Ki", "1e90", f"0.{'9' * 100}"])
def test_a_long_number_is_a_quantity(text: str) -> None:
    assert run("quantity(a).isGreaterThan(quantity('0'))", a=text) is True


def test_a_pattern_takes_time_in_proportion_to_the_text() -> None:
    """Backtracking would need 2^100000 steps for each."""
    text = "a" * 100_000 + "!"
    for pattern in ("^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "^(.*a){12}$"):
        assert run("a.matches(b)", a=text, b=pattern) is False
        assert run(f"a.matches('{pattern}')", a=text) is False
        assert run("a.find(b)", a=text, b=pattern) == ""
        assert run("a.findAll(b)", a=text, b=pattern) == []


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?=a)a", "(?<!a)b", "(?>a)", "a{1001}", "((a{100}){100}){100}"])
def test_a_pattern_that_needs_backtracking_or_much_memory_is_refused(pattern: str) -> None:
    for call in ("matches", "find", "findAll"):
        with pytest.raises(values.CelError, match="regexp"):
            run(f"a.{call}(b)", a="aa", b=pattern)
    crd = recorded.definition("refused", recorded.with_rules(REFUSED["schema"], [f"'a'.matches(r'{pattern}')"]))
    assert recorded.judge_definition(crd) != []


def test_macros_may_be_nested_and_shadow_outer_variables() -> None:
    assert run("a.map(x, a.filter(x, x > 1).size() + x)", a=[1, 2, 3]) == [3, 4, 5]


def test_property_names_are_escaped() -> None:
    names = {
        "namespace": "__namespace__",
        "a-b": "a__dash__b",
        "a.b/c": "a__dot__b__slash__c",
        "x__y": "x__underscores__y",
    }
    assert {name: declarations.escape(name) for name in names} == names
    assert declarations.escape("1a") is None
    assert declarations.escape("a b") is None


def test_faults_point_at_their_line() -> None:
    with pytest.raises(cel.CompileError) as caught:
        cel.compile_expression("true &&\n  foo == 1", {})
    assert (
        str(caught.value)
        == "ERROR: <input>:2:3: undeclared reference to 'foo' (in container '')\n |   foo == 1\n | ..^"
    )
