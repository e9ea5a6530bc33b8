"""`bedplate apiserver`: the embedded API server as a program.

In: flags. Out: a server that runs until Ctrl-C or SIGTERM; errors are raised for the entry point to show.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
from typing import Any

import click

from bedplate.core import duration, errors

__all__ = ["apiserver"]

EXAMPLES = """
\b
Examples:
  bedplate apiserver --data ./data --port 6443 --kubeconfig-out kubeconfig
  bedplate apiserver --data ./data --port 0 --kubeconfig-out kubeconfig --history 30m
  bedplate apiserver --data ./data --store etcd --etcd-endpoints https://10.0.0.1:2379 \\
      --etcd-cafile ca.crt --etcd-certfile client.crt --etcd-keyfile client.key
\b
Then, in another terminal:
  export KUBECONFIG=$PWD/kubeconfig
  kubectl get namespaces
"""


class Span(click.ParamType):  # type: ignore[type-arg]
    """A duration in Go's syntax."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            seconds = duration.parse_duration(str(value))
        except ValueError as err:
            self.fail(str(err), param, ctx)
        if seconds <= 0:
            self.fail("must be longer than 0", param, ctx)
        return seconds


_path = click.Path(path_type=pathlib.Path)


@click.command(epilog=EXAMPLES)
@click.option("--data", required=True, type=_path, help="Directory for state and certificates; created if missing.")
@click.option(
    "--port", default=6443, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 chooses a free one."
)
@click.option("--bind-address", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--kubeconfig-out", type=_path, help="Write the administrator's kubeconfig here once the server is ready."
)
@click.option("--history", type=Span(), default="5m", show_default=True, help="How long old revisions stay readable.")
@click.option("--kubernetes", default="1.35", show_default=True, help="Kubernetes version to be compatible with.")
@click.option("--store", type=click.Choice(["sqlite", "etcd"]), default="sqlite", show_default=True, help="Backend.")
@click.option("--etcd-endpoints", default="", help="etcd addresses, separated by commas.")
@click.option("--etcd-cafile", default="", help="Certificate authority of etcd.")
@click.option("--etcd-certfile", default="", help="Client certificate for etcd.")
@click.option("--etcd-keyfile", default="", help="Key of the client certificate.")
@click.option("--etcd-prefix", default="/bedplate", show_default=True, help="Prefix of the state's keys in etcd.")
def apiserver(store: str, **flags: Any) -> None:
    """Run the embedded Kubernetes API server alone.

    It speaks TLS with certificates of its own, has RBAC and the controllers that keep its own promises
    (namespaces, garbage, service accounts, endpoints, deployments). State survives restarts.
    """
    from bedplate.apiserver import server

    endpoints = tuple(part.strip() for part in flags["etcd_endpoints"].split(",") if part.strip())
    if (store == "etcd") != bool(endpoints):
        raise errors.Invalid(
            "--store etcd needs --etcd-endpoints" if store == "etcd" else "--etcd-endpoints needs --store etcd"
        )
    etcd = None
    if endpoints:
        files = (flags["etcd_cafile"], flags["etcd_certfile"], flags["etcd_keyfile"])
        etcd = server.EtcdSettings(endpoints, flags["etcd_prefix"], *files)
    options = server.Options(
        data=flags["data"],
        port=flags["port"],
        bind_address=flags["bind_address"],
        kubeconfig_out=flags["kubeconfig_out"],
        history_s=flags["history"],
        kubernetes=flags["kubernetes"],
        etcd=etcd,
        texts=_texts_folder(flags["kubernetes"]),
    )
    _run(options)


def _texts_folder(kubernetes: str) -> pathlib.Path | None:
    """Where `bedplate lab facts` leaves a real server's documents, if it has."""
    default = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "bedplate"
    folder = pathlib.Path(os.environ.get("BEDPLATE_CACHE") or default) / "openapi" / f"v{kubernetes}"
    return folder if folder.is_dir() else None


def _run(options: Any) -> None:
    import uvloop

    try:
        uvloop.run(_serve(options))
    except BaseExceptionGroup as group:
        # Not `except*`: what is raised inside it comes out in a group again on some releases of Python 3.11.
        error = errors.only(group)
        if error is None:
            raise
        raise error from error.__cause__


async def _serve(options: Any) -> None:
    from bedplate.apiserver import server

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with server.ApiServer(options) as running:
        target = f"; kubeconfig: {options.kubeconfig_out}" if options.kubeconfig_out else ""
        click.echo(f"API server ready at {running.url}{target}", err=True)
        await stopped.wait()
