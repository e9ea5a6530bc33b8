"""`permissions-manager` as a program: its options, its help, its assembly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bedplate.core import logging
from bedplate.operators.permissions.options import Options, read
from bedplate.program import process
from bedplate.program.options import help_text
from bedplate.program.process import Program

__all__ = ["PROGRAM", "main"]

_ABOUT = (
    "Gives people their namespaces and rights, as custom resources in the namespace cm-permissions say, and holds "
    "their pods to the rules: own UID and GIDs, own host paths, no privileges. Install its objects first: "
    "bedplate permissions manifests | kubectl apply --server-side -f -"
)
_EXITS = (
    "Exit code: 0 after SIGTERM or SIGINT (a second one stops it immediately), 1 for everything else: a wrong "
    "command line, no cluster to manage."
)
_EXAMPLES = ("--kubeconfig=admin.conf --webhook-port=9443", "--admission-policies=off -v=2")


log = logging.get_logger("permissions")


async def _start(options: Options, environ: Mapping[str, str]) -> None:
    from bedplate.operators.permissions.assembly import Assembly
    from bedplate.runtime.leaderelection import LeadershipLost

    while True:
        try:
            return await Assembly(options, environ).run()
        except LeadershipLost as err:
            # Reviews must be answered all the same: no supervisor may be there to start the program again.
            log.warning("manager.leadership_lost", error=str(err), effect="goes on as a candidate")


PROGRAM: Program[Options] = Program(
    name="permissions-manager",
    log=log,
    part="manager",
    read=read,
    usage=lambda: help_text("permissions-manager", (_ABOUT, _EXITS), _EXAMPLES, Options()),
    start=_start,
)


def main(words: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    return process.main(PROGRAM, words)
