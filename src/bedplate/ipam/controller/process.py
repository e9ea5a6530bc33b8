"""`ipam-controller` as a program: its options, its help, its assembly."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from bedplate.core import logging
from bedplate.ipam.controller import usage
from bedplate.ipam.controller.options import Options, read
from bedplate.program import process
from bedplate.program.process import Program

__all__ = ["PROGRAM", "main"]


def _start(options: Options, environ: Mapping[str, str]) -> Coroutine[Any, Any, None]:
    from bedplate.ipam.controller.assembly import Assembly

    return Assembly(options, environ).run()


PROGRAM: Program[Options] = Program(
    name="ipam-controller",
    log=logging.get_logger("ipam.controller"),
    part="controller",
    read=read,
    usage=lambda: usage.full("ipam-controller"),
    start=_start,
    facts=lambda options: {"pools_namespace": options.controlling.ippools_namespace},
    dry_run=lambda options: "nothing is written" if options.allocating.dry_run else "",
)


def main(words: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    return process.main(PROGRAM, words)
