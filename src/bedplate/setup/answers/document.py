"""A YAML file with answers to answers, and back. Pure.

In: text. Out: `Answers`, complete with defaults, or `Invalid` with every problem: key path, line and what is expected.
Nothing is asked of a head here; that is `fitting`. What is saved is in the order of the declaration, so that save, load
and save again give the same bytes.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import yaml

from bedplate.core import errors, yamls
from bedplate.setup.answers.declaration import FIELDS, SECTIONS, value_at
from bedplate.setup.answers.kinds import Text
from bedplate.setup.answers.maps import Operators

__all__ = ["META", "Answers", "Place", "defaults", "load", "problems", "save", "with_value"]

META = {
    "tool": Text(r"cm-kubernetes-setup", "cm-kubernetes-setup", False),
    "version": Text(about="the version of the tool that wrote the file"),
    "timestamp": Text(about="when the file was written"),
}

_MOST_PROBLEMS = 100
"""A file with more of them is not one with answers: the first ones are enough to see it."""
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Place = dict[str, int]
"""Lines by dotted key."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers, and the lines of the file that they come from."""

    values: dict[str, Any]
    lines: Place


def defaults() -> dict[str, Any]:
    """The answers of a file that says nothing."""
    answers: dict[str, Any] = {"meta": {}}
    for field in FIELDS:
        _put(answers, field.path, copy.deepcopy(field.default))
    return answers


def with_value(answers: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The answers with another value at a dotted key."""
    new: dict[str, Any] = copy.deepcopy(dict(answers))
    _put(new, path, value)
    return new


def load(text: str | bytes, name: str = "the file") -> Answers:
    """The answers in a text. Raises `Invalid` with every problem."""
    try:
        values = yamls.load(text, strict=True)
    except yaml.YAMLError as err:
        raise errors.Invalid(f"{name} is not valid YAML: {_flat(err)}", hint="correct the line") from err
    except UnicodeDecodeError as err:
        raise errors.Invalid(f"{name} is not text") from err
    if not isinstance(values, dict):
        raise errors.Invalid(f"{name} has no answers", hint="cm-kubernetes-setup without options writes such a file")
    lines = _lines(text)
    wrong = list(islice(chain(_unknown(values, lines), _missing(values), _wrong(values)), _MOST_PROBLEMS))
    if wrong:
        wrong.sort(key=lambda problem: lines.get(problem[0], 0))
        told = [f"{path}{_at(lines, path)}: {problem}" for path, problem in wrong]
        raise errors.Invalid(f"{name} has {_counted(len(told))}", problems=told, hint="nothing was changed")
    answers = defaults()
    answers["meta"] = {key: values["meta"][key] for key in META if key in (values.get("meta") or {})}
    for field in FIELDS:
        value = value_at(values, field.path)
        if value is not None:
            _put(answers, field.path, field.kind.normal(value) if isinstance(field.kind, Operators) else value)
    return Answers(answers, lines)


def problems(answers: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is wrong with the values of answers, by key; for the wizard, which cannot have unknown keys."""
    return list(_wrong(answers))


def save(answers: Mapping[str, Any]) -> str:
    """The text of a file with these answers."""
    ordered: dict[str, Any] = {"meta": {key: answers["meta"][key] for key in META if key in answers.get("meta", {})}}
    for field in FIELDS:
        _put(ordered, field.path, value_at(answers, field.path))
    body = yaml.safe_dump(ordered, sort_keys=False, allow_unicode=True, default_flow_style=False, width=110)
    return (
        "# Answers for cm-kubernetes-setup -c FILE; every key is explained in docs/reference/setup-answers.md.\n" + body
    )


# Checks


def _wrong(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    meta = values.get("meta")
    for key, kind in META.items():
        if isinstance(meta, Mapping) and key in meta and (problem := kind.problem(meta[key])):
            yield f"meta.{key}", problem
    for field in FIELDS:
        value = value_at(values, field.path)
        if value is None:
            if _is_null(values, field.path):
                yield field.path, f"must be {field.kind.about}, not nothing"
            continue
        if isinstance(field.kind, Operators):
            for below, problem in field.kind.problems(value):
                yield f"{field.path}.{below}" if below else field.path, problem
        elif problem := field.kind.problem(value):
            yield field.path, problem


def _is_null(values: Mapping[str, Any], path: str) -> bool:
    above, _, key = path.rpartition(".")
    holder = value_at(values, above)
    return isinstance(holder, Mapping) and key in holder


def _missing(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "kubernetes" not in values:
        yield "kubernetes", "this key is missing"
        return
    masters = value_at(values, "kubernetes.nodes.masters")
    is_named = isinstance(masters, Mapping) and any(masters.values())
    if not is_named and (masters is None or isinstance(masters, Mapping)):
        yield "kubernetes.nodes.masters", "this key is missing: at least one control-plane node is needed"


def _unknown(values: Mapping[str, Any], lines: Place) -> Iterator[tuple[str, str]]:
    known = {*(field.path for field in FIELDS), *(f"meta.{key}" for key in META)}
    holders = {"meta", *SECTIONS}
    for path in known:
        parts = path.split(".")
        holders |= {".".join(parts[:count]) for count in range(1, len(parts))}
    yield from _unknown_below(values, "", known, holders)


def _unknown_below(
    values: Mapping[Any, Any], above: str, known: set[str], holders: set[str]
) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        path = f"{above}.{key}" if above else str(key)
        if path in known:
            continue
        if path not in holders:
            names = [name.rpartition(".")[2] for name in known | holders if name.rpartition(".")[0] == above]
            close = difflib.get_close_matches(str(key), names, 1)
            yield path, f"unknown key; did you mean {close[0]}?" if close else "unknown key"
        elif isinstance(value, Mapping):
            yield from _unknown_below(value, path, known, holders)
        else:
            yield path, f"must be a mapping, not {type(value).__name__ if value is not None else 'nothing'}"


# Places


def _lines(text: str | bytes) -> Place:
    node = yaml.compose(text, Loader=_LOADER)
    lines: Place = {}
    known: set[int] = set()

    def walk(node: yaml.Node | None, above: str) -> None:
        # What an alias stands for has its lines where it was written: once is enough.
        if isinstance(node, yaml.MappingNode) and id(node) not in known:
            known.add(id(node))
            for key, value in node.value:
                path = f"{above}.{key.value}" if above else str(key.value)
                lines[path] = key.start_mark.line + 1
                walk(value, path)

    walk(node, "")
    return lines


def _at(lines: Place, path: str) -> str:
    return f" (line {lines[path]})" if path in lines else ""


def _flat(err: yaml.YAMLError) -> str:
    mark = getattr(err, "problem_mark", None) or getattr(err, "context_mark", None)
    problem = getattr(err, "problem", None) or str(err)
    return f"line {mark.line + 1}: {problem}" if mark is not None else " ".join(str(problem).split())


def _counted(count: int) -> str:
    return "1 problem" if count == 1 else f"{count} problems"


def _put(answers: dict[str, Any], path: str, value: Any) -> None:
    *above, key = path.split(".")
    holder = answers
    for part in above:
        holder = holder.setdefault(part, {})
    holder[key] = value
