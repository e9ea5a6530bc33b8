"""`bedplate up`: everything on this machine, without root: the embedded API server and simulated nodes.

In: flags; data of an earlier run in the data folder. Out: a kubeconfig, a line to paste, and a live view (or plain
lines) until Ctrl-C, which stops all of it. The data stays, and the next start takes the same port if it is free.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bedplate.apps import fleet as fleets
from bedplate.apps import stopping
from bedplate.cli import display
from bedplate.core import errors, logging

if TYPE_CHECKING:
    from rich.panel import Panel

__all__ = ["up"]

EXAMPLES = """
\b
Examples:
  bedplate up                          50 nodes, live view
  bedplate up --nodes 1000 --plain     lines instead of a live view
  bedplate up --data /tmp/try          keep the data somewhere else
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
def up(data: Path, nodes: int, port: int, is_plain: bool) -> None:
    """Run an embedded API server with simulated nodes on this machine."""
    if not is_plain and display.is_terminal() and logging.verbosity() == 0:
        # The live view and log lines would write over each other.
        log_file = data / "up.log"
        data.mkdir(parents=True, exist_ok=True)
        logging.configure(logging.LogOptions(), log_file.open("a", encoding="utf-8"))
    stopping.run_until_stopped(_run(Options(data, nodes, port, is_plain or not display.is_terminal())))


async def _run(options: Options) -> None:
    from bedplate.apiserver import server

    started = time.monotonic()
    kubeconfig = options.data.resolve() / "kubeconfig"
    settings = server.Options(data=options.data / "apiserver", port=_port(options), kubeconfig_out=kubeconfig)
    async with server.ApiServer(settings) as running:
        (options.data / "port").write_text(running.url.rsplit(":", 1)[1])
        click.echo(f"API server ready after {time.monotonic() - started:.1f} s at {running.url}")
        click.echo(f"\n  export KUBECONFIG={kubeconfig}\n")
        await _simulate(options, kubeconfig, started)


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


async def _simulate(options: Options, kubeconfig: Path, started: float) -> None:
    from bedplate.kube import Client, config

    settings = config.load(kubeconfig, environ=os.environ).with_rate(-1, 0).with_user_agent("bedplate-sim")
    async with Client(settings) as client:
        fleet = fleets.assemble(client, options.nodes)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fleet.manager.run())
            await fleet.kubelets.registered.wait()
            await _seen(fleet, options.nodes)
            click.echo(
                f"{options.nodes} simulated nodes ready after {time.monotonic() - started:.1f} s; Ctrl-C stops all"
            )
            click.echo("try: kubectl get nodes" + ("" if _has_kubectl() else "   (here: bedplate kubectl get nodes)"))
            await (_plain_view(fleet) if options.is_plain else _live_view(fleet, kubeconfig, started))


def _has_kubectl() -> bool:
    import shutil

    return shutil.which("kubectl") is not None


async def _seen(fleet: fleets.Fleet, count: int) -> None:
    deadline = time.monotonic() + 60
    while sum(node.is_ready for node in fleet.nodes if node.metadata.name in fleet.kubelets.machines) < count:
        if time.monotonic() > deadline:
            raise errors.Unavailable("the simulated nodes did not become ready", hint="see the log, or run with -v 4")
        await asyncio.sleep(0.05)


def _counts(fleet: fleets.Fleet) -> tuple[int, int, int, int]:
    ready = sum(node.is_ready for node in fleet.nodes)
    running = sum(pod.status.phase == "Running" for pod in fleet.pods)
    return ready, len(fleet.nodes), running, len(fleet.pods)


async def _plain_view(fleet: fleets.Fleet) -> None:
    last = None
    while True:
        counts = _counts(fleet)
        if counts != last:
            click.echo(f"nodes {counts[0]}/{counts[1]} ready   pods {counts[2]}/{counts[3]} running")
            last = counts
        await asyncio.sleep(1)


async def _live_view(fleet: fleets.Fleet, kubeconfig: Path, started: float) -> None:
    from rich.live import Live

    with Live(auto_refresh=False, transient=False) as live:
        while True:
            live.update(_panel(fleet, kubeconfig, started), refresh=True)
            await asyncio.sleep(0.5)


def _panel(fleet: fleets.Fleet, kubeconfig: Path, started: float) -> Panel:
    from rich.panel import Panel
    from rich.table import Table

    ready, nodes, running, pods = _counts(fleet)
    grid = Table.grid(padding=(0, 3))
    grid.add_row("nodes", f"{ready} of {nodes} ready", "pods", f"{running} of {pods} running")
    grid.add_row("up for", display.age(time.monotonic() - started), "kubeconfig", str(kubeconfig))
    recent = Table("node", "ready", "taints", "pods", box=None, padding=(0, 2, 0, 0))
    per_node: dict[str, int] = {}
    for pod in fleet.pods:
        per_node[pod.spec.node_name] = per_node.get(pod.spec.node_name, 0) + 1
    shown = sorted(
        fleet.nodes, key=lambda node: (node.is_ready, -per_node.get(node.metadata.name, 0), node.metadata.name)
    )
    for node in shown[:12]:
        state = "[green]yes[/]" if node.is_ready else "[red]no[/]"
        recent.add_row(node.metadata.name, state, str(len(node.spec.taints)), str(per_node.get(node.metadata.name, 0)))
    outer = Table.grid(padding=(1, 0))
    outer.add_row(grid)
    outer.add_row(recent)
    return Panel(outer, title="bedplate up", subtitle="Ctrl-C stops all", expand=False)
