"""`cloudlycke-lb-agent` as a kubelet sees it: its probes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from tests import servers
from tests.cloud.providers.cloudlycke.test_agent import Network
from tests.waiting import until

from bedplate.apps import lbagent

Ask = Callable[[str], Awaitable[int]]


@contextlib.asynccontextmanager
async def running(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ask]:
    """An agent on a machine without a network; asks its port for a path, 0 while it is closed."""
    monkeypatch.setattr("bedplate.cloud.providers.cloudlycke.wire.KernelWire", lambda: Network().of("n1"))
    port = servers.free_port()
    task = asyncio.create_task(lbagent._run("n1", None, str(kubeconfig), "cloudlycke-lb", f"127.0.0.1:{port}"))

    async def ask(path: str) -> int:
        assert not task.done(), task
        try:
            async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
                return answer.status
        except aiohttp.ClientConnectionError:
            return 0

    try:
        yield ask
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_it_is_ready_once_everything_has_been_listed(
    server: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(server.kubeconfig, monkeypatch) as ask:

        async def is_ready() -> bool:
            return await ask("/readyz") == 200

        await until(is_ready, "the agent is ready")
        assert await ask("/healthz") == 200


async def test_without_an_api_server_it_lives_and_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{servers.free_port()}"
    kubeconfig = servers.write_kubeconfig(tmp_path / "kubeconfig", url, tmp_path / "none", {"token": "t"})
    kubeconfig.write_text(kubeconfig.read_text().replace(f"certificate-authority: {tmp_path / 'none'}", ""))
    async with running(kubeconfig, monkeypatch) as ask:

        async def is_alive() -> bool:
            return await ask("/healthz") == 200

        await until(is_alive, "the agent answers")
        assert await ask("/readyz") == 500
