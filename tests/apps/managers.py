"""Managers as processes, for tests: started as a user starts them, with their log, their port and a node to work on.

In: a command line. Out: `Running` values. A manager dies with the test process, even after `kill -9` of that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import ssl
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from tests import forkserver, servers
from tests.waiting import DEADLINE_S, until

from bedplate.api import names
from bedplate.api.resources import LEASES, NODES
from bedplate.cloud.manager import options
from bedplate.cloud.manager.assembly import Assembly
from bedplate.core import clock
from bedplate.kube import Client
from bedplate.kube import errors as kube_errors
from bedplate.sim.clouds import BmmCloud, OxideCloud

STOP_DEADLINE_S = 15.0
TAINT = {"key": names.TAINT_UNINITIALIZED, "value": "true", "effect": "NoSchedule"}
PROGRAMS = {
    "nvidia-bmm": "nvidia-bmm-cloud-controller-manager",
    "oxide": "oxide-cloud-controller-manager",
    "cloudlycke": "cloudlycke-cloud-controller-manager",
}


@dataclass
class Running:
    """A manager as a process."""

    process: forkserver.Process
    log_file: Path

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self.process.poll()

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    @property
    def port(self) -> int:
        """The port it serves on; tests give 0 to no one, so it is the one they chose."""
        found = re.search(r"serving\.started.*address=\S+:(\d+)", self.log())
        assert found, self.log()
        return int(found[1])

    async def logged(self, text: str) -> None:
        """Wait for a line of the log; a manager that ends meanwhile is a failure."""

        async def is_there() -> bool:
            if text in self.log():
                return True
            assert self.exit_code is None, f"ended with {self.exit_code}:\n{self.log()[-3000:]}"
            return False

        await until(is_there, f"log line {text!r}", describe=lambda: self.log()[-3000:])

    async def ended(self) -> int:
        """Wait for its end; the exit code."""
        return await asyncio.to_thread(self.process.wait, DEADLINE_S)

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return await self.ended()

    async def get(self, path: str, token: str = "", **more: Any) -> tuple[int, str]:
        return await get(self.port, path, token, **more)


async def get(port: int, path: str, token: str = "", **more: Any) -> tuple[int, str]:
    """Ask a manager's port; the certificate is self-signed and not what is tested here."""
    context = more.pop("ssl", None) or _trusting_all()
    headers = {**({"Authorization": f"Bearer {token}"} if token else {}), **more.pop("headers", {})}
    method = more.pop("method", "GET")
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"https://127.0.0.1:{port}{path}", ssl=context, headers=headers, **more) as answer,
    ):
        return answer.status, await answer.text()


def _trusting_all() -> ssl.SSLContext:
    # Not the default context: it reads the machine's authorities, which takes longer than the request.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


@contextlib.asynccontextmanager
async def running(*command: str, folder: Path, env: Mapping[str, str] | None = None) -> AsyncIterator[Running]:
    """A manager that is stopped at the end, if it still runs: so that its Lease is free for the next one."""
    log_file = folder / f"manager-{uuid.uuid4().hex[:6]}.log"
    environ = {"PATH": os.environ.get("PATH", ""), "HOME": str(folder), **(env or {})}
    with log_file.open("wb") as log:
        process = forkserver.Process(
            command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environ
        )
    try:
        yield Running(process, log_file)
    finally:
        for end in (process.terminate, process.kill):
            if process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    end()
                    await asyncio.to_thread(process.wait, STOP_DEADLINE_S)


@contextlib.asynccontextmanager
async def in_process(
    words: Sequence[str], provider: str, environ: Mapping[str, str] | None = None, time: clock.Clock | None = None
) -> AsyncIterator[Assembly]:
    """A manager in this process, for tests that set its clock or its periods; it must not end before the test does."""
    read = options.read([f"--cloud-provider={provider}", *words])
    assert not read.problems, read.problems
    assembly = Assembly(read.options, environ or {}, time=time)
    task = asyncio.create_task(assembly.run())
    try:
        yield assembly
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def arguments(server: servers.Server, lease: str = "", label: str = "", **more: str) -> list[str]:
    """Flags that keep managers of tests apart: a port, a Lease and nodes of their own, and quick elections."""
    flags = {
        "kubeconfig": str(server.kubeconfig),
        "bind-address": "127.0.0.1",
        "secure-port": str(servers.free_port()),
        "leader-elect-resource-name": lease or f"ccm-{uuid.uuid4().hex[:8]}",
        "leader-elect-lease-duration": "5s",
        "leader-elect-renew-deadline": "4s",
        "leader-elect-retry-period": "500ms",
        **({"node-selector": label} if label else {}),
        **{key.replace("_", "-"): value for key, value in more.items()},
    }
    return [f"--{key}={value}" for key, value in flags.items()]


def bmm_config(cloud: BmmCloud, folder: Path, token: str = "") -> Path:
    """The file of the BMM document."""
    file = folder / "cloud-config"
    file.write_text(
        f"endpoint: {cloud.url}\norgName: {cloud.org}\ntoken: {token or cloud.token}\n"
        f"siteId: {cloud.site_id}\ntenantId: {cloud.tenant_id}\n"
    )
    return file


def oxide_environment(cloud: OxideCloud) -> dict[str, str]:
    """The variables of the Oxide document."""
    return {"OXIDE_HOST": cloud.url, "OXIDE_TOKEN": cloud.token, "OXIDE_PROJECT": cloud.project}


@contextlib.asynccontextmanager
async def joined(
    client: Client, name: str, *, provider_id: str = "", ready: bool = True, labels: Mapping[str, str] | None = None
) -> AsyncIterator[str]:
    """A node as a kubelet with `--cloud-provider=external` registers it; deleted at the end."""
    spec: dict[str, Any] = {"taints": [TAINT], **({"providerID": provider_id} if provider_id else {})}
    await client.create(NODES.raw(), {"metadata": {"name": name, "labels": dict(labels or {})}, "spec": spec})
    await set_ready(client, name, ready)
    try:
        yield name
    finally:
        with contextlib.suppress(kube_errors.NotFound):
            await client.delete(NODES, name)


async def set_ready(client: Client, name: str, ready: bool) -> None:
    condition = {"type": "Ready", "status": "True" if ready else "False", "reason": "Test", "message": "test"}
    await client.patch(NODES.raw(), name, {"status": {"conditions": [condition]}}, subresource="status")


async def initialised(client: Client, name: str, manager: Running) -> dict[str, Any]:
    """Wait until the node has no taint of the cloud any more; the node."""
    found: dict[str, Any] = {}

    async def is_so() -> bool:
        found.update(await client.get(NODES.raw(), name))
        return all(taint["key"] != names.TAINT_UNINITIALIZED for taint in found["spec"].get("taints") or ())

    await until(is_so, f"node {name} initialised", describe=lambda: manager.log()[-4000:])
    return found


async def holder(client: Client, lease: str) -> str:
    """Who holds a Lease of kube-system; nobody: empty."""
    try:
        found = await client.get(LEASES.raw(), lease, "kube-system")
    except kube_errors.NotFound:
        return ""
    return str(found["spec"].get("holderIdentity") or "")
