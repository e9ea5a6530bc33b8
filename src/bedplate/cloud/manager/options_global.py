"""Flags that every Kubernetes program has: log level, log format, version, help. Declarations only."""

# Flags are made by a function, and no value of them can be changed.
# ruff: noqa: RUF009

from __future__ import annotations

from dataclasses import dataclass

from bedplate.cloud.manager.flags import Duration, flag

__all__ = ["Global"]

_AT_ONCE = "Accepted without effect: every line is written to standard error at once."


@dataclass(frozen=True, slots=True)
class Global:
    """Logging and information."""

    help: bool = flag(False, "Show this.", short="h")
    log_flush_frequency: Duration = flag(5.0, _AT_ONCE)
    log_json_info_buffer_size: str = flag("0", _AT_ONCE)
    log_json_split_stream: bool = flag(False, _AT_ONCE)
    log_text_info_buffer_size: str = flag("0", _AT_ONCE)
    log_text_split_stream: bool = flag(False, _AT_ONCE)
    logging_format: str = flag("text", "text or json.")
    v: int = flag(0, "Log level: 0 what operators must know, 2 decisions, 4 details, 6 requests, 8 bodies.", short="v")
    version: str = flag("false", "Show the version; --version=raw shows its parts.", is_bare=True)
    vmodule: tuple[str, ...] = flag((), "NAME=N, separated by commas: the log level of single loggers (* and ? work).")
