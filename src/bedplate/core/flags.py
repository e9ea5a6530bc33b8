"""Flags as Kubernetes programs take them: declared as fields of frozen dataclasses, read with Go's grammar.

In: dataclasses whose fields are made with `flag(...)`, and the words of a command line. Out: values by flag name, which
of them were given, and every problem found; for dataclasses in groups, the sections of `--help`, the options of a
program and its help. Pure.

`--name value`, `--name=value`; booleans `--name`, `--name=false` (never a separate word); `-v=5`, `-v 5`, `-v5`;
underscores count as dashes; `--` ends the flags. Lists are separated by commas and grow with every repetition; those of
the kind `Repeated` take one whole text each time.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from bedplate.core import duration

__all__ = [
    "Duration",
    "Flag",
    "Group",
    "Parsed",
    "Repeated",
    "all_flags",
    "chosen",
    "describe",
    "flag",
    "flags_of",
    "items",
    "parse",
    "parse_bool",
    "render",
    "sections",
    "short_usage",
]

T = TypeVar("T")
Duration = Annotated[float, "duration"]
Repeated = Annotated[tuple[str, ...], "repeated"]
_WIDTH = 100
_WORDS = {
    "string": "string",
    "strings": "strings",
    "repeated": "string",
    "int": "int",
    "float": "float",
    "duration": "duration",
}
_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: `field` is the attribute that holds its value, `kind` what may be written."""

    name: str
    field: str
    kind: str
    default: Any
    help: str
    short: str = ""
    deprecated: str = ""
    is_bare: bool = False
    """May be given without a value although it is not a boolean (`--version`); the value is then `true`."""


def flag(default: T, text: str, *, short: str = "", deprecated: str = "", name: str = "", is_bare: bool = False) -> T:
    """A dataclass field that is a flag. `name`: when it is not the field's name with dashes."""
    settings = {"help": text, "short": short, "deprecated": deprecated, "name": name, "is_bare": is_bare}
    declared: Any = dataclasses.field(default=default, metadata=settings)
    typed: T = declared
    return typed


@functools.cache
def flags_of(group: type) -> tuple[Flag, ...]:
    """The flags that a dataclass declares, in order."""
    hints = get_type_hints(group, include_extras=True)
    return tuple(_flag(item, hints[item.name]) for item in dataclasses.fields(group))


def _flag(item: dataclasses.Field[Any], hint: Any) -> Flag:
    data = item.metadata
    name = data["name"] or item.name.replace("_", "-")
    kind = _kind(hint)
    return Flag(
        name, item.name, kind, item.default, data["help"], data["short"], data["deprecated"], bool(data["is_bare"])
    )


def _kind(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        return str(get_args(hint)[1])
    if get_origin(hint) is tuple:
        return "strings"
    return {bool: "bool", int: "int", float: "float", str: "string"}[hint]


@dataclass(slots=True)
class Parsed:
    """What a command line says: `values` of the flags that were given, words that are not flags, and all problems."""

    values: dict[str, Any] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def parse_bool(text: str) -> bool:
    """Go's booleans, and no others."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("must be true or false")


def _strings(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _number(make: Callable[[str], T], what: str) -> Callable[[str], T]:
    def convert(text: str) -> T:
        try:
            return make(text)
        except ValueError:
            raise ValueError(f"must be {what}") from None

    return convert


_CONVERTERS: Mapping[str, Callable[[str], Any]] = {
    "bool": parse_bool,
    "int": _number(lambda text: int(text, 0), "an integer"),
    "float": _number(float, "a number"),
    "string": str,
    "strings": _strings,
    "repeated": lambda text: (text,) if text and text != "[]" else (),
    "duration": duration.parse_duration,
}


def parse(known: Iterable[Flag], words: Sequence[str]) -> Parsed:
    """Read a command line. Never raises: what is wrong is listed in `problems`."""
    by_name = {flag.name: flag for flag in known}
    by_short = {flag.short: flag for flag in by_name.values() if flag.short}
    parsed, rest = Parsed(), list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            parsed.arguments += rest
            break
        if word.startswith("--"):
            _take_long(word[2:], rest, by_name, parsed)
        elif word.startswith("-") and word != "-":
            _take_short(word[1:], rest, by_short, by_name, parsed)
        else:
            parsed.arguments.append(word)
    return parsed


def _take_long(text: str, rest: list[str], by_name: Mapping[str, Flag], parsed: Parsed) -> None:
    name, equals, value = text.partition("=")
    flag = by_name.get(name.replace("_", "-"))
    if flag is None:
        import difflib

        near = difflib.get_close_matches(name.replace("_", "-"), list(by_name), n=1)
        hint = f" (did you mean --{near[0]}?)" if near else ""
        parsed.problems.append(f"unknown flag: --{name}{hint}")
        return
    _take(flag, f"--{flag.name}", value if equals else None, rest, parsed)


def _take_short(
    text: str, rest: list[str], by_short: Mapping[str, Flag], by_name: Mapping[str, Flag], parsed: Parsed
) -> None:
    flag = by_short.get(text[0])
    if flag is None:
        name = text.partition("=")[0]
        hint = f" (did you mean --{name}?)" if name.replace("_", "-") in by_name else ""
        parsed.problems.append(f"unknown shorthand flag: -{name}{hint}")
        return
    value = text[1:].removeprefix("=") if len(text) > 1 else None
    _take(flag, f"-{text[0]}", value, rest, parsed)


def _take(flag: Flag, shown: str, value: str | None, rest: list[str], parsed: Parsed) -> None:
    if value is None:
        if flag.kind == "bool" or flag.is_bare:
            value = "true"
        elif not rest:
            parsed.problems.append(f"{shown} needs a value")
            return
        else:
            value = rest.pop(0)
    try:
        converted = _CONVERTERS[flag.kind](value)
    except ValueError as err:
        text = str(err)
        parsed.problems.append(f"{shown}: {text if repr(value) in text else f'{value!r} {text}'}")
        return
    if flag.kind in ("strings", "repeated") and flag.name in parsed.values:
        converted = (*parsed.values[flag.name], *converted)
    parsed.values[flag.name] = converted


def render(flag: Flag, value: Any) -> str:
    """A value as it would be written on a command line."""
    if flag.kind == "bool":
        return "true" if value else "false"
    if flag.kind == "duration":
        return duration.format_duration(value)
    if flag.kind in ("strings", "repeated"):
        return ("," if flag.kind == "strings" else ";").join(value)
    return f"{value:g}" if flag.kind == "float" else str(value)


def describe(flag: Flag, default: object) -> Iterator[str]:
    """A flag's lines in `--help`."""
    import textwrap

    head = f"  -{flag.short}, --{flag.name}" if flag.short else f"      --{flag.name}"
    if flag.kind in _WORDS and not flag.is_bare:
        head += f" {_WORDS[flag.kind]}"
    text = flag.help
    if default not in (False, "", ()) and flag.name != "version":
        shown = render(flag, default)
        text += f" (default {shown})" if flag.kind != "string" else f' (default "{shown}")'
    if flag.deprecated:
        text += f" DEPRECATED: {flag.deprecated}."
    yield head
    indent = " " * 10
    yield textwrap.fill(text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


@dataclass(frozen=True, slots=True)
class Group:
    """One section of `--help`. `field` is the attribute of the options that holds a value of `kind`."""

    field: str
    title: str
    kind: type


def all_flags(groups: Sequence[Group]) -> list[Flag]:
    """Every flag, in the order of the groups."""
    return [flag for group in groups for flag in flags_of(group.kind)]


def items(groups: Sequence[Group], options: Any) -> Iterator[tuple[Flag, Any]]:
    """Every flag with its value, in the order of the groups."""
    for group in groups:
        values = getattr(options, group.field)
        for flag in flags_of(group.kind):
            yield flag, getattr(values, flag.field)


def chosen(groups: Sequence[Group], values: Mapping[str, Any], base: Any) -> dict[str, Any]:
    """The groups by field: what was given, and what `base` has where nothing was."""
    groups_by_name = {}
    for group in groups:
        given = {flag.field: values[flag.name] for flag in flags_of(group.kind) if flag.name in values}
        groups_by_name[group.field] = dataclasses.replace(getattr(base, group.field), **given)
    return groups_by_name


def sections(groups: Sequence[Group], defaults: Any) -> Iterator[str]:
    """The lines of `--help` that describe the flags."""
    for group in groups:
        yield from ("", f"{group.title} flags:", "")
        values = getattr(defaults, group.field)
        for flag in flags_of(group.kind):
            yield from describe(flag, getattr(values, flag.field))


def short_usage(program: str) -> str:
    """What to show after a mistake."""
    return f"Usage:\n  {program} [flags]\n\n{program} --help shows every flag.\n"
