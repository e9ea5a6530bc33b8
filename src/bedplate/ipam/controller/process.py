"""`ipam-controller` as a program: its options, its help, its assembly."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from bedplate.core import logging
from bedplate.ipam.controller.options import Options, read
from bedplate.program import process
from bedplate.program.options import help_text
from bedplate.program.process import Program

__all__ = ["PROGRAM", "main"]

_ABOUT = (
    "Assigns every node that a pool selects a block of the pool's addresses, and writes the blocks to the pool's "
    "status, where the daemons on the nodes read them. With --webhook it also rejects invalid pools."
)
_EXITS = (
    "Exit code: 0 after SIGTERM or SIGINT (a second one stops it immediately), 1 for everything else: a wrong "
    "command line, lost leadership, no cluster to manage."
)
_EXAMPLES = (
    "--kubeconfig=admin.conf --ippools-namespace=kube-system -v=2",
    "--leader-elect=true --leader-elect-namespace=kube-system --webhook=true",
    "--kubeconfig=admin.conf --dry-run",
    "--webhook --webhook-self-signed",
    "--allocation-mode=upstream --quarantine=off",
)


def _start(options: Options, environ: Mapping[str, str]) -> Coroutine[Any, Any, None]:
    from bedplate.ipam.controller.assembly import Assembly

    return Assembly(options, environ).run()


PROGRAM: Program[Options] = Program(
    name="ipam-controller",
    log=logging.get_logger("ipam.controller"),
    part="controller",
    read=read,
    usage=lambda: help_text("ipam-controller", (_ABOUT, _EXITS), _EXAMPLES, Options()),
    start=_start,
    facts=lambda options: {"pools_namespace": options.controlling.ippools_namespace},
    dry_run=lambda options: "nothing is written" if options.allocating.dry_run else "",
)


def main(words: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    return process.main(PROGRAM, words)
