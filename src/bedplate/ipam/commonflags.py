"""What the flags of both programs share: feature gates, addresses to listen on, the shape of the help. Pure."""

# Flags are made by a function, and no value of them can be changed.

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bedplate.core import flag_groups
from bedplate.core.flag_groups import Group
from bedplate.core.flags import Parsed, flag

__all__ = ["GATES", "Common", "help_text", "listener", "superfluous"]

_WIDTH = 100

GATES = ("AllAlpha", "AllBeta", "ContextualLogging", "LoggingAlphaOptions", "LoggingBetaOptions")


@dataclass(frozen=True, slots=True)
class Common:
    """Common."""

    feature_gates: tuple[str, ...] = flag((), f"NAME=true|false; accepted without effect: {', '.join(GATES)}.")


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


def superfluous(parsed: Parsed) -> Iterator[str]:
    """Words that are no flags. The original lets empty ones pass: what a template leaves of a flag that is not set."""
    return (f"takes no arguments, but was given {word!r}" for word in parsed.arguments if word)


def help_text(
    program: str, about: Sequence[str], examples: Sequence[str], groups: Sequence[Group], defaults: Any
) -> str:
    """The whole of `--help`."""
    lines = [textwrap.fill(text, _WIDTH) + "\n" for text in about]
    lines += [f"Usage:\n  {program} [flags]\n", "Examples:", *(f"  {program} {words}" for words in examples)]
    lines += flag_groups.sections(groups, defaults)
    return "\n".join(lines) + "\n"
