"""The commands `bedplate lab …` and `bedplate binaries …`.

In: the command line. Out: tables or JSON on standard output, progress on standard error. No decision is made here.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
import msgspec

from bedplate.core import errors
from bedplate.lab import binaries as found_binaries
from bedplate.lab import cgroups, cluster, debian, inspection, power, state, versions
from bedplate.lab import managed as managed_site
from bedplate.lab.nodes import Node
from bedplate.lab.plan import CONTAINERDS, CONTROL_PLANES, NETWORKS, Options

__all__ = ["binaries", "lab"]

T = TypeVar("T")

_NAME = click.option(
    "--name", default="lab", show_default=True, envvar="BEDPLATE_LAB", show_envvar=True, metavar="L", help="Which lab."
)
_OUTPUT = click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
_REST = {"ignore_unknown_options": True, "allow_interspersed_args": False}


class _Lab(click.Group):
    """Imports `lab facts` only when it is named: it brings a whole HTTP client along."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), "facts"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name != "facts":
            return super().get_command(ctx, cmd_name)
        from bedplate.lab import facts

        return facts.facts


@click.group(
    cls=_Lab,
    epilog="""
\b
Examples:
  bedplate lab up --nodes 3                            three nodes, Kubernetes 1.35
  bedplate lab up --name old --kubernetes 1.34         a second lab beside it
  bedplate lab up --control-plane kubeadm --nodes 2    as kubeadm makes it
  bedplate lab kubectl -- get pods -A
  bedplate lab exec node-1 -- ctr -n k8s.io containers list
  bedplate lab up --managed --nodes 3                  a head and three bare nodes with agents
  bedplate lab down
""",
)
def lab() -> None:
    """Real multi-node Kubernetes, or a head with bare nodes, on this machine (needs root)."""


@lab.command(
    epilog="""
\b
Examples:
  bedplate lab up --nodes 3 --link fabric0
  bedplate lab up --node edge=10.90.0.20 --subnet 10.90.0.0/24
  bedplate lab up --cloud-provider external --kubelet-arg --v=4 --kubelet-arg node-1=--provider-id=acme://7
  bedplate lab up --managed --nodes 3
"""
)
@_NAME
@click.option("--nodes", type=click.IntRange(1, 200), metavar="N", help="How many nodes.  [default: 1]")
@click.option("--kubernetes", default=versions.DEFAULT, show_default=True, metavar="VERSION", help="1.34, 1.35.4, …")
@click.option(
    "--next-kubernetes", default="", metavar="VERSION", help="With --managed: packages of this version as well."
)
@click.option("--control-plane", type=click.Choice(CONTROL_PLANES), default="process", show_default=True)
@click.option("--node", "named", multiple=True, metavar="NAME=IP", help="A node with this name and address.")
@click.option("--subnet", default="", metavar="CIDR", help="Network of the nodes.  [default: a free 10.77.x.0/24]")
@click.option("--kubelet-arg", "kubelet_args", multiple=True, metavar="[NODE=]ARG", help="Additional kubelet flag.")
@click.option(
    "--cloud-provider", type=click.Choice(["external"]), help="`external`: nodes wait for a cloud controller manager."
)
@click.option(
    "--link", "links", multiple=True, metavar="NAME", help="A second network; NAME is its interface in nodes."
)
@click.option(
    "--network",
    type=click.Choice(NETWORKS),
    default="lab",
    show_default=True,
    help="`none`: you set up the pod network.",
)
@click.option(
    "--containerd",
    type=click.Choice(CONTAINERDS),
    default="machine",
    show_default=True,
    help=f"`built`: {versions.CONTAINERD}, built once, instead of the machine's.",
)
@click.option("--managed", is_flag=True, help="A head, and bare nodes with enrolled agents; no Kubernetes.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(1), default=300.0, show_default=True, metavar="SECONDS")
def up(
    name: str,
    nodes: int | None,
    kubernetes: str,
    next_kubernetes: str,
    control_plane: str,
    named: tuple[str, ...],
    subnet: str,
    kubelet_args: tuple[str, ...],
    cloud_provider: str | None,
    links: tuple[str, ...],
    network: str,
    containerd: str,
    managed: bool,
    timeout_s: float,
) -> None:
    """Create a lab and wait until its nodes are Ready and its DNS works; without a network, until they have registered.

    With --managed there is no Kubernetes: a head serves a tree with the nodes, and each bare node has an agent that is
    enrolled with it, and packages of Kubernetes to make a cluster of them. The last line is the command that opens a
    shell on the head.

    A start that fails or is interrupted removes everything it has created.
    """
    cluster.check_machine(is_managed=managed)
    provider = cloud_provider or ""
    options = Options(
        name,
        nodes,
        kubernetes,
        control_plane,
        named,
        subnet,
        kubelet_args,
        provider,
        links,
        timeout_s,
        network,
        managed,
        containerd,
        next_kubernetes,
    )
    report = _reporter()
    programs = cluster.gather(options, report)
    record = _run(cluster.up(options, programs, report))
    folder = state.Shelf().folder(name)
    if managed:
        report(f"lab {name!r} is ready: a head at {managed_site.url(record.plan)}, {len(record.plan.nodes)} nodes")
        click.echo(managed_site.shell(folder))
        return
    report(f"lab {name!r} is ready: {len(record.plan.nodes)} nodes, Kubernetes {record.plan.kubernetes}")
    click.echo(f"export KUBECONFIG={folder / 'admin.kubeconfig'}")


@lab.command(epilog="Example: bedplate lab status -o json")
@_NAME
@_OUTPUT
def status(name: str, output: str) -> None:
    """Show a lab: its nodes, the programs on them, where its files are."""
    status_ = _run(inspection.inspect(name, state.Shelf()))
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(status_)))
        return
    rows_ = ("name", "phase", "kubernetes", "control_plane", "subnet", "pod_cidr", "api", "kubeconfig")
    for key in (*rows_, "head", "shell", "logs"):
        if getattr(status_, key):
            click.echo(f"{key.replace('_', ' ') + ':':<15}{getattr(status_, key)}")
    rows = [[node.name, node.address, node.condition, " ".join(node.programs)] for node in status_.nodes]
    _table(["NODE", "ADDRESS", "STATE", "PROGRAMS"], rows)


@lab.command("list", epilog="Example: bedplate lab list")
@_OUTPUT
def list_labs(output: str) -> None:
    """List the labs of this user."""
    rows = inspection.summaries(state.Shelf())
    if output == "json":
        click.echo(json.dumps(rows, indent=2))
        return
    _table(["NAME", "PHASE", "KUBERNETES", "CONTROL PLANE", "NODES", "SUBNET"], [list(row.values()) for row in rows])


@lab.command(context_settings=_REST, epilog="Example: bedplate lab kubectl -- get nodes -o wide")
@_NAME
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kubectl(name: str, arguments: tuple[str, ...]) -> NoReturn:
    """Run kubectl as the lab's administrator."""
    shelf = state.Shelf()
    folder = shelf.folder(name)
    record = shelf.need(name)
    record.plan.check_has_kubernetes()
    if record.phase != "ready":
        raise errors.Unavailable(f"lab {name!r} is still starting", hint=f"bedplate lab status --name {name}")
    environ = os.environ | {"KUBECONFIG": str(folder / "admin.kubeconfig")}
    os.execve(folder / "bin" / "kubectl", ["kubectl", *arguments], environ)


@lab.command("exec", context_settings=_REST, epilog="Example: bedplate lab exec node-1 -- ip route")
@_NAME
@click.argument("node")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def execute(name: str, node: str, command: tuple[str, ...]) -> NoReturn:
    """Run a command on a node, in its namespaces."""
    shelf = state.Shelf()
    plan = shelf.need(name).plan
    plan.node(node)
    tree = cgroups.Tree(name)
    inside = Node(node, shelf.folder(name), tree, is_bare=plan.is_managed)
    line = inside.enter(command[1:] if command[0] == "--" else command)
    tree.join(node, "system")
    os.execvpe(line[0], line, inside.environ())


@lab.command("load-image", epilog="Example: docker save shop:1.0 -o shop.tar && bedplate lab load-image shop.tar")
@_NAME
@click.argument("archive", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def load_image(name: str, archive: Path) -> None:
    """Load an image archive (docker save, OCI) into every node and into the lab's registry."""
    for image in _run(cluster.load_image(name, archive, state.Shelf(), _reporter())):
        click.echo(image)


@lab.command("stop-node", epilog="Example: bedplate lab stop-node node-2")
@_NAME
@click.argument("node")
def stop_node(name: str, node: str) -> None:
    """Switch a node off without notice, as a power failure does. The first node, with the control plane, stays on; in a
    managed lab every node can be switched off."""
    power.stop_node(name, node, state.Shelf())


@lab.command("start-node", epilog="Example: bedplate lab start-node node-2")
@_NAME
@click.argument("node")
@click.option("--timeout", "timeout_s", type=click.FloatRange(1), default=120.0, show_default=True, metavar="SECONDS")
def start_node(name: str, node: str, timeout_s: float) -> None:
    """Switch a node on again; its disk is as it was."""
    _run(power.start_node(name, node, state.Shelf(), _reporter(), timeout_s))


@lab.command(epilog="Example: bedplate lab down --name second")
@_NAME
def down(name: str) -> None:
    """Stop a lab and remove all of it. It is safe to repeat."""
    if cluster.down(name):
        click.echo(f"lab {name!r} is gone", err=True)
    else:
        click.echo(f"there was no lab {name!r}", err=True)


@click.group(epilog="Example: bedplate binaries get kube-apiserver etcd kubectl --kubernetes 1.34")
def binaries() -> None:
    """Kubernetes programs: from KUBEBUILDER_ASSETS, the cache, the PATH, or built with Go."""


@binaries.command("get", epilog="Example: bedplate binaries get kubectl --kubernetes 1.34")
@click.argument("programs", nargs=-1, required=True)
@click.option("--kubernetes", default=versions.DEFAULT, show_default=True, metavar="VERSION")
@_OUTPUT
def get_binaries(programs: tuple[str, ...], kubernetes: str, output: str) -> None:
    """Find the programs, building those that are missing, and print their paths. `dockerd`, which managed labs use for
    Docker::Host, is not built: it is fetched from packages of Debian, and not installed."""
    report = _reporter()
    names = [name for name in programs if name != debian.DOCKERD]
    paths = found_binaries.ensure(names, kubernetes, progress=report)
    if debian.DOCKERD in programs:
        paths[debian.DOCKERD] = debian.ensure(report)
    if output == "json":
        click.echo(json.dumps({name: str(path) for name, path in paths.items()}, indent=2))
    else:
        for path in paths.values():
            click.echo(path)


@binaries.command("list", epilog="Example: bedplate binaries list -o json")
@_OUTPUT
def list_binaries(output: str) -> None:
    """List what the cache has."""
    rows = [
        {"program": path.name, "version": path.parent.parent.name, "path": str(path)}
        for path in sorted(found_binaries.cache_folder().glob("*/v*/bin/*"))
        if path.name in found_binaries.PROGRAMS
    ]
    if output == "json":
        click.echo(json.dumps(rows, indent=2))
    else:
        _table(["PROGRAM", "VERSION", "PATH"], [list(row.values()) for row in rows])


def _reporter() -> Callable[[str], None]:
    start = time.monotonic()

    def report(line: str) -> None:
        click.echo(f"{time.monotonic() - start:6.1f}s  {line}", err=True)

    return report


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; SIGTERM and SIGHUP interrupt as Ctrl-C does, so that all three clean up."""

    async def main() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, task.cancel)
        return await work

    try:
        return asyncio.run(main())
    except (KeyboardInterrupt, asyncio.CancelledError):
        click.echo("interrupted: everything made so far has been removed", err=True)
        sys.exit(130)


def _table(titles: list[str], rows: list[list[str]]) -> None:
    widths = [max(len(row[column]) for row in [titles, *rows]) for column in range(len(titles))]
    for row in [titles, *rows]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
