"""Flags in groups: the sections of `--help`, each a dataclass of flags, and a program's options made of them.

In: the groups, a command line that was parsed, the options that count where it says nothing. Out: values by group,
every flag with its value, lines of help. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bedplate.core import flags
from bedplate.core.flags import Flag

__all__ = ["Group", "all_flags", "chosen", "items", "sections", "short_usage"]


@dataclass(frozen=True, slots=True)
class Group:
    """One section of `--help`. `field` is the attribute of the options that holds a value of `kind`."""

    field: str
    title: str
    kind: type


def all_flags(groups: Sequence[Group]) -> list[Flag]:
    """Every flag, in the order of the groups."""
    return [flag for group in groups for flag in flags.flags_of(group.kind)]


def items(groups: Sequence[Group], options: Any) -> Iterator[tuple[Flag, Any]]:
    """Every flag with its value, in the order of the groups."""
    for group in groups:
        values = getattr(options, group.field)
        for flag in flags.flags_of(group.kind):
            yield flag, getattr(values, flag.field)


def chosen(groups: Sequence[Group], values: Mapping[str, Any], base: Any) -> dict[str, Any]:
    """The groups by field: what was given, and what `base` has where nothing was."""
    groups_by_name = {}
    for group in groups:
        given = {flag.field: values[flag.name] for flag in flags.flags_of(group.kind) if flag.name in values}
        groups_by_name[group.field] = dataclasses.replace(getattr(base, group.field), **given)
    return groups_by_name


def sections(groups: Sequence[Group], defaults: Any) -> Iterator[str]:
    """The lines of `--help` that describe the flags."""
    for group in groups:
        yield from ("", f"{group.title} flags:", "")
        values = getattr(defaults, group.field)
        for flag in flags.flags_of(group.kind):
            yield from flags.describe(flag, getattr(values, flag.field))


def short_usage(program: str) -> str:
    """What to show after a mistake."""
    return f"Usage:\n  {program} [flags]\n\n{program} --help shows every flag.\n"
