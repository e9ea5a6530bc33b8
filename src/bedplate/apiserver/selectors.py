"""Label and field selectors: text to a predicate.

In: the texts of the query parameters. Out: functions on labels and on objects, and the normal form by which equal
selectors are recognised. Raises ValueError with the fault. Which fields a kind can be selected by is told by the
caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from bedplate.apiserver import status
from bedplate.apiserver.schema import formats

__all__ = [
    "FieldTerm",
    "LabelPredicate",
    "Requirement",
    "field_predicate",
    "label_predicate",
    "label_selector_problems",
    "of_label_selector",
    "parse_fields",
    "parse_labels",
]

LabelPredicate = Callable[[Mapping[str, str]], bool]

_TOKEN = re.compile(r"\s*(!=|==|=|!|\(|\)|,|>|<|[^\s!=(),<>]+)")


class Requirement(NamedTuple):
    """One term of a label selector. `operator`: =, !=, in, notin, exists, !, gt, lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "exists":
                return value is not None
            case "!":
                return value is None
            case "=" | "in":
                return value in self.values
            case "!=" | "notin":
                return value not in self.values
        try:
            number, bound = int(value or ""), int(self.values[0])
        except ValueError:
            return False
        return number > bound if self.operator == "gt" else number < bound


class FieldTerm(NamedTuple):
    path: str
    value: str
    is_negated: bool = False


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """`a=b,c!=d,e in (f,g),h,!i,j>1`; raises ValueError."""
    return tuple(_LabelParser(text).parse())


def label_predicate(requirements: Sequence[Requirement]) -> LabelPredicate | None:
    """None where everything matches."""
    if not requirements:
        return None
    if len(requirements) == 1:
        return requirements[0].matches
    return lambda labels: all(requirement.matches(labels) for requirement in requirements)


class _LabelParser:
    def __init__(self, text: str) -> None:
        self._tokens = self._scan(text)
        self._at = 0

    @staticmethod
    def _scan(text: str) -> list[str]:
        tokens, at, text = [], 0, text.strip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise ValueError(f"unable to parse requirement: found {text[at:]!r}")
            tokens.append(match[1])
            at = match.end()
        return tokens

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def parse(self) -> list[Requirement]:
        requirements: list[Requirement] = []
        while self._peek():
            requirements.append(self._requirement())
            token = self._take()
            if token and token != ",":
                raise ValueError(f"found '{token}', expected: ',' or 'end of string'")
            if token == "," and not self._peek():
                raise ValueError("found '', expected: identifier after ','")
        return requirements

    def _requirement(self) -> Requirement:
        if self._peek() == "!":
            self._take()
            return Requirement(self._key(), "!")
        key = self._key()
        token = self._peek()
        if token in ("", ","):
            return Requirement(key, "exists")
        self._take()
        match token:
            case "=" | "==" | "!=":
                return Requirement(key, "!=" if token == "!=" else "=", (self._value(),))
            case "in" | "notin":
                return Requirement(key, token, self._values())
            case ">" | "<":
                value = self._value()
                if not re.fullmatch(r"-?\d+", value):
                    raise ValueError(
                        f'values[0][{key}]: Invalid value: "{value}": '
                        "for 'Gt', 'Lt' operators, the value must be an integer"
                    )
                return Requirement(key, "gt" if token == ">" else "lt", (value,))
        raise ValueError(f"found '{token}', expected: in, notin, =, ==, !=, gt, lt")

    def _key(self) -> str:
        key = self._take()
        for fault in formats.qualified_name(key):
            raise ValueError(f'key: Invalid value: "{key}": {fault}')
        return key

    def _value(self) -> str:
        if self._peek() in ("", ","):
            return ""
        return _checked(self._take())

    def _values(self) -> tuple[str, ...]:
        if self._take() != "(":
            raise ValueError("found something else, expected: '('")
        values, token = [""], ""
        while (token := self._take()) != ")":
            if token == ",":
                values.append("")
            elif token:
                values[-1] = _checked(token)
            else:
                raise ValueError("found '', expected: ',', or ')'")
        return tuple(values)


def _checked(value: str) -> str:
    for fault in formats.label_value(value):
        raise ValueError(f'values[0]: Invalid value: "{value}": {fault}')
    return value


def parse_fields(text: str, selectable: Collection[str]) -> tuple[FieldTerm, ...]:
    """`metadata.name=x,spec.nodeName!=y`; raises ValueError on bad syntax and on fields that are not selectable."""
    terms: list[FieldTerm] = []
    for part in re.split(r"(?<!\\),", text):
        if not part.strip():
            continue
        match = re.match(r"(.*?)(!=|==|=)(.*)\Z", part, re.S)
        if match is None:
            raise ValueError(f"invalid selector: '{text}'; can't understand '{part}'")
        path = match[1].strip()
        if path not in selectable and path not in ("metadata.name", "metadata.namespace"):
            known = ", ".join(f'"{name}"' for name in ("metadata.name", "metadata.namespace", *selectable))
            raise ValueError(f'"{path}" is not a known field selector: only {known}')
        value = re.sub(r"\\([\\,=])", r"\1", match[3])
        terms.append(FieldTerm(path, value, match[2] == "!="))
    return tuple(terms)


def field_predicate(terms: Sequence[FieldTerm]) -> Callable[[Mapping[str, Any]], bool] | None:
    """A predicate on decoded objects; None where everything matches."""
    if not terms:
        return None
    return lambda obj: all((field_value(obj, term.path) == term.value) is not term.is_negated for term in terms)


def field_value(obj: Mapping[str, Any], path: str) -> str:
    """A field as selectors compare it: absent is the empty text, booleans are lower case."""
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


_SELECTOR_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def label_selector_problems(selector: Mapping[str, Any], where: str) -> list[status.FieldProblem]:
    """What is wrong with a `LabelSelector` object."""
    problems = []
    for index, term in enumerate(selector.get("matchExpressions") or ()):
        place, operator, values = f"{where}.matchExpressions[{index}]", term.get("operator", ""), term.get("values")
        if operator not in _SELECTOR_OPERATORS:
            detail = "not a valid selector operator"
            problems.append(status.FieldProblem.invalid(f"{place}.operator", operator, detail))
        elif operator in ("In", "NotIn") and not values:
            detail = "must be specified when `operator` is 'In' or 'NotIn'"
            problems.append(status.FieldProblem.required(f"{place}.values", detail))
        elif operator not in ("In", "NotIn") and values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            problems.append(status.FieldProblem.forbidden(f"{place}.values", detail))
        if not term.get("key"):
            detail = "name part must be non-empty"
            problems.append(status.FieldProblem.invalid(f"{place}.key", term.get("key", ""), detail))
    return problems


def of_label_selector(selector: Mapping[str, Any]) -> LabelPredicate:
    """The predicate of a `LabelSelector` object (matchLabels, matchExpressions); an empty one matches everything."""
    requirements = [Requirement(key, "=", (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
    for term in selector.get("matchExpressions") or ():
        operator = _SELECTOR_OPERATORS.get(term.get("operator", ""))
        if operator is None:
            raise ValueError(f'"{term.get("operator")}" is not a valid label selector operator')
        requirements.append(Requirement(term.get("key", ""), operator, tuple(term.get("values") or ())))
    return lambda labels: all(term.matches(labels) for term in requirements)
