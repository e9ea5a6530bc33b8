"""Answers that are mappings: the options of a chart, and the operators with theirs. Pure.

In: a value of a YAML file, or a text typed in the wizard. Out: what is wrong with it, its JSON Schema, its text. An
operator may be written with another spelling; `Operators.normal` gives its name, and every key that was left out.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bedplate.setup.answers.kinds import Choice, File, Kind
from bedplate.setup.operators import OPERATORS, SPELLINGS, Operator

__all__ = ["Operators", "Options", "parts"]

_PATH = r"[A-Za-z0-9_-]+(\[[0-9]{1,3}\])*(\.[A-Za-z0-9_-]+(\[[0-9]{1,3}\])*)*"
_KEY = re.compile(_PATH)
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")
_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+-][A-Za-z0-9_./:@%+ -]*(?<! )")


@dataclass(frozen=True)
class Options:
    """Values of a chart by their path, as `helm --set` has them; a typed text is `a.b=true, c[0].d=text`."""

    about: str = "a mapping of values of the chart, such as toolkit.enabled: false"

    def problem(self, value: Any) -> str:
        if not isinstance(value, dict):
            return f"must be {self.about}"
        for key, item in value.items():
            if not isinstance(key, str) or _KEY.fullmatch(key) is None:
                return f"{key!r} must be the path of a value, such as toolkit.env[0].name"
            if not isinstance(item, str | bool | int | float) or item in (float("inf"), float("-inf")) or item != item:
                return f"{key}: must be a text, a number, true or false"
        return ""

    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "propertyNames": {"pattern": f"^{_PATH}$"},
            "additionalProperties": {"type": ["string", "boolean", "number"]},
        }

    def parse(self, text: str) -> Any:
        options: dict[str, Any] = {}
        for part in _parts(text):
            key, equals, word = part.partition("=")
            if not equals:
                return text
            options[key.strip()] = _scalar(word.strip())
        return options

    def text(self, value: Any) -> str:
        if not isinstance(value, dict):
            return str(value)
        return ", ".join(f"{key}={_word(item)}" for key, item in value.items())


def _parts(text: str) -> Iterator[str]:
    """What is between commas that are not within quotes."""
    for match in re.finditer(r'(?:"(?:\\.|[^"\\])*"|[^,"])+', text):
        if match[0].strip():
            yield match[0].strip()


def _scalar(word: str) -> Any:
    if word in ("true", "false"):
        return word == "true"
    if _NUMBER.fullmatch(word):
        return float(word) if "." in word else int(word)
    if word.startswith('"'):
        try:
            return json.loads(word)
        except ValueError:
            return word
    return word


def _word(value: Any) -> str:
    if isinstance(value, str):
        is_plain = _PLAIN.fullmatch(value) is not None and _scalar(value) == value
        return value if is_plain else json.dumps(value)
    return json.dumps(value)


def parts(operator: Operator) -> dict[str, tuple[Kind, Any]]:
    """The keys below an operator: kind and default."""
    return {
        "version": (Choice(operator.known), operator.known[0]),
        "chart": (File(), ""),
        "values_file": (File(), ""),
        "options": (Options(), {}),
    }


@dataclass(frozen=True)
class Operators:
    """Operators by name, each with version, chart, values file and options; one that is there is installed."""

    about: str = "a mapping of operators, each with version, chart, values_file and options"

    def problem(self, value: Any) -> str:
        return next((f"{path}: {text}" if path else text for path, text in self.problems(value)), "")

    def problems(self, value: Any) -> Iterator[tuple[str, str]]:
        """What is wrong, by the path below the key."""
        if not isinstance(value, dict):
            yield "", f"must be {self.about}"
            return
        known: dict[str, str] = {}
        for name, given in value.items():
            operator = SPELLINGS.get(name) if isinstance(name, str) else None
            if operator is None:
                yield str(name), _unknown(str(name), SPELLINGS, "operator")
                continue
            if operator.name in known:
                yield name, f"{known[operator.name]} is the same operator; name it once"
            known[operator.name] = name
            yield from _wrong(name, operator, given)

    def normal(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Operators in the order of the tool, by their own names, with all their keys."""
        given = {SPELLINGS[name].name: below or {} for name, below in value.items() if name in SPELLINGS}
        return {
            each.name: {key: given[each.name].get(key, default) for key, (_, default) in parts(each).items()}
            for each in OPERATORS
            if each.name in given
        }

    def chosen(self, names: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
        """Operators by their names, with what was said of them before; unknown ones stay, to be told."""
        own = {SPELLINGS[name].name: before.get(SPELLINGS[name].name, {}) for name in names if name in SPELLINGS}
        return self.normal(own) | {name: {} for name in names if name not in SPELLINGS}

    def schema(self) -> dict[str, Any]:
        properties = {}
        for word, operator in SPELLINGS.items():
            below = {key: {**kind.schema(), "default": default} for key, (kind, default) in parts(operator).items()}
            about = {"title": operator.title, "properties": below, "additionalProperties": False}
            properties[word] = {"type": ["object", "null"], **about}
        return {"type": "object", "properties": properties, "additionalProperties": False}

    def parse(self, text: str) -> Any:
        return {part: {} for part in re.split(r"[,\s]+", text.strip()) if part}

    def text(self, value: Any) -> str:
        return ", ".join(value) if isinstance(value, dict) else str(value)


def _wrong(name: str, operator: Operator, given: Any) -> Iterator[tuple[str, str]]:
    if given is not None and not isinstance(given, dict):
        yield name, "must be a mapping with version, chart, values_file and options"
        return
    keys = parts(operator)
    for key, value in (given or {}).items():
        if key not in keys:
            yield f"{name}.{key}", _unknown(str(key), keys, "key")
        elif key == "version" and isinstance(value, int | float):
            yield f"{name}.{key}", f"must be a text: write it in quotes, as '{operator.known[0]}'"
        elif problem := keys[key][0].problem(value):
            yield f"{name}.{key}", problem


def _unknown(word: str, known: Mapping[str, Any], what: str) -> str:
    close = difflib.get_close_matches(word, list(known), 1)
    if what == "operator" and not close:
        return f"unknown operator; known are {', '.join(each.name for each in OPERATORS)}"
    return f"unknown {what}; did you mean {close[0]}?" if close else f"unknown {what}"
