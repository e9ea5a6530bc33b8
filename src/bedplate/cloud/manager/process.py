"""The manager as a program: from a command line to an exit code.

In: the words of the command line, the environment, standard output and error. Out: an exit code. Help and version are
printed; problems are printed together, with the way to the help; everything else is `Assembly.run`, run by the runner
that is passed in (it knows about signals).
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from bedplate import __version__
from bedplate.cloud import registry
from bedplate.cloud.manager import options as reading
from bedplate.cloud.manager import usage, validation
from bedplate.cloud.manager.assembly import Assembly
from bedplate.cloud.manager.configz import shown_flags
from bedplate.cloud.manager.options import Options
from bedplate.core import errors, flag_groups, flags_global, logging
from bedplate.runtime.leaderelection import LeadershipLost

__all__ = ["Program", "Runner", "defaults_for", "main", "run"]

log = logging.get_logger("cloud.manager")
Runner = Callable[[Coroutine[Any, Any, None]], None]
FAILED = 1
STOPS_WITHIN_S = 9.0


@dataclass(frozen=True, slots=True)
class Program:
    """Under which name the manager was started; a program named after a cloud works for it when told nothing else."""

    name: str
    provider: str = ""


def defaults_for(program: Program) -> Options:
    """The flags' defaults for this program."""
    base = Options()
    if not program.provider:
        return base
    return dataclasses.replace(base, generic=dataclasses.replace(base.generic, cloud_provider=(program.provider,)))


def main(program: Program, words: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    return run(program, words, dict(os.environ), _until_stopped, sys.stdout, sys.stderr)


def _until_stopped(work: Coroutine[Any, Any, None]) -> None:
    from bedplate.program import stopping

    stopping.run_until_stopped(work, stops_within_s=STOPS_WITHIN_S)


def run(
    program: Program,
    words: Sequence[str],
    environ: Mapping[str, str],
    runner: Runner,
    out: TextIO,
    err: TextIO,
) -> int:
    """The whole program; returns its exit code."""
    read = reading.read(words, defaults_for(program))
    options = read.options
    if options.globals.help and not read.problems:
        out.write(usage.full(program.name, program.provider, defaults_for(program)))
        return 0
    if options.globals.version != "false" and not read.problems:
        out.write(flags_global.version_text(program.name, __version__, options.globals.version))
        return 0
    problems = [*read.problems, *validation.problems(options, registry.names())]
    if problems:
        err.write("".join(f"Error: {text}\n" for text in problems) + "\n" + flag_groups.short_usage(program.name))
        return FAILED
    logging.configure(flags_global.log_options(options.globals, options.given, environ), err)
    _log_start(program, options)
    return _run(program, Assembly(options, environ), runner, err)


def _run(program: Program, assembly: Assembly, runner: Runner, err: TextIO) -> int:
    try:
        runner(assembly.run())
    except LeadershipLost as lost:
        err.write(f"{program.name}: leaderelection lost: {lost}\n")
        return FAILED
    except errors.BedplateError as failure:
        err.write(f"{program.name}: {errors.describe(failure)}\n")
        return FAILED
    log.info("manager.stopped")
    return 0


def _log_start(program: Program, options: Options) -> None:
    log.info("manager.starting", program=program.name, version=__version__)
    for name, value in shown_flags(options):
        log.v(1).info("manager.flag", flag=f"--{name}", value=value)
    for one in reading.all_flags():
        if one.deprecated and one.name in options.given:
            log.warning("manager.deprecated_flag", flag=f"--{one.name}", hint=one.deprecated)
    if options.generic.dry_run:
        log.info("manager.dry_run", effect="nothing is written, neither to Kubernetes nor to a cloud")
