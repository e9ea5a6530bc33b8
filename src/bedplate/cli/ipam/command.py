"""`bedplate ipam …`: pools, blocks and addresses as they are, who holds an address, and why a node has no block.

In: a kubeconfig (and, on a node, its store file). Out: tables, JSON, pictures; it changes nothing, but `store sync`
brings a store file up to date. Exit codes: 0 no problem, 1 something needs attention, 2 wrong command line, 3 something
could not be checked, 4 no such object.
"""

from __future__ import annotations

import asyncio
import gc
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bedplate.cli import cluster, display
from bedplate.core import clock, errors

if TYPE_CHECKING:
    from bedplate.cli.ipam.landscape import Landscape
    from bedplate.cli.ipam.tables import Table
    from bedplate.core.explanation import Explanation

__all__ = ["ipam"]

F = TypeVar("F", bound=Callable[..., Any])

EXAMPLES = """
\b
Examples:
  bedplate ipam pools                          every pool: blocks, free ones, addresses in use
  bedplate ipam blocks my-pool                 which node has which block
  bedplate ipam allocations --node host-a      who holds which address
  bedplate ipam explain 192.168.0.7            who holds it, since when, whose block it is in
  bedplate ipam explain host-a                 what a node has of every pool, and why not of some
  bedplate ipam map my-pool                    a picture of a pool
"""


@click.group(epilog=EXAMPLES)
def ipam() -> None:
    """Addresses for pods: pools, blocks, allocations, and explanations."""


def _of_cluster(command: F) -> F:
    """The options of every command that looks at a cluster."""
    for option in (
        click.option("-n", "--namespace", default="kube-system", show_default=True, help="Where the pools are."),
        cluster.kubeconfig_option,
    ):
        command = option(command)
    return command


_stores = click.option(
    "--store-file",
    "stores",
    multiple=True,
    type=click.Path(),
    help="Also read a node's store file, which has containers and times.",
)


@ipam.command(
    short_help="List pools: network, blocks, free blocks, addresses in use.",
    epilog=display.examples(
        "bedplate ipam pools",
        "bedplate ipam pools -n nvidia-network-operator -o json",
    ),
)
@_of_cluster
@display.output_option
def pools(kubeconfig: str, namespace: str, output: str) -> None:
    """List every pool: its network, assigned, free and quarantined blocks, addresses in use, and problems."""
    from bedplate.cli.ipam import tables

    land = _look(kubeconfig, namespace)
    _show(tables.pools(land), output, f"there are no pools in namespace {namespace}")


@ipam.command(
    short_help="Show which node has which block.",
    epilog=display.examples(
        "bedplate ipam blocks                 of every pool",
        "bedplate ipam blocks my-pool --node host-a",
    ),
)
@click.argument("pool", default="")
@click.option("--node", default="", help="Only of this node.")
@_of_cluster
@display.output_option
def blocks(pool: str, node: str, kubeconfig: str, namespace: str, output: str) -> None:
    """Show which node has which block of POOL, or of every pool, and how full it is."""
    from bedplate.cli.ipam import tables

    land = _look(kubeconfig, namespace)
    _known_pool(land, pool)
    _show(tables.blocks(land, pool, node), output, "no node has a block")


@ipam.command(
    short_help="Show which pod holds which address.",
    epilog=display.examples(
        "bedplate ipam allocations --pool my-pool",
        "bedplate ipam allocations --node host-a -o json",
        "bedplate ipam allocations --store-file /var/lib/cni/nv-ipam/store    on a node",
    ),
)
@click.option("--pool", default="", help="Only of this pool.")
@click.option("--node", default="", help="Only on this node.")
@click.option("--pod", default="", metavar="NAMESPACE/NAME", help="Only of this pod.")
@_stores
@_of_cluster
@display.output_option
def allocations(
    pool: str, node: str, pod: str, stores: tuple[str, ...], kubeconfig: str, namespace: str, output: str
) -> None:
    """Show which pod holds which address of the pools, according to pods' network-status annotations and podIPs.

    This needs no login to a node. With --store-file, a node's own record is shown as well.
    """
    from bedplate.cli.ipam import tables

    land = _look(kubeconfig, namespace, stores)
    _known_pool(land, pool)
    table = tables.allocations(land, pool=pool, node=node, pod=pod)
    _show(table, output, "no pod holds an address of a pool")


@ipam.command(
    short_help="Explain the state of an address, a node or a pool.",
    epilog=display.examples(
        "bedplate ipam explain 192.168.0.7     who holds it, since when, whose block it is in",
        "bedplate ipam explain host-a          what a node has of every pool, and why not of some",
        "bedplate ipam explain my-pool",
    ),
)
@click.argument("what", metavar="ADDRESS|NODE|POOL")
@_stores
@_of_cluster
@display.output_option
def explain(what: str, stores: tuple[str, ...], kubeconfig: str, namespace: str, output: str) -> None:
    """Explain the state of an address, a node or a pool; nothing is changed.

    If a name is ambiguous, write node/NAME, ippool/NAME or cidrpool/NAME. Exit code: 0 no problem was found, 1
    something needs attention, 3 something could not be checked, 4 no such object.
    """
    from bedplate.core import explanation

    answer = _explain(what, _look(kubeconfig, namespace, stores))
    sys.exit(explanation.show(answer, output, sys.stdout))


@ipam.command(
    name="map",
    short_help="Draw a pool: which blocks are assigned, and how full they are.",
    epilog=display.examples(
        "bedplate ipam map                     every pool",
        "bedplate ipam map my-pool --nodes 20",
    ),
)
@click.argument("pool", default="")
@click.option("--nodes", type=click.IntRange(0), default=12, show_default=True, help="How many blocks to list below.")
@_of_cluster
def map_(pool: str, nodes: int, kubeconfig: str, namespace: str) -> None:
    """Draw POOL, or every pool: which blocks are assigned, how full they are, which cannot be allocated."""
    from bedplate.cli.ipam import picture

    land = _look(kubeconfig, namespace)
    _known_pool(land, pool)
    width = shutil.get_terminal_size((100, 24)).columns
    drawn = [picture.draw(view, width, most_nodes=nodes) for view in land.views if pool in ("", view.name, view.key)]
    click.echo("\n\n".join(drawn) or f"there are no pools in namespace {namespace}")


@ipam.command(
    short_help="Print the definitions of IPPool and CIDRPool, for kubectl apply.",
    epilog=display.examples("bedplate ipam crds | kubectl apply -f -"),
)
def crds() -> None:
    """Print the custom resource definitions of IPPool and CIDRPool: bedplate ipam crds | kubectl apply -f -"""
    import yaml

    from bedplate.cli.ipam import crds as definitions

    click.echo(yaml.safe_dump_all(definitions.documents(), sort_keys=False), nl=False)


STORE_EXAMPLES = """
\b
Examples:
  bedplate ipam store show /var/lib/cni/nv-ipam/store
  bedplate ipam store check /var/lib/cni/nv-ipam/store -o json
  bedplate ipam store sync /var/lib/cni/nv-ipam/store       before the original's daemon takes over
"""


@ipam.group(short_help="Read and check a node's store file.", epilog=STORE_EXAMPLES)
def store() -> None:
    """The file in which a node's daemon keeps its reservations.

    Run these on that node; the daemon may keep running.
    """


_file = click.argument("file", type=click.Path(path_type=Path))


@store.command(
    short_help="List the reservations in FILE.",
    epilog=display.examples("bedplate ipam store show /var/lib/cni/nv-ipam/store"),
)
@_file
@display.output_option
def show(file: Path, output: str) -> None:
    """List every reservation in FILE and its journal."""
    from bedplate.cli.ipam import stores
    from bedplate.ipam.node.storeview import read_store

    view = read_store(file)
    table = stores.listed(view, clock.SystemClock().now())
    if table.rows or not view.problem:
        _show(table, output, f"{file} holds no reservation")
    if view.problem:
        raise errors.Invalid(f"{file} is broken: {view.problem}", hint=f"bedplate ipam store check {file}")


@store.command(
    short_help="Check whether FILE is intact.",
    epilog=display.examples("bedplate ipam store check /var/lib/cni/nv-ipam/store"),
)
@_file
@display.output_option
def check(file: Path, output: str) -> None:
    """Check whether FILE and its journal are intact, who uses them, and whether the original's daemon would see all.

    Exit code: 0 all checks passed, 1 something is wrong, 4 there is no such file.
    """
    from bedplate.cli.ipam import stores
    from bedplate.core import explanation
    from bedplate.ipam.node.storeview import read_store

    sys.exit(explanation.show(stores.check(file, read_store(file)), output, sys.stdout))


@store.command(
    short_help="Bring FILE up to date with its journal.",
    epilog=display.examples("bedplate ipam store sync /var/lib/cni/nv-ipam/store    before the original takes over"),
)
@_file
def sync(file: Path) -> None:
    """Bring FILE up to date, so that the original's daemon finds everything that was acknowledged.

    If a daemon uses the store, this command asks it to write the file and waits.
    """
    from bedplate.ipam.node.storeview import sync_store

    done = asyncio.run(sync_store(file, clock=clock.SystemClock()))
    by = f"by process {done.daemon}, which uses it" if done.daemon is not None else "by this command"
    click.echo(f"{file} is up to date: {done.reservations} reservations, written {by}")


_PROGRAM: dict[str, Any] = {
    "add_help_option": False,
    "context_settings": {
        "ignore_unknown_options": True,
        "allow_extra_args": True,
        "allow_interspersed_args": False,
    },
}


@ipam.command(
    short_help="Run ipam-controller: blocks for nodes.",
    epilog=display.examples(
        "bedplate ipam controller --kubeconfig=admin.conf --ippools-namespace=kube-system",
        "bedplate ipam controller --help",
    ),
    **_PROGRAM,
)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def controller(flags: tuple[str, ...]) -> None:
    """Run ipam-controller, which gives every node its block of every pool; --help shows every flag."""
    from bedplate.ipam.controller import process

    sys.exit(process.main(flags))


@ipam.command(
    short_help="Run ipam-node: addresses for the pods of one node.",
    epilog=display.examples(
        "bedplate ipam node --node-name=worker-1 --kubeconfig=admin.conf",
        "bedplate ipam node --help",
    ),
    **_PROGRAM,
)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def node(flags: tuple[str, ...]) -> None:
    """Run ipam-node, which gives a node's pods their addresses; --help shows every flag."""
    from bedplate.ipam.node import process

    sys.exit(process.main(flags))


def _look(kubeconfig: str, namespace: str, stores: tuple[str, ...] = ()) -> Landscape:
    lands: list[Landscape] = []

    async def read() -> None:
        # Not as the result of the task: to put the handler of signals back, `asyncio.run` makes a text of that.
        lands.append(await _read(kubeconfig, namespace, stores))

    # What is read stays: looking for garbage among it would take as long as reading it.
    gc.disable()
    try:
        asyncio.run(read())
    finally:
        gc.enable()
    return lands[0]


async def _read(kubeconfig: str, namespace: str, stores: tuple[str, ...]) -> Landscape:
    from bedplate.cli import cluster, display
    from bedplate.cli.ipam import landscape, survey
    from bedplate.cli.ipam.stores import holdings
    from bedplate.kube import Client

    settings = cluster.connection(kubeconfig).with_rate(-1, 1).with_user_agent("bedplate-ipam")
    with display.progress() as tell:
        async with Client(settings) as client:
            read = await survey.read(client, namespace, tell)
    stored = [holding for store in stores for holding in holdings(Path(store))] if stores else None
    return landscape.see(read, clock.SystemClock().now(), stored)


def _explain(what: str, land: Landscape) -> Explanation:
    from bedplate.cli.ipam import explain_pools
    from bedplate.ipam.addresses import parse_address

    address = parse_address(what.partition("/")[0])
    if address is not None:
        return explain_pools.explain_address(address, land)
    kind, _, name = what.rpartition("/")
    explanations = [
        (f"node/{name}", explain_pools.explain_node(node, land))
        for node in land.nodes
        if node.name == name and kind in ("", "node")
    ]
    for pool, view in zip(land.pools, land.views, strict=True):
        if view.name == name and kind in ("", view.kind.lower()):
            explanations.append((f"{view.kind.lower()}/{name}", explain_pools.explain_pool(pool, view, land)))
    if not explanations:
        hint = f"bedplate ipam pools; {'bedplate ' if cluster.is_of_up() else ''}kubectl get nodes"
        text = f"{what} is not an address, a node, or a pool in namespace {land.namespace}"
        raise errors.NotFound(text, hint=hint)
    if len(explanations) > 1:
        choices = " or ".join(name for name, _ in explanations)
        raise errors.Invalid(f"{what} is ambiguous: several objects have this name", hint=f"choose one: {choices}")
    return explanations[0][1]


def _known_pool(land: Landscape, pool: str) -> None:
    if pool and all(pool not in (view.name, view.key) for view in land.views):
        names = ", ".join(view.key for view in land.views) or "none"
        raise errors.NotFound(f"there is no pool {pool} in namespace {land.namespace}", hint=f"there are: {names}")


def _show(table: Table, output: str, otherwise: str) -> None:
    if not table.rows and output == "table":
        click.echo(otherwise, err=True)
        return
    display.show(output, table.columns, table.rows, table.data if output == "json" else None)
