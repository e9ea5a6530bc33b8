"""Jupyter Enterprise Gateway from PyPI starts kernels through our process proxy, the operator and the sidecar."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.operators.jupyter import peers
from tests.operators.jupyter.kubelets import kubelet
from tests.operators.jupyter.worlds import World
from tests.waiting import DEADLINE_S, until

from bedplate.operators.jupyter.kernel import KERNELS
from bedplate.operators.jupyter.kernelspecs import folders, render, template

pytestmark = pytest.mark.external
PROXY = Path(__file__).parents[3] / "deploy" / "jupyter"
CLIENT = Path(__file__).with_name("gatewayclients.py")
USER = "nobody"


def kernelspec(folder: Path, namespace: str) -> None:
    """Our template, with a kernel that runs on this machine."""
    given = template.built_in(template.BUILT_IN[0])
    path = folder / "run" / "kernel.json"
    path.parent.mkdir()
    files = render.kernelspec(given, template.values(given, {"namespace": namespace, "kernel_name": "ours"}))
    document = json.loads(files["kernel.json"])
    document["argv"] = [str(peers.python()), "-m", "ipykernel_launcher", "-f", str(path)]
    field = f"  kernel_connection_file_path: {json.dumps(str(path))}\n"
    text = files["templates/cmjk.yaml.j2"].replace("  pod:\n", f"{field}  pod:\n", 1)
    files |= {"kernel.json": json.dumps(document), "templates/cmjk.yaml.j2": text}
    folders.write(folder / "jupyter" / "kernels", "ours", files, False)


@contextlib.asynccontextmanager
async def gateway(folder: Path, kubeconfig: Path) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """A real gateway; its URL, read from its log."""
    environ = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder / "home"),
        "KUBECONFIG": str(kubeconfig),
        "JUPYTER_PATH": str(folder / "jupyter"),
        "PYTHONPATH": str(PROXY),
        "EG_RESPONSE_IP": "127.0.0.1",
        "EG_KERNEL_LAUNCH_TIMEOUT": str(int(DEADLINE_S)),
        "EG_LOG_LEVEL": "DEBUG",
        "NO_PROXY": "127.0.0.1",
    }
    log = folder / "gateway.log"
    # Where another program was faster, the gateway takes one of the next ports, and says so.
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ("-m", "enterprise_gateway", "--ip=127.0.0.1", f"--port={port}")
    with log.open("wb") as target:
        process = await asyncio.create_subprocess_exec(
            str(peers.python()), *words, stdout=target, stderr=target, env=environ
        )
    try:

        def url() -> str:
            assert process.returncode is None, log.read_text()[-2000:]
            lines = [line for line in log.read_text().splitlines() if " available at http://" in line]
            return lines[0].rpartition(" ")[2] if lines else ""

        yield await until(url, "the gateway is there", describe=log.read_text), process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class User:
    """Somebody who uses the gateway."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def step(self, word: str = "") -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        if word:
            self._process.stdin.write(word.encode() + b"\n")
        line = await asyncio.wait_for(self._process.stdout.readline(), DEADLINE_S)
        assert line, "the user's program ended"
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextlib.asynccontextmanager
async def user(url: str) -> AsyncIterator[User]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        str(peers.python()), str(CLIENT), url, "ours", USER, stdin=pipe, stdout=pipe, env={"NO_PROXY": "127.0.0.1"}
    )
    try:
        yield User(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_the_gateway_starts_interrupts_restarts_and_ends_a_kernel(world: World, tmp_path: Path) -> None:
    kernelspec(tmp_path, world.namespace)
    own = {"HOME": str(tmp_path / "kernel-home")}
    async with (
        world.operator(),
        kubelet(world.client, world.namespace, tmp_path, own),
        gateway(tmp_path, world.server.kubeconfig) as (url, _),
        user(url) as someone,
    ):
        created = await someone.step()
        assert created["code"] == 201, created
        (resource,) = (await world.client.list(KERNELS, world.namespace)).items
        assert (resource.spec.username, resource.spec.uid) == (USER, 65534), "never what a client says"
        assert await someone.step() == {"step": "executed", "status": "ok", "output": "42", "ename": None}
        assert (await someone.step())["ename"] == "KeyboardInterrupt"
        assert (await someone.step())["code"] == 200
        assert (await someone.step())["output"] == "False\n"
        (again,) = (await world.client.list(KERNELS, world.namespace)).items
        assert again.metadata.uid != resource.metadata.uid, "a restarted kernel is another pod"
        assert (await someone.step("delete"))["code"] == 204
        await until(world.is_empty, "nothing is left")
        assert not (await world.client.list(KERNELS, world.namespace)).items


# It waits for the documented minute, so that one server has to do.
@pytest.mark.parametrize("server", ["real"], indirect=True)
async def test_item_194_a_gateway_that_dies_takes_its_kernels_along(world: World, tmp_path: Path) -> None:
    kernelspec(tmp_path, world.namespace)
    own = {"HOME": str(tmp_path / "kernel-home")}
    async with (
        world.operator(),
        kubelet(world.client, world.namespace, tmp_path, own),
        gateway(tmp_path, world.server.kubeconfig) as (url, process),
        user(url) as someone,
    ):
        assert (await someone.step())["code"] == 201
        assert (await someone.step())["output"] == "42"
        process.kill()

        async def is_gone() -> bool:
            return not (await world.client.list(KERNELS, world.namespace)).items

        await until(is_gone, "the resource is removed")
        await until(world.is_empty, "nothing is left")
    said = (tmp_path / "sidecar.log").read_text()
    assert "cmjksidecar: Timeout receiving pings from server for 60 sec. Shutting down." in said
