"""`bedplate up`: everything on this machine, without root: API server, a simulated site, nodes, the managers, a head.

In: flags; data of an earlier run in the data folder. Out: a kubeconfig, a line to paste, and a live view (or plain
lines) until Ctrl-C, which stops all of it. The data stays, and the next start takes the same port if it is free. The
nodes join tainted; the cloud controller manager initialises them from the simulated site, and follows its machines when
they stop, terminate and come back. The IPAM controller gives every node a block of two pools, from which pods that come
and go get addresses. The devices of the head are the machines of the cluster: each of the first 20 has an agent in a
folder of its own (`sandboxes`), and the head writes its labels into the cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import shlex
import shutil
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from bedplate.api import core, names, resources
from bedplate.cli import cluster, display
from bedplate.core import clock, errors, logging
from bedplate.core.tasks import TaskGroup
from bedplate.program import stopping
from bedplate.sim import fleet as fleets

if TYPE_CHECKING:
    from bedplate.cli import clusterview
    from bedplate.cli.up.sandboxes import Sandboxes
    from bedplate.cli.up.site import Site
    from bedplate.cli.up.uphead import UpHead
    from bedplate.cloud.manager.assembly import Assembly
    from bedplate.ipam.controller.assembly import Assembly as IpamAssembly

__all__ = ["up"]

_LOG = logging.get_logger("up")
_NETWORK = ipaddress.IPv4Network("10.141.0.0/16")
_LABELS_S, _CALM_LOOKS = 3.0, 8
_ROOM_BYTES = 1 << 20

EXAMPLES = """
\b
Examples:
  bedplate up                          20 machines, live view
  bedplate up --nodes 1000 --plain     lines instead of a live view; the first 20 have an agent
  bedplate up --data ~/try             keep the data somewhere else
  bedplate up --calm                   no machine stops or terminates, no pod comes or goes by itself
  bedplate up --no-head                without the head and its page
"""


@dataclass(frozen=True, slots=True)
class Options:
    data: Path
    nodes: int
    port: int
    is_plain: bool
    is_calm: bool
    has_head: bool


@click.command(epilog=EXAMPLES)
@click.option(
    "--data", type=click.Path(path_type=Path), default=Path(".bedplate"), show_default=True, help="Folder for state."
)
@click.option("--nodes", type=click.IntRange(0, 10_000), default=20, show_default=True, help="How many machines.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="API server port; 0 reuses the last one, or chooses a free one.",
)
@click.option("--plain", "is_plain", is_flag=True, help="No live display: print a line when something changes.")
@click.option(
    "--calm", "is_calm", is_flag=True, help="No machine stops or terminates and no pod comes or goes on its own."
)
@click.option("--head/--no-head", "has_head", default=True, show_default=True, help="Serve a head with its page.")
@click.pass_context
def up(ctx: click.Context, data: Path, nodes: int, port: int, is_plain: bool, is_calm: bool, has_head: bool) -> None:
    """Run an embedded API server, a simulated site, its nodes, the cloud manager, address management and a head here.

    One site: the devices of the head, the machines of the cloud and the nodes of the cluster are the same. Up to 20
    have a real agent, with a folder below --data as its root. The head's page and a shell to try are printed.
    """
    options = Options(data, nodes, port, is_plain or not display.is_terminal(), is_calm, has_head)
    with contextlib.ExitStack() as files:
        if logging.verbosity() == 0:
            # Log lines would write over the live view, and drown the few lines of the plain one.
            format_ = ctx.find_root().params.get("log_format", "text")
            log = _log_file(data)
            files.callback(_close, log)
            logging.configure(logging.LogOptions(format=format_), log)
        stopping.run_until_stopped(_run(options))


def _log_file(data: Path) -> TextIO:
    try:
        data.mkdir(parents=True, exist_ok=True)
        return (data / "up.log").open("a", encoding="utf-8")
    except OSError as err:
        raise errors.Invalid(f"{data} cannot be used as the data folder", hint="choose another with --data") from err


def _close(log: TextIO) -> None:
    """What is still buffered cannot be kept where the disk is full."""
    with contextlib.suppress(OSError):
        log.close()


async def _run(options: Options) -> None:
    from bedplate.apiserver import server

    started = time.monotonic()
    kubeconfig = options.data.resolve() / "kubeconfig"
    settings = server.Options(data=options.data / "apiserver", port=_port(options), kubeconfig_out=kubeconfig)
    async with server.ApiServer(settings) as running:
        (options.data / cluster.PORT_FILE).write_text(running.url.rsplit(":", 1)[1])
        lines = [f"API server ready after {time.monotonic() - started:.1f} s at {running.url}"]
        lines += ["", f"  export KUBECONFIG={shlex.quote(str(kubeconfig))}", ""]
        click.echo("\n".join(lines))
        try:
            await _simulate(options, kubeconfig, started, lines)
        finally:
            click.echo(f"stopped; the data is kept in {options.data}")


def _port(options: Options) -> int:
    """The port asked for, else the last one if it is free, else any."""
    remembered = options.data / cluster.PORT_FILE
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


async def _simulate(options: Options, kubeconfig: Path, started: float, lines: list[str]) -> None:
    from bedplate.cli import clusterview
    from bedplate.cli.up import demopools, podnets
    from bedplate.cli.up import site as sites
    from bedplate.kube import Client, config
    from bedplate.sim import machines
    from bedplate.sim.clouds import BmmCloud

    settings = config.load(kubeconfig, environ=os.environ).with_rate(-1, 0).with_user_agent("bedplate-sim")
    async with Client(settings) as client, BmmCloud() as cloud:
        await demopools.install(client)
        # The addresses and names that the head's first tree gives them.
        shape = machines.Shape(is_uninitialized=True, network=_NETWORK)
        fleet = fleets.assemble(client, options.nodes, shape=shape, digits=3)
        networks = podnets.PodNetworks(fleet.manager, options.data / "ipam")
        fleet.kubelets.networks = networks
        events = fleet.manager.cache(resources.EVENTS)
        churn = None if options.is_calm else sites.CHURN
        site = sites.Site(cloud, fleet.kubelets, fleet.nodes, churn=churn, time=clock.SystemClock())
        await site.forget_strangers(client)
        config_file = kubeconfig.parent / "nvidia-bmm.yaml"
        sites.write_config(cloud, config_file)
        async with TaskGroup() as tasks:
            tasks.create_task(fleet.manager.run())
            tasks.create_task(_manage(lambda: _assemble(kubeconfig, config_file), options.data))
            tasks.create_task(_assemble_ipam(kubeconfig).run())
            await fleet.kubelets.registered.wait()
            await _seen(fleet, options.nodes)
            tasks.create_task(site.run())
            if not options.is_calm:
                tasks.create_task(demopools.Tide(client, options.nodes, time=clock.SystemClock()).run())
            more = [f"{options.nodes} simulated nodes ready after {time.monotonic() - started:.1f} s; Ctrl-C stops all"]
            shown = options.data / config_file.name
            more += [f"the cloud: a simulated NVIDIA BMM site at {cloud.url}, configured in {shown}", _next_step()]
            click.echo("\n".join(more))
            async with _head(options, kubeconfig, site, fleet) as head:
                if head is not None:
                    more += head.lines()
                    click.echo("\n".join(head.lines()))

                def look() -> clusterview.Picture:
                    nodes, pods = tuple(fleet.nodes), tuple(fleet.pods)
                    about = head.picture() if head is not None else None
                    return clusterview.Picture(nodes, pods, [_cloud(site)], tuple(events), networks.pools(), about)

                if options.is_plain:
                    await clusterview.follow_plain(look)
                else:
                    await clusterview.follow_live(look, [*lines, *more], started)


@contextlib.asynccontextmanager
async def _head(options: Options, kubeconfig: Path, site: Site, fleet: fleets.Fleet) -> AsyncIterator[UpHead | None]:
    """The head, once its labels are on the nodes; its machines come while others look at it."""
    if not options.has_head:
        yield None
        return
    from bedplate.cli.up import sandboxes, uphead

    machines = sandboxes.Sandboxes(options.data / "machines", site)
    count = min(options.nodes, uphead.NODES)
    serving = uphead.serving(options.data / "head", nodes=count, kubeconfig=kubeconfig, controller=machines.switch_on)
    async with serving as head:
        await _labelled(fleet)
        living = asyncio.create_task(_live(machines, head))
        try:
            yield head
        finally:
            living.cancel()
            await asyncio.wait({living})


async def _live(machines: Sandboxes, head: UpHead) -> None:
    """Without agents the rest goes on."""
    try:
        await machines.run(head.url, head.authority, head.client)
    except* (errors.BedplateError, OSError) as group:
        _LOG.error("up.machines_without_agents", error=errors.describe(group.exceptions[0]))


async def _labelled(fleet: fleets.Fleet) -> None:
    """Until the head has written what its tree says of the nodes: nothing new for a moment, or nothing at all."""
    from bedplate.head.kubenodes import ANNOTATION

    deadline, seen, still = time.monotonic() + _LABELS_S, 0, 0
    while time.monotonic() < deadline and still < _CALM_LOOKS:
        count = sum(ANNOTATION in node.metadata.annotations for node in fleet.nodes)
        seen, still = count, still + 1 if count == seen > 0 else 0
        await asyncio.sleep(0.05)


async def _manage(assemble: Callable[[], Assembly], data: Path) -> None:
    """Run the manager; start another one where it lost its Lease, as after Ctrl-Z and `fg`: nobody else leads here."""
    from bedplate.runtime.leaderelection import LeadershipLost

    while True:
        try:
            return await assemble().run()
        except (LeadershipLost, BaseExceptionGroup) as err:
            lost = errors.only(err) if isinstance(err, BaseExceptionGroup) else err
            if not isinstance(lost, LeadershipLost):
                raise
            if shutil.disk_usage(data).free < _ROOM_BYTES:
                hint = f"make room there, then start it again; {data} itself can be removed to start from nothing"
                raise errors.Terminal(f"no space left for {data}", hint=hint) from err
            _LOG.warning("up.manager_starts_again", error=str(lost))


def _assemble(kubeconfig: Path, config_file: Path) -> Assembly:
    """The manager as a user starts it, but with the patience of a demonstration."""
    from bedplate.cli.up.site import LEASE
    from bedplate.cloud.manager import deployed, options
    from bedplate.cloud.manager.assembly import Assembly

    words = [
        "--cloud-provider=nvidia-bmm",
        f"--cloud-config={config_file}",
        f"--kubeconfig={kubeconfig}",
        f"--leader-elect-resource-name={LEASE}",
        # All of it is one process, which may have to wait for a busy machine; nobody else wants to lead.
        "--leader-elect-lease-duration=30s",
        "--leader-elect-renew-deadline=25s",
        "--secure-port=0",
        "--node-startup-grace-period=10s",
        "--cloud-cache-ttl=5s",
        "--kube-api-qps=500",
        "--kube-api-burst=500",
        "--event-qps=500",
    ]
    # For `bedplate ccm explain` and `bedplate doctor`.
    deployed.write_flags(kubeconfig.parent, words)
    return Assembly(options.read(words).options, {})


def _assemble_ipam(kubeconfig: Path) -> IpamAssembly:
    """The controller of pools as a user starts it; nobody asks this one for its health."""
    from bedplate.ipam.controller import options
    from bedplate.ipam.controller.assembly import Assembly

    words = [
        f"--kubeconfig={kubeconfig}",
        "--health-probe-bind-address=0",
        "--metrics-bind-address=0",
        "--quarantine-duration=1m",
    ]
    return Assembly(options.read(words).options, {})


def _cloud(site: Site) -> clusterview.Cloud:
    from bedplate.cli import clusterview

    return clusterview.Cloud(site.cloud.kind, site.running, len(site.cloud.all()), site.calls_per_minute)


def _next_step() -> str:
    from bedplate.lab import binaries

    if shutil.which("kubectl") is not None:
        return "try: kubectl get nodes"
    program = os.path.relpath(shutil.which(sys.argv[0]) or "bedplate")
    if binaries.cached("kubectl") is not None:
        return f"try: {program} kubectl get nodes"
    return f"kubectl is not installed; to build it: {program} binaries get kubectl"


async def _seen(fleet: fleets.Fleet, count: int) -> None:
    """Until every node is Ready and free of the uninitialised taint."""
    deadline = time.monotonic() + 60

    def is_well(node: core.Node) -> bool:
        return node.is_ready and all(taint.key != names.TAINT_UNINITIALIZED for taint in node.spec.taints)

    while sum(is_well(node) for node in fleet.nodes if node.name in fleet.kubelets.machines) < count:
        if time.monotonic() > deadline:
            raise errors.Unavailable("the simulated nodes did not become ready", hint="see up.log in the data folder")
        await asyncio.sleep(0.05)
