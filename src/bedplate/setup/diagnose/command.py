"""The command line of cm-kube-diagnose.

In: words. Out: a report on standard output, or an archive, and an exit code: 0 nothing is wrong, 1 something is, 2
wrong usage, no head or cluster, or an archive that cannot be written, 3 not all could be read.
"""

from __future__ import annotations

import asyncio
import pathlib
import sys
from typing import Any

import click

import bedplate
from bedplate.core import errors, logging
from bedplate.core.clock import SystemClock
from bedplate.setup.diagnose.report import Report
from bedplate.setup.targets import check_target

__all__ = ["PROGRAM", "command"]

PROGRAM = "cm-kube-diagnose"
_file = click.Path(path_type=pathlib.Path, dir_okay=False)


_EXAMPLES = """
Examples:
  cm-kube-diagnose                                      the only cluster, for people
  cm-kube-diagnose --cluster default --archive report.tar.gz
  cm-kube-diagnose -o json | jq .findings

Exit codes: 0 nothing is wrong, 1 something is, 2 wrong usage or no such cluster, 3 not all could be read.
"""


class _Command(click.Command):
    """Help that ends with examples as they stand."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(_EXAMPLES)


@click.command(
    PROGRAM, cls=_Command, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.option("--cluster", metavar="NAME", help="Name of the cluster. [default: the only one]")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Format.")
@click.option("--archive", type=_file, metavar="FILE", help="Write a tar.gz with a file for each section as well.")
@click.option("--url", multiple=True, metavar="URL", help="URL of a head; repeat it for every head of the site.")
@click.option(
    "--data", type=click.Path(path_type=pathlib.Path, file_okay=False), metavar="DIR", help="Data folder of a head."
)
@click.option("--token-file", type=_file, metavar="FILE", help="Bearer token for the head.")
@click.option("--cert", type=_file, metavar="FILE", help="Client certificate for the head.")
@click.option("--key", type=_file, metavar="FILE", help="Its key.")
@click.option("--cacert", type=_file, metavar="FILE", help="The authority that signed the head's certificate.")
@click.version_option(bedplate.__version__, prog_name=PROGRAM)
def command(**values: Any) -> None:
    """Collect how a Kubernetes cluster stands into one report: nodes, certificates, versions, checks, events, etcd,
    logs. It also works while no API server answers, and secrets in it are stars."""
    logging.configure(logging.LogOptions(is_quiet=True))
    try:
        if values["archive"] is not None:
            check_target(values["archive"])
        report = asyncio.run(_collect(values))
        # First: a disk that is full must not take away what was collected.
        sys.stdout.write(report.json() if values["output"] == "json" else report.text())
        sys.stdout.flush()
        if values["archive"] is not None:
            report.archive(values["archive"], SystemClock().now())
        code = report.exit_code
    except errors.BedplateError as err:
        click.echo(f"{PROGRAM}: {errors.describe(err)}", err=True)
        code = 2
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


async def _collect(values: dict[str, Any]) -> Report:
    from bedplate.setup.diagnose.collecting import collect
    from bedplate.setup.tool import heads
    from bedplate.setup.tool.caretaking import cluster_of

    async with heads.reach(values) as reached:
        cluster = cluster_of(values, reached)
        tree = reached.backend.tree
        return await collect(reached.backend.fleet, tree, cluster, reached.data, SystemClock())
