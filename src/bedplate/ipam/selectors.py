"""Which nodes a pool is for.

In: a node selector, a node's name and labels. Out: yes or no. Pure. Terms are alternatives, the requirements of a term
must all hold. An empty term matches nothing, and so does one with a requirement that means nothing (a value that no
label can have, a bound that is not an integer): such a term matches no node, but another term still may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from bedplate.api import names
from bedplate.ipam.pools import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

__all__ = ["matcher"]

Test = Callable[[str, Mapping[str, str]], bool]
"""Does a node with this name and these labels match?"""

_INT64 = range(-(1 << 63), 1 << 63)


def matcher(selector: NodeSelector | None) -> Test:
    """The selector as a test; it is read once, however many nodes there are."""
    if selector is None:
        return lambda _name, _labels: True
    terms = [test for test in map(_term, selector.node_selector_terms) if test is not None]
    return lambda name, labels: any(term(name, labels) for term in terms)


def _term(term: NodeSelectorTerm) -> Test | None:
    if not term.match_expressions and not term.match_fields:
        return None
    tests = [*map(_expression, term.match_expressions), *map(_field, term.match_fields)]
    return _all([test for test in tests if test is not None]) if None not in tests else None


def _all(tests: Iterable[Test]) -> Test:
    kept = tuple(tests)
    return lambda name, labels: all(test(name, labels) for test in kept)


def _expression(requirement: NodeSelectorRequirement) -> Test | None:
    key, values = requirement.key, frozenset(requirement.values)
    if names.label_key_problems(key) or any(names.label_value_problems(value) for value in values):
        return None
    match requirement.operator:
        case "In" if values:
            return lambda _name, labels: labels.get(key) in values
        case "NotIn" if values:
            return lambda _name, labels: labels.get(key) not in values
        case "Exists" if not values:
            return lambda _name, labels: key in labels
        case "DoesNotExist" if not values:
            return lambda _name, labels: key not in labels
        case "Gt" | "Lt" if len(requirement.values) == 1:
            return _comparison(key, requirement.values[0], above=requirement.operator == "Gt")
        case _:
            return None


def _comparison(key: str, written: str, *, above: bool) -> Test | None:
    bound = _int64(written)
    if bound is None:
        return None

    def holds(_name: str, labels: Mapping[str, str]) -> bool:
        value = _int64(labels.get(key, ""))
        return value is not None and (value > bound if above else value < bound)

    return holds


def _int64(written: str) -> int | None:
    """A decimal integer of 64 bits with an optional sign, and nothing around it."""
    digits = written[1:] if written[:1] in {"+", "-"} else written
    if not digits.isascii() or not digits.isdigit() or len(digits) > 64:
        return None
    value = int(written)
    return value if value in _INT64 else None


def _field(requirement: NodeSelectorRequirement) -> Test | None:
    if requirement.key != "metadata.name" or len(requirement.values) != 1:
        return None
    node_name = requirement.values[0]
    match requirement.operator:
        case "In":
            return lambda name, _labels: name == node_name
        case "NotIn":
            return lambda name, _labels: name != node_name
        case _:
            return None
