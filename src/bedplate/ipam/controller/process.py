"""`ipam-controller` as a program: from a command line to an exit code.

In: the words of the command line, the environment, standard output and error. Out: an exit code. Help and version are
printed; problems are printed together; everything else is `Assembly.run`, run by the runner that is passed in (it
knows about signals).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TextIO

from bedplate import __version__
from bedplate.core import errors, flag_groups, flags, flags_global, logging
from bedplate.ipam.controller import options as reading
from bedplate.ipam.controller import usage
from bedplate.ipam.controller.assembly import PROGRAM, Assembly
from bedplate.ipam.controller.options import Options
from bedplate.runtime.leaderelection import LeadershipLost

__all__ = ["Runner", "main", "run"]

log = logging.get_logger("ipam.controller")
Runner = Callable[[Coroutine[Any, Any, None]], None]
FAILED = 1
STOPS_WITHIN_S = 9.0


def main(words: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    return run(words, dict(os.environ), _until_stopped, sys.stdout, sys.stderr)


def _until_stopped(work: Coroutine[Any, Any, None]) -> None:
    from bedplate.program import stopping

    stopping.run_until_stopped(work, stops_within_s=STOPS_WITHIN_S)


def run(words: Sequence[str], environ: Mapping[str, str], runner: Runner, out: TextIO, err: TextIO) -> int:
    """The whole program; returns its exit code."""
    read = reading.read(words)
    options = read.options
    if options.globals.help:
        out.write(usage.full(PROGRAM))
        return 0
    if options.globals.version != "false":
        out.write(flags_global.version_text(PROGRAM, __version__, options.globals.version))
        return 0
    if read.problems:
        err.write("".join(f"Error: {text}\n" for text in read.problems) + "\n" + flag_groups.short_usage(PROGRAM))
        return FAILED
    logging.configure(flags_global.log_options(options.globals, options.given, environ), err)
    _log_start(options)
    try:
        runner(Assembly(options, environ).run())
    except LeadershipLost as lost:
        err.write(f"{PROGRAM}: leader election lost: {lost}\n")
        return FAILED
    except errors.BedplateError as failure:
        err.write(f"{PROGRAM}: {errors.describe(failure)}\n")
        return FAILED
    log.info("controller.stopped")
    return 0


def _log_start(options: Options) -> None:
    chosen = options.controlling
    log.info("controller.starting", version=__version__, pools_namespace=chosen.ippools_namespace)
    for one, value in options.items():
        log.v(1).info("controller.flag", flag=f"--{one.name}", value=flags.render(one, value))
    if options.allocating.dry_run:
        log.info("controller.dry_run", effect="nothing is written")
