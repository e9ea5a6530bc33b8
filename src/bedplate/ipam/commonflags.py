"""What the command lines of `ipam-controller` and `ipam-node` have in common.

In: the words of a command line, a program's own options and their checks. Out: the options and every problem found.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from bedplate.core import flags_global
from bedplate.core.flags import Group, flag
from bedplate.core.flags_global import Global
from bedplate.program import options as program
from bedplate.program.options import Reading

__all__ = ["GROUPS", "Options", "read"]

GATES: dict[str, str] = {
    "AllAlpha": "",
    "AllBeta": "log lines always carry their context, and --vmodule and --logging-format always work",
    "ContextualLogging": "log lines always carry their context",
    "LoggingAlphaOptions": "",
    "LoggingBetaOptions": "--vmodule and --logging-format always work",
}
"""The gates there are, and why one cannot be switched off; empty where it can."""
_ALPHA = ("log-json-info-buffer-size", "log-json-split-stream", "log-text-info-buffer-size", "log-text-split-stream")


@dataclass(frozen=True, slots=True)
class Common:
    """Flags of both programs."""

    feature_gates: tuple[str, ...] = flag(
        (),
        f"NAME=true|false, of {', '.join(GATES)}. LoggingAlphaOptions=false refuses --log-*-split-stream and "
        "--log-*-info-buffer-size; what is always on cannot be set to false.",
    )


GROUPS = (Group("common", "Common", Common), Group("globals", "Logging and information", Global))
"""The last sections of `--help`."""


@dataclass(frozen=True, slots=True)
class Options(program.Options):
    """What either program was told; each adds a field for every group of its own."""

    common: Common = field(default_factory=Common)


O = TypeVar("O", bound=Options)  # noqa: E741


def read(kind: type[O], words: Sequence[str], validate: Callable[[O], Iterable[str]]) -> Reading[O]:
    """Parse a command line; every problem of syntax and values is reported."""

    def problems(options: O) -> Iterable[str]:
        yield from validate(options)
        yield from flags_global.gate_problems(options.common.feature_gates, GATES)
        yield from _gate_conflicts(options)
        yield from flags_global.problems(options.globals)

    return program.read(kind, words, refuse=_refuse, validate=problems)


def _gate_conflicts(options: O) -> Iterable[str]:
    """What a gate that is set to false forbids, and those that cannot be."""
    for word in options.common.feature_gates:
        name, _, value = word.partition("=")
        if value.lower() not in ("false", "f", "0") or name not in GATES:
            continue
        if GATES[name]:
            yield f"--feature-gates: {name}=false is not possible: {GATES[name]}"
        elif name == "LoggingAlphaOptions":
            yield from (f"--{flag}: LoggingAlphaOptions=false forbids it" for flag in _ALPHA if flag in options.given)


def _refuse(word: str) -> str | None:
    """The problem with a word that is not a flag. The originals ignore empty ones, which a template leaves of a flag
    that is not set."""
    return f"takes no arguments, but was given {word!r}" if word else None
