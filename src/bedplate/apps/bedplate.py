"""The `bedplate` program: one command that finds all others.

In: the command line. Out: the exit code of the command that was named.
"""

from __future__ import annotations

import sys

import click

import bedplate
from bedplate.cli import lazygroup
from bedplate.core import errors, logging

__all__ = ["main"]

_CLI = "bedplate.cli"
# name -> (module, attribute, one-line help); the order is the order of `bedplate --help`.
COMMANDS: dict[str, lazygroup.Entry] = {
    "up": (f"{_CLI}.up.command", "up", "Run everything on this machine: API server, simulated nodes, controllers."),
    "apiserver": ("bedplate.apiserver.cli", "apiserver", "Run the embedded Kubernetes API server alone."),
    "kubectl": (f"{_CLI}.kubectl", "kubectl", "Run kubectl, from the PATH or from the cache."),
    "lab": ("bedplate.lab.cli", "lab", "Real multi-node Kubernetes on this machine."),
    "binaries": ("bedplate.lab.cli", "binaries", "Build and list Kubernetes programs in the cache."),
    "ccm": (f"{_CLI}.ccm", "ccm", "The cloud controller manager: run it, or explain the state of a node."),
    "ipam": (f"{_CLI}.ipam.command", "ipam", "Addresses for pods: pools, blocks, allocations, and explanations."),
    "permissions": (
        f"{_CLI}.permissions",
        "permissions",
        "People on a cluster: what the permission manager needs there.",
    ),
    "head": (
        f"{_CLI}.head.command",
        "head",
        "The head node: create, serve and back it up; manage tokens and certificates.",
    ),
    "cmsh": ("bedplate.ui.cmsh.program", "cmsh", "The shell of the head node: one line, a file, or at a terminal."),
    "agent": (
        f"{_CLI}.agents",
        "agent",
        "The node agent: install it over ssh, run it, show what holds, what is pending, what checks say.",
    ),
    "sim": (f"{_CLI}.sim.command", "sim", "Simulated nodes, and simulated NVIDIA BMM and Oxide clouds."),
    "can": (f"{_CLI}.can.command", "can", "May this user run that pod? Who may do what where?"),
    "doctor": (f"{_CLI}.doctor.command", "doctor", "Diagnose the programs of a cluster."),
    "completion": (f"{_CLI}.completion", "completion", "Print completion scripts for bash, zsh and fish."),
}
# command -> the extras that it cannot do without
NEEDS = {"up": ("apiserver", "head"), "apiserver": ("apiserver",), "head": ("head",), "cmsh": ("head",)}

EXAMPLES = """
\b
Examples:
  bedplate up                                   a site of 20 machines, in ./.bedplate
  bedplate apiserver --data ./data --port 6443 --kubeconfig-out kubeconfig
  bedplate lab up --nodes 3                     real kubelets, containerd and DNS (needs root)
  bedplate lab kubectl -- get nodes
"""


@click.group(
    cls=lazygroup.LazyGroup,
    table=COMMANDS,
    needs=NEEDS,
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(bedplate.__version__, prog_name="bedplate")
@click.option(
    "-v",
    "--v",
    "verbosity",
    type=lazygroup.LEVEL,
    default=0,
    metavar="N",
    help="Log level, as in Kubernetes (0-10).",
)
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Format of log lines."
)
def root(verbosity: int, log_format: str) -> None:
    """Everything between bare metal and a working Kubernetes cluster."""
    click.get_current_context().color = lazygroup.color()
    logging.configure(logging.LogOptions(verbosity=verbosity, format=log_format, color=lazygroup.color()))


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; errors become one message and an exit code, never a traceback (unless -v 4)."""
    try:
        root.main(arguments, prog_name="bedplate")
    except errors.BedplateError as err:
        if logging.verbosity() >= 4:
            raise
        click.echo("bedplate: " + errors.describe(err), err=True)
        sys.exit(err.exit_code)


if __name__ == "__main__":
    main()
