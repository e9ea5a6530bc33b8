"""A stand-in for a kubelet: the containers of kernels' pods as processes of this machine, at its own address.

In: a client, a namespace. Out: for every pod a kernel (the command of its first container) and a real `cmjksidecar`
with ports that the system chooses; statuses as a kubelet writes them; a deleted pod's processes end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from bedplate.api.resources import PODS
from bedplate.kube import Client
from bedplate.kube import errors as kube_errors

SIDECAR = Path(sys.executable).with_name("cmjksidecar")
ADDRESS = "127.0.0.1"
RAW = PODS.raw()


class Kubelet:
    """Runs the pods of one namespace."""

    def __init__(self, client: Client, namespace: str, folder: Path, environ: Mapping[str, str]) -> None:
        self._client = client
        self._namespace = namespace
        self._folder = folder
        self._environ = environ
        self._pods: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Until cancelled; then every process ends."""
        try:
            while True:
                found = {pod["metadata"]["name"]: pod for pod in (await self._client.list(RAW, self._namespace)).items}
                for name in self._pods.keys() - found.keys():
                    # A pod that has no node goes at once, and is never seen on its way.
                    await self._end(name)
                for name, pod in found.items():
                    if "deletionTimestamp" in pod["metadata"]:
                        await self._end(name)
                    elif name not in self._pods:
                        self._pods[name] = asyncio.ensure_future(self._run_pod(pod))
                await asyncio.sleep(0.1)
        finally:
            for task in self._pods.values():
                task.cancel()
            await asyncio.gather(*self._pods.values(), return_exceptions=True)

    async def _end(self, name: str) -> None:
        task = self._pods.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        with contextlib.suppress(kube_errors.NotFound):
            await self._client.delete(PODS, name, self._namespace, grace_period_s=0)

    async def _run_pod(self, pod: dict[str, Any]) -> None:
        kernel, sidecar = pod["spec"]["containers"][0], pod["spec"]["containers"][-1]
        variables = {one["name"]: one["value"] for one in sidecar["env"]}
        variables |= {name: "0" for name in variables if name.endswith("_PORT")}
        words = [str(SIDECAR), *sidecar.get("args", ()), f"--bind-address={ADDRESS}"]
        # A pod's volumes are new: a kernel that finds the file of one before binds that one's ports, whoever has them.
        for file in (self._folder / "run").iterdir():
            file.unlink()
        async with (
            self._process(kernel["command"], "kernel", {}) as running,
            self._process(words, "sidecar", variables) as beside,
        ):
            processes = {kernel["name"]: running, sidecar["name"]: beside}
            await self._tell(pod, dict.fromkeys(processes))
            ends = {name: asyncio.ensure_future(process.wait()) for name, process in processes.items()}
            try:
                while not all(end.done() for end in ends.values()):
                    await asyncio.wait(
                        [end for end in ends.values() if not end.done()], return_when=asyncio.FIRST_COMPLETED
                    )
                    await self._tell(pod, {name: end.result() if end.done() else None for name, end in ends.items()})
            finally:
                for end in ends.values():
                    end.cancel()

    @contextlib.asynccontextmanager
    async def _process(
        self, words: list[str], name: str, variables: Mapping[str, str]
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        environ = {"PATH": os.environ.get("PATH", os.defpath), **self._environ, **variables}
        with (self._folder / f"{name}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(*words, stdout=log, stderr=log, env=environ)
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _tell(self, pod: dict[str, Any], codes: Mapping[str, int | None]) -> None:
        states = [
            {
                "name": name,
                "image": "x",
                "imageID": "x",
                "restartCount": 0,
                "ready": code is None,
                "state": {"running": {}} if code is None else {"terminated": {"exitCode": abs(code)}},
            }
            for name, code in codes.items()
        ]
        status = {"phase": "Running", "podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}], "containerStatuses": states}
        with contextlib.suppress(kube_errors.NotFound):
            await self._client.patch(
                RAW, pod["metadata"]["name"], {"status": status}, self._namespace, subresource="status"
            )


@contextlib.asynccontextmanager
async def kubelet(client: Client, namespace: str, folder: Path, environ: Mapping[str, str]) -> AsyncIterator[None]:
    """A kubelet that runs meanwhile."""
    running = asyncio.ensure_future(Kubelet(client, namespace, folder, environ).run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
