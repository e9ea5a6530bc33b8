"""A manager while its API server restarts, forgets history, breaks streams off and asks it to wait."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from tests import servers
from tests.apps import managers
from tests.apps.managers import PROGRAMS, initialised, joined, program, running
from tests.apps.test_ccm_leading import inventory
from tests.faults import places, proxy
from tests.waiting import until

from bedplate.core import errors
from bedplate.kube import Client, config

CLOUDLYCKE = program(PROGRAMS["cloudlycke"])
GONE = (
    b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,'
    b'"message":"too old resource version"}}\n'
)


@dataclass
class Between(proxy.Proxy):
    """The proxy of the fault tests, which also tells watches that their version is gone, and counts by resource."""

    gone: int = 0
    calls: Counter[str] = field(default_factory=Counter)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        is_watch = request.query.get("watch") in ("true", "1")
        self.calls[f"{'WATCH' if is_watch else request.method} {request.path.rpartition('/')[2]}"] += 1
        if is_watch and request.path.endswith("/nodes") and self.gone:
            self.gone -= 1
            return web.Response(body=GONE, content_type="application/json")
        return await super().handle(request)


@contextlib.asynccontextmanager
async def between(server: servers.Server, folder: Path) -> AsyncIterator[Between]:
    """A proxy before the server; what it counts and how it fails is the test's to set."""
    async with proxy.proxied(server.kubeconfig, folder) as (plain, _):
        made = Between(plain.session, plain.upstream)
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_route("*", "/{tail:.*}", made.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        made.port = runner.addresses[0][1]
        try:
            yield made
        finally:
            await runner.cleanup()


@pytest.fixture(params=["real", "embedded"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[places.Place]:
    async with places.opened(request.param, tmp_path / "server") as server:
        yield server


async def until_accepted(client: Client, name: str, stack: contextlib.AsyncExitStack) -> None:
    """Join a node as soon as the server takes it."""

    async def is_joined() -> bool:
        try:
            await stack.enter_async_context(joined(client, name))
        except errors.Retryable:
            return False
        return True

    await until(is_joined, f"{name} joined")


async def test_a_manager_outlives_its_api_server(place: places.Place, tmp_path: Path) -> None:
    server = servers.read_kubeconfig("place", place.kubeconfig, tmp_path)
    words = [*managers.arguments(server), "--leader-elect=false", "--cloud-config"]
    async with (
        Client(config.load(place.kubeconfig, environ={}).with_rate(-1, 1)) as client,
        running(CLOUDLYCKE, *words, str(inventory(tmp_path, "before", "after")), folder=tmp_path) as manager,
        contextlib.AsyncExitStack() as stack,
    ):
        await until_accepted(client, "before", stack)
        await initialised(client, "before", manager)
        await place.kill()
        await manager.logged("reflector.")
        assert (await manager.get("/healthz"))[0] == 200
        await place.restart()
        await until_accepted(client, "after", stack)
        await initialised(client, "after", manager)
        assert manager.exit_code is None


async def test_a_watch_that_is_told_gone_lists_anew(server: servers.Server, client: Client, tmp_path: Path) -> None:
    name = f"a25-gone-{uuid.uuid4().hex[:6]}"
    async with between(server, tmp_path) as proxied:
        proxied.cut_streams_after_s = 0.5
        master = f"http://127.0.0.1:{proxied.port}"
        words = managers.arguments(server, name, f"ccm-test={name}", master=master)
        async with running(
            CLOUDLYCKE, *words, "--cloud-config", str(inventory(tmp_path, name)), folder=tmp_path
        ) as manager:
            await manager.logged("controller.started")
            lists = proxied.calls["GET nodes"]
            proxied.gone = 1

            async def is_told() -> bool:
                return proxied.gone == 0

            await until(is_told, "watches were told")
            async with joined(client, name, labels={"ccm-test": name}):
                await initialised(client, name, manager)
            assert proxied.calls["GET nodes"] > lists
            assert await manager.stop() == 0


async def test_a_watch_that_breaks_off_goes_on_where_it_was_without_a_list(
    server: servers.Server, client: Client, tmp_path: Path
) -> None:
    name = f"a25-cut-{uuid.uuid4().hex[:6]}"
    async with between(server, tmp_path) as proxied:
        proxied.cut_streams_after_s = 0.5
        words = managers.arguments(server, name, f"ccm-test={name}", master=f"http://127.0.0.1:{proxied.port}")
        async with running(
            CLOUDLYCKE, *words, "--cloud-config", str(inventory(tmp_path, name)), folder=tmp_path
        ) as manager:
            await manager.logged("controller.started")
            watches, lists = proxied.calls["WATCH nodes"], proxied.calls["GET nodes"]

            async def is_cut() -> bool:
                return proxied.calls["WATCH nodes"] >= watches + 2

            await until(is_cut, "streams were cut", describe=manager.log)
            async with joined(client, name, labels={"ccm-test": name}):
                await initialised(client, name, manager)
            assert proxied.calls["GET nodes"] == lists


@pytest.mark.parametrize(("code", "retry_after"), [(429, "1"), (500, ""), (503, "1")])
async def test_a_storm_of_refusals_is_waited_out(
    server: servers.Server, client: Client, tmp_path: Path, code: int, retry_after: str
) -> None:
    name = f"a25-storm-{uuid.uuid4().hex[:6]}"
    async with between(server, tmp_path) as proxied:
        words = managers.arguments(server, name, f"ccm-test={name}", master=f"http://127.0.0.1:{proxied.port}")
        words += ["--leader-elect=false", "--cloud-config", str(inventory(tmp_path, name))]
        async with running(CLOUDLYCKE, *words, folder=tmp_path) as manager:
            await manager.logged("controller.started")
            proxied.refuse, proxied.retry_after = (code, 1.0), retry_after
            proxied.calls.clear()
            async with joined(client, name, labels={"ccm-test": name}):

                async def was_refused() -> bool:
                    return proxied.calls[f"PATCH {name}"] > 0

                await until(was_refused, "a write was refused", describe=manager.log)
                await asyncio.sleep(1)
                # A second of refusals: tried again, and not hammered.
                assert proxied.calls[f"PATCH {name}"] < 50
                proxied.refuse = (0, 0.0)
                await initialised(client, name, manager)
            assert manager.exit_code is None
