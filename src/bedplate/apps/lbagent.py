"""`cloudlycke-lb-agent`: the part of Cloudlycke's load balancer that runs on every node.

In: flags. Out: addresses on this machine and a Lease for each, until SIGTERM; `/healthz` and `/readyz` on the loopback
interface. What it does is in `bedplate.cloud.providers.cloudlycke.agent`.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import click

from bedplate.core import clock, errors, logging
from bedplate.program import stopping

__all__ = ["agent", "main"]


@click.command(
    epilog="""
\b
Example: cloudlycke-lb-agent --node-name node-c2-1 --kubeconfig admin.kubeconfig
"""
)
@click.option("--node-name", default="", help="This machine's Node.  [default: $NODE_NAME, else the host name]")
@click.option(
    "--cloud-config", type=click.Path(path_type=Path), help="The manager's configuration file; its pool is used."
)
@click.option("--kubeconfig", default="", help="Kubeconfig of the cluster; default: the pod's service account.")
@click.option("--lease-namespace", default="cloudlycke-lb", show_default=True, help="Namespace of the Leases.")
@click.option(
    "--health-probe-bind-address",
    default="127.0.0.1:10261",
    show_default=True,
    help="Address of /healthz and /readyz; 0 disables them.",
)
@click.option("-v", "--v", "verbosity", type=click.IntRange(0, 10), default=0, show_default=True)
def agent(
    node_name: str,
    cloud_config: Path | None,
    kubeconfig: str,
    lease_namespace: str,
    health_probe_bind_address: str,
    verbosity: int,
) -> None:
    """Carry load balancers' addresses on this machine (needs CAP_NET_ADMIN and CAP_NET_RAW)."""
    logging.configure(logging.LogOptions(verbosity=verbosity))
    name = node_name or os.environ.get("NODE_NAME") or socket.gethostname()
    stopping.run_until_stopped(_run(name, cloud_config, kubeconfig, lease_namespace, health_probe_bind_address))


async def _run(node_name: str, cloud_config: Path | None, kubeconfig: str, namespace: str, probes: str) -> None:
    from bedplate.cloud.providers.cloudlycke import agent as agents
    from bedplate.cloud.providers.cloudlycke import config, wire
    from bedplate.kube import Client
    from bedplate.kube import config as connections
    from bedplate.program import endpoints
    from bedplate.serving.health import Checks

    def check_caches() -> None:
        if not manager.has_synced:
            raise errors.Unavailable("the Node, Services and EndpointSlices have not all been listed yet")

    settings = config.read(cloud_config)
    connection = connections.load(kubeconfig or None).with_user_agent("cloudlycke-lb-agent")
    async with Client(connection) as client:
        manager = agents.assemble(client, node_name, settings, wire.KernelWire(), namespace)
        ready = Checks("readyz", {"caches": check_caches})
        endpoints.serve_probes(manager, Checks("healthz"), ready, probes, clock.SystemClock())
        await manager.run()


def main() -> None:
    """The program."""
    try:
        agent(standalone_mode=True)
    except errors.BedplateError as err:
        click.echo(f"cloudlycke-lb-agent: {errors.describe(err)}", err=True)
        raise SystemExit(err.exit_code) from None


if __name__ == "__main__":
    main()
