"""What the flags of `ipam-controller` and `ipam-node` have in common. Pure."""

# Flags are made by a function, and no value of them can be changed.

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bedplate.core import flags_global
from bedplate.core.flags import flag
from bedplate.core.flags_global import Global

__all__ = ["Common", "problems", "refuse"]

GATES = ("AllAlpha", "AllBeta", "ContextualLogging", "LoggingAlphaOptions", "LoggingBetaOptions")


@dataclass(frozen=True, slots=True)
class Common:
    """Flags of both programs."""

    feature_gates: tuple[str, ...] = flag((), f"NAME=true|false; accepted without effect: {', '.join(GATES)}.")


def refuse(word: str) -> str | None:
    """The problem with a word that is not a flag. The originals ignore empty ones, which a template leaves of a flag
    that is not set."""
    return f"takes no arguments, but was given {word!r}" if word else None


def problems(common: Common, chosen: Global) -> Iterator[str]:
    """What is wrong with the flags of both programs."""
    yield from flags_global.gate_problems(common.feature_gates, GATES)
    yield from flags_global.problems(chosen)
