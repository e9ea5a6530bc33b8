"""A program as a process: from a command line to an exit code.

In: the words of the command line, the environment, standard output and error. Out: an exit code. Help and version are
printed; problems are printed together, with the way to the help; everything else is the program's `start`, run by a
runner that handles signals.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TextIO

from bedplate import __version__
from bedplate.core import errors, flags, flags_global, logging
from bedplate.program.options import O, Reading, shown

__all__ = ["FAILED", "Program", "Runner", "main", "run"]

Work = Coroutine[Any, Any, None]
Runner = Callable[[Work], None]
FAILED = 1
STOPS_WITHIN_S = 9.0


@dataclass(frozen=True, slots=True)
class Program(Generic[O]):
    """What one program adds to the skeleton."""

    name: str
    log: logging.Logger
    part: str
    """The first word of its log events: `manager` for `manager.starting`."""
    read: Callable[[Sequence[str]], Reading[O]]
    usage: Callable[[], str]
    """The text of `--help`."""
    start: Callable[[O, Mapping[str, str]], Work]
    """The work itself, with the environment; imports what only a running program needs."""
    check: Callable[[O], Iterable[str]] = lambda options: ()
    """Problems that need more than the options to be seen: files, registries."""
    facts: Callable[[O], Mapping[str, object]] = lambda options: {}
    """Values of the first log line."""
    dry_run: Callable[[O], str] = lambda options: ""
    """What a dry run leaves undone; empty when this is none."""
    leadership_lost: str = "leader election lost"


def main(program: Program[O], words: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    return run(program, words, dict(os.environ), _until_stopped, sys.stdout, sys.stderr)


def _until_stopped(work: Work) -> None:
    from bedplate.program import stopping

    stopping.run_until_stopped(work, stops_within_s=STOPS_WITHIN_S)


def run(
    program: Program[O],
    words: Sequence[str],
    environ: Mapping[str, str],
    runner: Runner,
    out: TextIO,
    err: TextIO,
) -> int:
    """The whole program; returns its exit code."""
    reading = program.read(words)
    options = reading.options
    if not reading.syntax:
        if options.globals.help:
            out.write(program.usage())
            return 0
        if options.globals.version != "false":
            out.write(flags_global.version_text(program.name, __version__, options.globals.version))
            return 0
    problems = [*reading.problems, *program.check(options)]
    if problems:
        err.write("".join(f"Error: {text}\n" for text in problems) + "\n" + flags.short_usage(program.name))
        return FAILED
    logging.configure(flags_global.log_options(options.globals, options.given, environ), err, out)
    _log_start(program, options)
    try:
        runner(program.start(options, environ))
    except errors.BedplateError as failure:
        err.write(f"{program.name}: {_described(program, failure)}\n")
        return FAILED
    program.log.info(f"{program.part}.stopped")
    return 0


def _described(program: Program[O], failure: errors.BedplateError) -> str:
    from bedplate.runtime.leaderelection import LeadershipLost

    if isinstance(failure, LeadershipLost):
        return f"{program.leadership_lost}: {failure}"
    return errors.describe(failure)


def _log_start(program: Program[O], options: O) -> None:
    log, part = program.log, program.part
    log.info(f"{part}.starting", version=__version__, **program.facts(options))
    for name, value in shown(options):
        log.v(1).info(f"{part}.flag", flag=f"--{name}", value=value)
    for flag in flags.all_flags(options.GROUPS):
        if flag.deprecated and flag.name in options.given:
            log.warning(f"{part}.deprecated_flag", flag=f"--{flag.name}", hint=flag.deprecated)
    effect = program.dry_run(options)
    if effect:
        log.info(f"{part}.dry_run", effect=effect)
