"""`bedplate ccm …`: the cloud controller manager, and the commands that explain its decisions.

In: the command line, the environment. Out: exit codes. `bedplate ccm run` takes the flags of the manager's programs,
with Go's grammar: `cloud.manager` parses them.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click

from bedplate.cli import cluster, display

__all__ = ["ccm"]


@click.group(
    epilog=display.examples(
        "bedplate ccm run --cloud-provider=oxide --kubeconfig=admin.conf -v=2",
        "bedplate ccm explain node worker-1",
        "bedplate ccm explain service default/web",
    )
)
def ccm() -> None:
    """The cloud controller manager."""


RUN_EXAMPLES = """
\b
Examples:
  bedplate ccm run --cloud-provider=oxide --kubeconfig=admin.conf -v=2
  bedplate ccm run --cloud-provider=nvidia-bmm,oxide --cloud-config=nvidia-bmm=bmm.yaml,oxide=oxide.yaml
  bedplate ccm run --help
"""


@ccm.command(
    short_help="Run the manager for one or several clouds.",
    epilog=RUN_EXAMPLES,
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False},
)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def run(flags: tuple[str, ...]) -> None:
    """Run the manager for one or several clouds; --help shows every flag."""
    from bedplate.cloud.manager import process

    sys.exit(process.main("bedplate ccm run", "", flags))


_EXPLAIN = {"ignore_unknown_options": True, "allow_extra_args": True}
NODE_EXAMPLES = """
\b
Examples:
  bedplate ccm explain node worker-1                 with the flags of the manager that works for the cluster
  bedplate ccm explain node worker-1 --cloud-provider=nvidia-bmm --cloud-config=cloud-config.yaml
  bedplate ccm explain node worker-1 --cloud-provider=oxide --kubeconfig=admin.conf -o json
"""
SERVICE_EXAMPLES = """
\b
Examples:
  bedplate ccm explain service default/web
  bedplate ccm explain service default/web --cloud-provider=oxide
  bedplate ccm explain service default/web --cloud-provider=oxide --load-balancer-class=oxide.computer/lb -o json
"""


@ccm.group(
    short_help="Explain the state of a node or a Service.",
    epilog=display.examples("bedplate ccm explain node worker-1", "bedplate ccm explain service default/web -o json"),
)
def explain() -> None:
    """Explain the state of an object, from the live cluster and clouds; nothing is changed.

    Takes the manager's flags, so that it sees what the manager sees. Without --cloud-config it takes them, and the
    manager's environment and files, from the Deployment, DaemonSet or static pod that runs the manager, or from
    `bedplate up`; flags and variables that are given take precedence. Without --kubeconfig it finds the cluster as
    kubectl does, and first that of `bedplate up` in this folder. Exit code: 0 no problem was found, 1 something needs
    attention, 2 wrong flags or configuration, 3 something could not be checked, 4 no such object.
    """


@explain.command(short_help="Explain the state of a node.", epilog=NODE_EXAMPLES, context_settings=_EXPLAIN)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="NAME [FLAGS]...")
def node(words: tuple[str, ...]) -> None:
    """Show why a node is or is not initialised, tainted, deleted, or a target of load balancers."""
    _explain("node", list(words))


@explain.command(
    short_help="Explain the state of a Service's load balancer.", epilog=SERVICE_EXAMPLES, context_settings=_EXPLAIN
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="NAMESPACE/NAME [FLAGS]...")
def service(words: tuple[str, ...]) -> None:
    """Show which provider serves a Service's load balancer, its state, the next action, and the nodes that carry it."""
    _explain("service", list(words))


def _explain(kind: str, words: list[str]) -> NoReturn:
    import asyncio
    import dataclasses

    from bedplate.cloud.manager import explaining
    from bedplate.core import explanation, flags_global, logging

    request = explaining.read(kind, words)
    log = flags_global.log_options(request.options.globals, request.options.given, os.environ)
    logging.configure(dataclasses.replace(log, is_quiet=log.verbosity == 0))
    cluster.check_up(request.options.misc.kubeconfig)
    with cluster.naming_up():
        answer = asyncio.run(explaining.explain(request, cluster.environ()))
    sys.exit(explanation.show(answer, request.output, sys.stdout))
