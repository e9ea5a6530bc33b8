"""Flags that every Kubernetes program has (log level, log format, version, help) and what they mean.

In: their values. Out: how to log, the text of `--version`, and what is wrong with them. Pure.
"""

# Flags are made by a function, and no value of them can be changed.
# ruff: noqa: RUF009

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bedplate.core import logging
from bedplate.core.duration import format_duration
from bedplate.core.flags import Duration, flag, parse_bool
from bedplate.core.logstreams import parse_size

__all__ = ["Global", "gate_problems", "log_options", "problems", "version_text"]

_BUFFER = "With --log-{0}-split-stream: bytes of standard output that may be buffered (512, 64k, 1Mi); 0: none."
_SPLIT = "With --logging-format={0}: errors on standard error and all other lines on standard output."


@dataclass(frozen=True, slots=True)
class Global:
    """Logging and information."""

    help: bool = flag(False, "Show this.", short="h")
    log_flush_frequency: Duration = flag(5.0, "Longest time that a buffered line waits to be written.")
    log_json_info_buffer_size: str = flag("0", _BUFFER.format("json"))
    log_json_split_stream: bool = flag(False, _SPLIT.format("json"))
    log_text_info_buffer_size: str = flag("0", _BUFFER.format("text"))
    log_text_split_stream: bool = flag(False, _SPLIT.format("text"))
    logging_format: str = flag("text", "text or json.")
    v: int = flag(0, "Log level: 0 what operators must know, 2 decisions, 4 details, 6 requests, 8 bodies.", short="v")
    version: str = flag("false", "Show the version; --version=raw shows its parts.", is_bare=True)
    vmodule: tuple[str, ...] = flag((), "NAME=N, separated by commas: the log level of single loggers (* and ? work).")


def problems(chosen: Global) -> Iterator[str]:
    """What is wrong with these flags."""
    if chosen.logging_format not in ("text", "json"):
        yield f"--logging-format: {chosen.logging_format!r} is neither text nor json"
    if chosen.log_flush_frequency <= 0:
        yield f"--log-flush-frequency: must be greater than 0, is {format_duration(chosen.log_flush_frequency)}"
    for name, size in (("json", chosen.log_json_info_buffer_size), ("text", chosen.log_text_info_buffer_size)):
        try:
            parse_size(size)
        except ValueError as err:
            yield f"--log-{name}-info-buffer-size: {err}"
    try:
        _vmodule(chosen.vmodule)
    except ValueError as err:
        yield f"--vmodule: {err}"


def log_options(chosen: Global, given: Collection[str], environ: Mapping[str, str]) -> logging.LogOptions:
    """How to log; a level that was given before these flags (`bedplate -v 4 ccm run`) counts where they give none."""
    level = chosen.v if "v" in given else max(chosen.v, logging.verbosity())
    is_json = chosen.logging_format == "json"
    return logging.LogOptions(
        level,
        chosen.logging_format,
        color=False if environ.get("NO_COLOR") else None,
        vmodule=_vmodule(chosen.vmodule),
        is_split=chosen.log_json_split_stream if is_json else chosen.log_text_split_stream,
        info_buffer=parse_size(chosen.log_json_info_buffer_size if is_json else chosen.log_text_info_buffer_size),
        flush_s=chosen.log_flush_frequency,
    )


def version_text(program: str, version: str, form: str) -> str:
    """What `--version` prints; `wanted` is `true` or `raw`."""
    if form == "raw":
        import platform

        return f"{program} version={version!r} python={platform.python_version()!r}\n"
    return f"{program} v{version}\n"


def gate_problems(words: Sequence[str], known: Collection[str]) -> list[str]:
    """What is wrong with a list of feature gates; `known` are the names there are."""
    problems = []
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            problems.append(f"--feature-gates: {word!r} lacks a value (write {word}=true)")
            continue
        if name not in known:
            problems.append(f"--feature-gates: unrecognized feature gate: {name}")
        try:
            parse_bool(value)
        except ValueError:
            problems.append(f"--feature-gates: {name}: {value!r} is neither true nor false")
    return problems


def _vmodule(words: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    levels = []
    for word in words:
        pattern, equals, level = word.rpartition("=")
        if not equals or not pattern or not level.isdigit():
            raise ValueError(f"{word!r} is not NAME=N")
        levels.append((pattern, int(level)))
    return tuple(levels)
