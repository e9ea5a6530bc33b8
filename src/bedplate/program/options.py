"""A program's flags as one typed value, and the text of `--help`.

In: a dataclass of groups of flags, the words of a command line. Out: `Reading`: the options and every problem, or text.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar
from urllib.parse import urlsplit, urlunsplit

from bedplate.core import flags
from bedplate.core.flags import Flag, Group
from bedplate.core.flags_global import Global

__all__ = ["Options", "Reading", "help_text", "listener", "listener_problems", "read", "redacted", "shown"]

_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Options:
    """What a program was told, group by group. A program's own options add a field for each of its `GROUPS`.

    `given` names the flags that the command line has.
    """

    GROUPS: ClassVar[tuple[Group, ...]] = ()

    globals: Global = field(default_factory=Global)
    given: frozenset[str] = frozenset()

    def items(self) -> Iterator[tuple[Flag, Any]]:
        """Every flag with its value, in the order of the groups."""
        return flags.items(self.GROUPS, self)


O = TypeVar("O", bound=Options)  # noqa: E741


@dataclass(frozen=True, slots=True)
class Reading(Generic[O]):
    """A command line that was read: the options, as far as they could be parsed, and what is wrong."""

    options: O
    syntax: tuple[str, ...] = ()
    """Problems of the command line itself: unknown flags, values of the wrong type."""
    values: tuple[str, ...] = ()
    """Problems of values that were parsed."""
    arguments: tuple[str, ...] = ()
    """Words that are not flags."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Values of flags that only this command has."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Everything that is wrong."""
        return (*self.syntax, *self.values)


def read(
    kind: type[O],
    words: Sequence[str],
    defaults: O | None = None,
    *,
    refuse: Callable[[str], str | None] = lambda word: None,
    validate: Callable[[O], Iterable[str]] = lambda options: (),
    extra: Sequence[Flag] = (),
) -> Reading[O]:
    """Parse a command line; `defaults` apply to the flags that it does not have.

    `refuse` gives the problem with a word that is not a flag, `validate` the problems of the options.
    """
    base = defaults if defaults is not None else kind()
    parsed = flags.parse([*flags.all_flags(kind.GROUPS), *extra], words)
    options = kind(**flags.chosen(kind.GROUPS, parsed.values, base), given=frozenset(parsed.values))
    refused = [problem for problem in map(refuse, parsed.arguments) if problem is not None]
    return Reading(
        options,
        (*parsed.problems, *refused),
        tuple(validate(options)),
        tuple(parsed.arguments),
        {flag.name: parsed.values.get(flag.name, flag.default) for flag in extra},
    )


def help_text(
    program: str, about: Sequence[str], examples: Sequence[str], defaults: Options, notes: Sequence[str] = ()
) -> str:
    """The whole of `--help`: what the program does, examples, every flag in its section, notes."""
    import textwrap

    lines = [textwrap.fill(text, _WIDTH) + "\n" for text in about]
    lines += [f"Usage:\n  {program} [flags]\n", "Examples:", *(f"  {program} {words}" for words in examples)]
    lines += [*flags.sections(defaults.GROUPS, defaults), *notes]
    return "\n".join(lines) + "\n"


def shown(options: Options) -> list[tuple[str, str]]:
    """Every flag as it would be written, for the log."""
    return [(flag.name, flags.render(flag, redacted(value))) for flag, value in options.items()]


def redacted(value: Any) -> Any:
    """A value without the credentials that a URL may hold before its `@`."""
    if not isinstance(value, str) or "://" not in value:
        return value
    parts = urlsplit(value)
    if "@" not in parts.netloc:
        return value
    return urlunsplit(parts._replace(netloc="…@" + parts.netloc.rpartition("@")[2]))


def listener(address: str) -> tuple[str | None, int] | None:
    """Host (None: every interface) and port of `host:port`, `[v6]:port` or `:port`; None for `0` and for nothing."""
    if address in ("", "0"):
        return None
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is not HOST:PORT, :PORT or 0")
    bare = host.removeprefix("[").removesuffix("]") if host.startswith("[") and host.endswith("]") else host
    if ":" in bare and bare == host:
        raise ValueError(f"{address!r}: write an IPv6 address as [{host}]:{port}")
    return (bare or None), int(port)


def listener_problems(addresses: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with addresses to listen on, by the names of their flags."""
    for name, address in addresses.items():
        try:
            listener(address)
        except ValueError as err:
            yield f"--{name}: {err}"
