"""`ipam-controller --help`: every flag in its section, with examples.

In: the name of the program. Out: text. Pure.
"""

from __future__ import annotations

from bedplate.ipam.controller.options import Options
from bedplate.program import options

__all__ = ["full"]

_ABOUT = (
    "Gives every node that a pool selects a block of the pool's addresses, and writes the blocks into the pool's "
    "status, where the daemons on the nodes read them. With --webhook it also refuses pools that cannot work."
)
_EXITS = (
    "Exit code: 0 after SIGTERM or SIGINT (a second one ends it at once), 1 for everything else: a wrong command line, "
    "lost leadership, no cluster to work for."
)
_EXAMPLES = (
    "--kubeconfig=admin.conf --ippools-namespace=kube-system -v=2",
    "--leader-elect=true --leader-elect-namespace=kube-system --webhook=true",
    "--kubeconfig=admin.conf --dry-run",
    "--webhook --webhook-self-signed",
    "--allocation-mode=upstream --quarantine=off",
)


def full(program: str) -> str:
    """The whole help text."""
    return options.help_text(program, (_ABOUT, _EXITS), _EXAMPLES, Options())
