"""What an action prints with: the reporter of a run, built from the flags.

In: the flags, the state folder. Out: a reporter with its log file and, on a terminal, with the live display.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from bedplate.core.clock import Clock
from bedplate.setup.engine import formats
from bedplate.setup.engine.choices import Chooser
from bedplate.setup.engine.events import Line
from bedplate.setup.engine.logfile import LogFile
from bedplate.setup.engine.reporter import Display, NoDisplay, Reporter

__all__ = ["LOG_FILE", "chooser", "reporter"]

LOG_FILE = pathlib.Path("/var/log/cm-kubernetes-setup.log")


@contextlib.contextmanager
def reporter(
    values: Mapping[str, Any], state: pathlib.Path, clock: Clock, *, has_log: bool = True
) -> Iterator[Reporter]:
    """The reporter of a run. Raises `Invalid` when no log file can be written."""
    log, sentence = None, ""
    if has_log:
        path = values["log_file"] or LOG_FILE
        log, sentence = LogFile.open(path, state / LOG_FILE.name, clock, is_verbose=values["verbose"])
    built = Reporter(_display(values, clock), clock, format_=_format(values), log=log)
    if sentence:
        built.emit(Line(sentence, "warning"))
    try:
        yield built
    finally:
        built.display.hide()
        if log is not None:
            log.close()


def chooser(values: Mapping[str, Any]) -> Chooser:
    """What answers after an error: the flag, or whoever is at the terminal."""
    is_attended = sys.stdin is not None and sys.stdin.isatty() and _format(values) is formats.console
    return Chooser(values["on_error_action"], sys.stdin if is_attended else None)


def _format(values: Mapping[str, Any]) -> formats.Format:
    if values["json"]:
        return formats.as_json
    return formats.as_runner if values["output_remote_execution_runner"] else formats.console


def _display(values: Mapping[str, Any], clock: Clock) -> Display:
    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    is_terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if _format(values) is formats.console and is_terminal and importlib.util.find_spec("rich") is not None:
        from bedplate.setup.engine.display import LiveDisplay

        return LiveDisplay(clock)
    return NoDisplay(write)
