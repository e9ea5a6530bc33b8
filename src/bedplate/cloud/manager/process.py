"""The manager as a program: from a command line to an exit code.

In: the words of the command line, the environment, standard output and error. Out: an exit code. Help and version are
printed; problems are printed together, with the way to the help; everything else is `Assembly.run`, run by the runner
that is passed in (it knows about signals).
"""

from __future__ import annotations

import dataclasses
import platform
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
from bedplate.core import errors, logging
from bedplate.runtime.leaderelection import LeadershipLost

__all__ = ["Program", "Runner", "defaults_for", "log_options", "run"]

log = logging.get_logger("cloud.manager")
Runner = Callable[[Coroutine[Any, Any, None]], None]
FAILED = 1


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
        out.write(_version(program, options.globals.version))
        return 0
    problems = [*read.problems, *validation.problems(options, registry.names())]
    if problems:
        err.write("".join(f"Error: {text}\n" for text in problems) + "\n" + usage.short(program.name))
        return FAILED
    logging.configure(log_options(options, environ), err)
    _log_start(program, options)
    return _run(program, Assembly(options, environ), runner, err)


def log_options(options: Options, environ: Mapping[str, str]) -> logging.LogOptions:
    """How to log; a level that was given before these flags (`bedplate -v 4 ccm run`) counts where they give none."""
    chosen = options.globals
    level = chosen.v if "v" in options.given else max(chosen.v, logging.verbosity())
    return logging.LogOptions(
        level,
        chosen.logging_format,
        color=False if environ.get("NO_COLOR") else None,
        vmodule=validation.vmodule(chosen.vmodule),
    )


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


def _version(program: Program, wanted: str) -> str:
    if wanted == "raw":
        return f"{program.name} version={__version__!r} python={platform.python_version()!r}\n"
    return f"{program.name} v{__version__}\n"


def _log_start(program: Program, options: Options) -> None:
    log.info("manager.starting", program=program.name, version=__version__)
    for name, value in shown_flags(options):
        log.v(1).info("manager.flag", flag=f"--{name}", value=value)
    for one in reading.all_flags():
        if one.deprecated and one.name in options.given:
            log.warning("manager.deprecated_flag", flag=f"--{one.name}", hint=one.deprecated)
    if options.generic.dry_run:
        log.info("manager.dry_run", effect="nothing is written, neither to Kubernetes nor to a cloud")
