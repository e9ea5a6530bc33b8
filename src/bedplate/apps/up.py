"""`bedplate up`: everything on this machine, without root: the embedded API server and simulated nodes.

In: flags; data of an earlier run in the data folder. Out: a kubeconfig, a line to paste, and a live view (or plain
lines) until Ctrl-C, which stops all of it. The data stays, and the next start takes the same port if it is free.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import click

from bedplate.apps import fleet as fleets
from bedplate.apps import stopping
from bedplate.cli import display
from bedplate.core import errors, logging

__all__ = ["up"]

EXAMPLES = """
\b
Examples:
  bedplate up                          50 nodes, live view
  bedplate up --nodes 1000 --plain     lines instead of a live view
  bedplate up --data ~/try             keep the data somewhere else
"""


@dataclass(frozen=True, slots=True)
class Options:
    data: Path
    nodes: int
    port: int
    is_plain: bool


@click.command(epilog=EXAMPLES)
@click.option(
    "--data", type=click.Path(path_type=Path), default=Path(".bedplate"), show_default=True, help="Folder for state."
)
@click.option(
    "--nodes", type=click.IntRange(0, 10_000), default=50, show_default=True, help="How many simulated nodes."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="API server port; 0 takes the last one used, or a free one.",
)
@click.option("--plain", "is_plain", is_flag=True, help="No live display: one line when something changed.")
@click.pass_context
def up(ctx: click.Context, data: Path, nodes: int, port: int, is_plain: bool) -> None:
    """Run an embedded API server with simulated nodes on this machine."""
    options = Options(data, nodes, port, is_plain or not display.is_terminal())
    with contextlib.ExitStack() as files:
        if logging.verbosity() == 0:
            # Log lines would write over the live view, and drown the few lines of the plain one.
            format_ = ctx.find_root().params.get("log_format", "text")
            logging.configure(logging.LogOptions(format=format_), files.enter_context(_log_file(data)))
        stopping.run_until_stopped(_run(options))


def _log_file(data: Path) -> TextIO:
    try:
        data.mkdir(parents=True, exist_ok=True)
        return (data / "up.log").open("a", encoding="utf-8")
    except OSError as err:
        raise errors.Invalid(f"cannot use {data} as the data folder", hint="choose another with --data") from err


async def _run(options: Options) -> None:
    from bedplate.apiserver import server

    started = time.monotonic()
    kubeconfig = options.data.resolve() / "kubeconfig"
    settings = server.Options(data=options.data / "apiserver", port=_port(options), kubeconfig_out=kubeconfig)
    async with server.ApiServer(settings) as running:
        (options.data / "port").write_text(running.url.rsplit(":", 1)[1])
        said = [f"API server ready after {time.monotonic() - started:.1f} s at {running.url}"]
        said += ["", f"  export KUBECONFIG={shlex.quote(str(kubeconfig))}", ""]
        click.echo("\n".join(said))
        try:
            await _simulate(options, kubeconfig, started, said)
        finally:
            click.echo(f"stopped; the data is kept in {options.data}")


def _port(options: Options) -> int:
    """The port asked for, else the last one if it is free, else any."""
    remembered = options.data / "port"
    if options.port or not remembered.exists():
        return options.port
    try:
        last = int(remembered.read_text())
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", last))
    except (OSError, ValueError):
        return 0
    return last


async def _simulate(options: Options, kubeconfig: Path, started: float, said: list[str]) -> None:
    from bedplate.cli import clusterview
    from bedplate.kube import Client, config

    settings = config.load(kubeconfig, environ=os.environ).with_rate(-1, 0).with_user_agent("bedplate-sim")
    async with Client(settings) as client:
        fleet = fleets.assemble(client, options.nodes)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fleet.manager.run())
            await fleet.kubelets.registered.wait()
            await _seen(fleet, options.nodes)
            more = [f"{options.nodes} simulated nodes ready after {time.monotonic() - started:.1f} s; Ctrl-C stops all"]
            more.append(_next_step())
            click.echo("\n".join(more))

            def look() -> clusterview.Picture:
                return clusterview.Picture(tuple(fleet.nodes), tuple(fleet.pods))

            if options.is_plain:
                await clusterview.follow_plain(look)
            else:
                await clusterview.follow_live(look, [*said, *more], started)


def _next_step() -> str:
    from bedplate.lab import binaries

    if shutil.which("kubectl") is not None:
        return "try: kubectl get nodes"
    program = os.path.relpath(shutil.which(sys.argv[0]) or "bedplate")
    if binaries.cached("kubectl") is not None:
        return f"try: {program} kubectl get nodes"
    return f"there is no kubectl here yet; to build one: {program} binaries get kubectl"


async def _seen(fleet: fleets.Fleet, count: int) -> None:
    deadline = time.monotonic() + 60
    while sum(node.is_ready for node in fleet.nodes if node.metadata.name in fleet.kubelets.machines) < count:
        if time.monotonic() > deadline:
            raise errors.Unavailable("the simulated nodes did not become ready", hint="see up.log in the data folder")
        await asyncio.sleep(0.05)
