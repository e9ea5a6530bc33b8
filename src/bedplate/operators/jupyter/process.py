"""`jupyter-kernel-operator` as a program: its options, its help, its assembly."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from bedplate.core import logging
from bedplate.operators.jupyter.names import OPERATOR
from bedplate.operators.jupyter.options import Options, read
from bedplate.program import process
from bedplate.program.options import help_text
from bedplate.program.process import Program

__all__ = ["PROGRAM", "main"]

_ABOUT = (
    "Turns every CMJupyterKernel into a pod with a kernel and the sidecar that connects it to Jupyter Enterprise "
    "Gateway, run as its user and without privileges; removes everything when the kernel or the gateway is gone."
)
_EXITS = (
    "Exit code: 0 after SIGTERM or SIGINT (a second one stops it immediately), 1 for everything else: a wrong "
    "command line, lost leadership, no cluster to work for."
)
_EXAMPLES = (
    "--kubeconfig=admin.conf -v=2",
    "--leader-elect --sidecar-image=registry.example/bedplate:1.0.0",
    "--kubeconfig=admin.conf --namespace=john-restricted",
)


def _start(options: Options, environ: Mapping[str, str]) -> Coroutine[Any, Any, None]:
    from bedplate.operators.jupyter.assembly import Assembly

    return Assembly(options, environ).run()


PROGRAM: Program[Options] = Program(
    name=OPERATOR,
    log=logging.get_logger("jupyter"),
    part="operator",
    read=read,
    usage=lambda: help_text(OPERATOR, (_ABOUT, _EXITS), _EXAMPLES, Options()),
    start=_start,
    facts=lambda options: {"sidecar_image": options.operating.sidecar_image},
)


def main(words: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    return process.main(PROGRAM, words)
