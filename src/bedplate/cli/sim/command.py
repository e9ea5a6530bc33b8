"""`bedplate sim`: simulated parts of a data centre: nodes (here), clouds (`simclouds`), devices (`simdevices`).

`bedplate sim nodes`: simulated nodes against any API server, embedded or real. In: a kubeconfig and how many nodes.
Out: Nodes with heartbeats that run the pods bound to them, until Ctrl-C. The Node objects stay unless
`--delete-on-exit` is given.
"""

from __future__ import annotations

import click

from bedplate.cli import cluster, display
from bedplate.cli.sim import simclouds, simdevices
from bedplate.core import duration
from bedplate.core.tasks import TaskGroup
from bedplate.program import stopping
from bedplate.sim import fleet as fleets
from bedplate.sim import machines

__all__ = ["sim"]

EXAMPLES = """
\b
Examples:
  bedplate sim nodes --count 1000
  bedplate sim nodes --count 20 --uninitialized --prefix bmm-
  bedplate sim nodes --count 5000 --heartbeat 20s --no-scheduler --kubeconfig real.kubeconfig
"""


@click.group(
    epilog=display.examples(
        "bedplate sim nodes --count 1000                       on the cluster of the kubeconfig",
        "bedplate sim nvidia-bmm --machines 200                a cloud to point a manager at",
        "bedplate sim oxide --instances 20 --transition 5s",
        "bedplate sim devices --data ./site                    what a head commits, they apply",
    )
)
def sim() -> None:
    """Simulated parts of a data centre."""


sim.add_command(simclouds.bmm)
sim.add_command(simclouds.oxide)
sim.add_command(simdevices.devices)


@sim.command(epilog=EXAMPLES)
@click.option("--count", type=click.IntRange(1, 16_384), default=50, show_default=True, help="How many nodes.")
@click.option("--prefix", default="node", show_default=True, help="Names are PREFIX001, PREFIX002, …")
@cluster.kubeconfig_option
@click.option("--uninitialized", is_flag=True, help="Register with the cloud provider's taint, without addresses.")
@click.option("--heartbeat", default="10s", show_default=True, help="How often each node renews its Lease.")
@click.option("--scheduler/--no-scheduler", default=True, show_default=True, help="Also bind pending pods to nodes.")
@click.option("--gpus", type=click.IntRange(0, 64), default=8, show_default=True, help="GPUs each node reports.")
@click.option("--delete-on-exit", is_flag=True, help="Delete the Node objects when stopped.")
def nodes(
    count: int,
    prefix: str,
    kubeconfig: str,
    uninitialized: bool,
    heartbeat: str,
    scheduler: bool,
    gpus: int,
    delete_on_exit: bool,
) -> None:
    """Run simulated nodes against an API server until stopped."""
    try:
        period_s = duration.parse_duration(heartbeat)
    except ValueError as err:
        raise click.BadParameter(str(err), param_hint="--heartbeat") from err
    if not 0 < period_s < machines.LEASE_S:
        text = f"must be longer than 0s and shorter than a node's lease, {machines.LEASE_S}s"
        raise click.BadParameter(text, param_hint="--heartbeat")
    shape = machines.Shape(gpus=gpus, is_uninitialized=uninitialized)
    stopping.run_until_stopped(_run(count, prefix, kubeconfig, shape, period_s, scheduler, delete_on_exit))


async def _run(
    count: int, prefix: str, kubeconfig: str, shape: machines.Shape, heartbeat_s: float, schedules: bool, deletes: bool
) -> None:
    from bedplate.kube import Client

    settings = cluster.connection(kubeconfig).with_rate(-1, 0).with_user_agent("bedplate-sim")
    async with Client(settings) as client:
        fleet = fleets.assemble(client, count, prefix=prefix, shape=shape, heartbeat_s=heartbeat_s, schedules=schedules)
        try:
            async with TaskGroup() as tasks:
                tasks.create_task(fleet.manager.run())
                await fleet.kubelets.registered.wait()
                click.echo(f"{count} simulated nodes registered; Ctrl-C stops them", err=True)
        finally:
            if deletes:
                await fleet.kubelets.delete_nodes()
