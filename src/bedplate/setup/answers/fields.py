"""What a question and a page of the wizard are, and how a value of answers is found. Pure.

In: nothing. Out: the two types that declarations are made of; the value at a dotted key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bedplate.setup.answers.kinds import Kind

__all__ = ["Field", "Screen", "is_at", "value_at"]


@dataclass(frozen=True)
class Screen:
    """A page of the wizard. `number` is its place in the documentation; those above the summary's are of this tool
    alone, and come before the summary."""

    number: int
    title: str
    about: str


@dataclass(frozen=True)
class Field:
    """A question. `default` is what the file need not say; `when` tells whether the question applies."""

    path: str
    kind: Kind
    title: str
    help: str
    screen: int
    default: Any = ""
    is_prefilled: bool = False
    """An empty value is replaced by one that fits the site."""
    when: Callable[[Mapping[str, Any]], bool] = lambda answers: True


def value_at(answers: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted key; None where there is none."""
    value: Any = answers
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


def is_at(path: str, *values: Any) -> Callable[[Mapping[str, Any]], bool]:
    """Whether answers have one of these values at a key."""
    return lambda answers: value_at(answers, path) in values
