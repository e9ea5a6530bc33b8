"""A cluster with the permission manager installed and running beside it, as an administrator has it.

In: `real` or `embedded`. Out: a `Place`: the server, and where the authority is that signs for users of the embedded
one. The manager is a process of its own and ends with the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests import programs, servers
from tests.setup.people.worlds import real_cluster

from bedplate.api.identity import name_of
from bedplate.api.resources import custom
from bedplate.cli.can.objects import documents
from bedplate.kube import Client, config
from bedplate.kube.options import PatchType


@dataclass(frozen=True)
class Place:
    """A cluster with its permission manager."""

    server: servers.Server
    ca: tuple[Path, Path] | None
    folder: Path


@contextlib.contextmanager
def managed_cluster(name: str, folder: Path) -> Iterator[Place]:
    """Start the server, apply the manifests, start the manager, wait until it is ready."""
    with contextlib.ExitStack() as stack:
        ca = None
        if name == "real":
            server = stack.enter_context(real_cluster(folder))
        else:
            server = stack.enter_context(programs.own_server("embedded"))
            pki = server.kubeconfig.parent / "data" / "pki"
            ca = (pki / "ca.crt", pki / "ca.key")
        processes = servers.Processes("permissions")
        stack.callback(processes.stop)
        start_manager(processes, server)
        yield Place(server, ca, folder)


def start_manager(processes: servers.Processes, server: servers.Server) -> None:
    """Install the manager on a cluster and run it until the processes are stopped."""
    port = servers.free_port()
    asyncio.run(install(server, f"https://127.0.0.1:{port}"))
    program = Path(sys.executable).with_name("permissions-manager")
    processes.start("manager", str(program), "--kubeconfig", str(server.kubeconfig), "--webhook-port", str(port))
    processes.wait_until("manager", lambda: _is_ready(f"https://127.0.0.1:{port}/readyz"))


async def install(server: servers.Server, url: str) -> None:
    """What `kubectl apply --server-side` does with the manifests."""
    program = Path(sys.executable).with_name("bedplate")
    command = [str(program), "permissions", "manifests", "--webhook-url", url]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    async with Client(config.load(server.kubeconfig, environ={}).with_rate(-1, 1)) as client:
        for obj in documents(printed, "the manifests"):
            await _apply(client, obj)


async def _apply(client: Client, obj: dict) -> None:  # type: ignore[type-arg]
    group, _, version = obj["apiVersion"].rpartition("/")
    kind, namespace = obj["kind"], obj["metadata"].get("namespace")
    plural = kind.lower() + ("es" if kind.lower().endswith("s") else "s")
    plural = plural.removesuffix("ys") + "ies" if plural.endswith("ys") else plural
    ref = custom(group, version, plural, kind, namespace is not None)
    await client.patch(ref, name_of(obj), obj, namespace, type=PatchType.APPLY, field_manager="tests", force=True)


def _is_ready(url: str) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(url, timeout=5, context=context) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
