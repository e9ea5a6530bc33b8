"""`ipam-controller --help`: every flag in its section, with examples; and the short text after a mistake.

In: the name of the program. Out: text. Pure.
"""

from __future__ import annotations

import textwrap

from bedplate.core import flags
from bedplate.ipam.controller.options import GROUPS, Options

__all__ = ["full", "short"]

_WIDTH = 100
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


def short(program: str) -> str:
    """What to show after a mistake."""
    return f"Usage:\n  {program} [flags]\n\n{program} --help shows every flag.\n"


def full(program: str) -> str:
    """The whole help text."""
    lines = [textwrap.fill(text, _WIDTH) + "\n" for text in (_ABOUT, _EXITS)]
    lines += [f"Usage:\n  {program} [flags]\n", "Examples:", *(f"  {program} {words}" for words in _EXAMPLES)]
    defaults = Options()
    for group in GROUPS:
        lines += ["", f"{group.title} flags:", ""]
        chosen = getattr(defaults, group.field)
        for one in flags.flags_of(group.kind):
            lines += flags.describe(one, getattr(chosen, one.field))
    return "\n".join(lines) + "\n"
