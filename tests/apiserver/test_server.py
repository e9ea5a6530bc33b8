"""The server as a program and as a context manager: start, stop, restart, kill, refusals, two servers on one etcd."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from tests import forkserver, programs, servers

from bedplate.apiserver import server


def ssl_context(pki: pathlib.Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(str(pki / "admin.crt"), str(pki / "admin.key"))
    return context


@contextlib.asynccontextmanager
async def client(data: pathlib.Path, url: str) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(ssl=ssl_context(data / "pki"))
    async with aiohttp.ClientSession(url, connector=connector) as session:
        yield session


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}}


CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


async def names(session: aiohttp.ClientSession) -> set[str]:
    async with session.get(CONFIG_MAPS) as reply:
        return {item["metadata"]["name"] for item in (await reply.json())["items"]}


async def test_data_survives_a_restart(tmp_path: pathlib.Path) -> None:
    options = server.Options(data=tmp_path / "data")
    async with server.ApiServer(options) as first, client(options.data, first.url) as session:
        made = await (await session.post(CONFIG_MAPS, json=config_map("a"))).json()
    async with server.ApiServer(options) as second, client(options.data, second.url) as session:
        assert await (await session.get(f"{CONFIG_MAPS}/a")).json() == made


async def test_a_watch_is_resumed_after_a_restart(tmp_path: pathlib.Path) -> None:
    options = server.Options(data=tmp_path / "data")
    async with server.ApiServer(options) as first, client(options.data, first.url) as session:
        async with session.get(CONFIG_MAPS) as reply:
            version = (await reply.json())["metadata"]["resourceVersion"]
        async with session.post(CONFIG_MAPS, json=config_map("a")):
            pass
    async with server.ApiServer(options) as second, client(options.data, second.url) as session:
        parameters = {"watch": "true", "resourceVersion": version, "fieldSelector": "metadata.name=a"}
        async with session.get(CONFIG_MAPS, params=parameters) as reply, asyncio.timeout(30):
            assert b'"ADDED"' in await reply.content.readline()


async def test_stopping_ends_watches_and_answers_what_is_in_work(tmp_path: pathlib.Path) -> None:
    options = server.Options(data=tmp_path / "data")
    async with contextlib.AsyncExitStack() as stack:
        running = server.ApiServer(options)
        await running.__aenter__()
        session = await stack.enter_async_context(client(options.data, running.url))
        watch = await stack.enter_async_context(session.get("/api/v1/secrets", params={"watch": "true"}))
        await running.__aexit__(None, None, None)
        async with asyncio.timeout(30):
            assert await watch.content.read() is not None


async def test_who_is_not_known_is_anonymous_and_a_wrong_token_is_refused(tmp_path: pathlib.Path) -> None:
    options = server.Options(data=tmp_path / "data")
    async with server.ApiServer(options) as running:
        context = ssl.create_default_context(cafile=str(options.data / "pki" / "ca.crt"))
        async with aiohttp.ClientSession(running.url, connector=aiohttp.TCPConnector(ssl=context)) as session:
            async with session.get(CONFIG_MAPS) as reply:
                assert reply.status == 403
                assert 'User "system:anonymous" cannot list resource "configmaps"' in (await reply.json())["message"]
            async with session.get(CONFIG_MAPS, headers={"Authorization": "Bearer wrong"}) as reply:
                assert reply.status == 401
            async with session.get("/readyz") as reply:
                assert (reply.status, await reply.text()) == (200, "ok")


async def test_metrics_count_requests(tmp_path: pathlib.Path) -> None:
    options = server.Options(data=tmp_path / "data")
    async with server.ApiServer(options) as running, client(options.data, running.url) as session:
        await names(session)
        async with session.get("/metrics") as reply:
            text = await reply.text()
    wanted = (
        'apiserver_request_total{code="200",group="",resource="configmaps",subresource="",verb="LIST",version="v1"} 1'
    )
    assert wanted in text
    assert 'apiserver_resource_objects{group="",resource="namespaces"} 4' in text


async def test_certificates_are_kept_and_made_anew_for_new_names(tmp_path: pathlib.Path) -> None:
    data = tmp_path / "data"
    async with server.ApiServer(server.Options(data=data)):
        first = {path.name: path.read_bytes() for path in (data / "pki").iterdir()}
    async with server.ApiServer(server.Options(data=data)):
        assert {path.name: path.read_bytes() for path in (data / "pki").iterdir()} == first
    async with server.ApiServer(server.Options(data=data, bind_address="127.0.0.2")):
        second = {path.name: path.read_bytes() for path in (data / "pki").iterdir()}
    assert second["ca.crt"] == first["ca.crt"]
    assert second["server.crt"] != first["server.crt"]
    assert (data / "pki" / "admin.key").stat().st_mode & 0o077 == 0


class Program:
    """`bedplate apiserver` as a process."""

    def __init__(self, folder: pathlib.Path, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.data, self.kubeconfig = folder / "data", folder / "kubeconfig"
        self.kubeconfig.unlink(missing_ok=True)
        self.process = forkserver.Process(
            [sys.executable, "-m", "bedplate.apps.bedplate", "apiserver", "--data", str(self.data), "--port", "0",
             "--kubeconfig-out", str(self.kubeconfig), *arguments],
            stderr=subprocess.PIPE, env={**os.environ, **(env or {})},
        )  # fmt: skip

    async def url(self) -> str:
        async with asyncio.timeout(60):
            while not self.kubeconfig.exists():
                assert self.process.poll() is None, self.errors()
                await asyncio.sleep(0.02)
        return servers.read_kubeconfig("program", self.kubeconfig, self.data.parent).url

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def program(folder: pathlib.Path, *arguments: str, env: dict[str, str] | None = None) -> Any:
    running = Program(folder, *arguments, env=env)
    try:
        yield running
    finally:
        running.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_the_program_cleanly(tmp_path: pathlib.Path, number: signal.Signals) -> None:
    with program(tmp_path) as running:
        await running.url()
        running.process.send_signal(number)
        assert await asyncio.to_thread(running.process.wait, 30) == 0


async def test_kill_9_loses_no_acknowledged_write(tmp_path: pathlib.Path) -> None:
    acknowledged: set[str] = set()
    for turn in range(3):
        with program(tmp_path) as running:
            url = await running.url()
            async with client(running.data, url) as session:
                assert acknowledged <= await names(session)

                async def write(session: aiohttp.ClientSession, prefix: str) -> None:
                    for number in range(10_000):
                        name = f"{prefix}-{number}"
                        async with session.post(CONFIG_MAPS, json=config_map(name)) as reply:
                            if reply.status == 201:
                                acknowledged.add(name)

                writers = [asyncio.create_task(write(session, f"t{turn}-w{index}")) for index in range(8)]
                await asyncio.sleep(0.3)
                running.process.kill()
                await asyncio.gather(*writers, return_exceptions=True)
    with program(tmp_path) as running:
        async with client(running.data, await running.url()) as session:
            assert acknowledged
            assert acknowledged <= await names(session)


async def refused(folder: pathlib.Path, *arguments: str, env: dict[str, str] | None = None) -> str:
    with program(folder, *arguments, env=env) as running:
        code = await asyncio.to_thread(running.process.wait, 60)
        text = running.errors()
        assert code not in (0, None), text
        assert "Traceback" not in text
        return str(text)


async def test_a_port_in_use_is_named(tmp_path: pathlib.Path) -> None:
    async with server.ApiServer(server.Options(data=tmp_path / "other")) as running:
        port = running.url.rpartition(":")[2]
        assert f"port {port} is in use" in await refused(tmp_path, "--port", port)


async def test_a_data_directory_has_one_owner(tmp_path: pathlib.Path) -> None:
    async with server.ApiServer(server.Options(data=tmp_path / "data")):
        assert "data" in await refused(tmp_path)


async def test_a_data_directory_must_be_a_directory(tmp_path: pathlib.Path) -> None:
    (tmp_path / "data").write_text("")
    assert "cannot use" in await refused(tmp_path)


async def test_unknown_versions_and_flags_are_refused(tmp_path: pathlib.Path) -> None:
    assert "1.2" in await refused(tmp_path, "--kubernetes", "1.2")
    assert "--store etcd needs --etcd-endpoints" in await refused(tmp_path, "--store", "etcd")
    assert "is not a duration" in await refused(tmp_path, "--history", "soon")


@pytest.mark.real
async def test_two_servers_share_one_etcd(tmp_path: pathlib.Path) -> None:
    etcd = programs.built("etcd", servers.ETCD)
    processes = servers.Processes("etcd")
    try:
        endpoint = servers._start_etcd(processes, etcd)
        settings = server.EtcdSettings((endpoint,))
        one = server.Options(data=tmp_path / "one", etcd=settings)
        two = server.Options(data=tmp_path / "two", etcd=settings)
        async with (
            server.ApiServer(one) as first,
            server.ApiServer(two) as second,
            client(one.data, first.url) as here,
            client(two.data, second.url) as there,
        ):
            for number in range(20):
                name = f"c{number}"
                async with here.post(CONFIG_MAPS, json=config_map(name)) as reply:
                    assert reply.status == 201, await reply.text()
                async with there.get(f"{CONFIG_MAPS}/{name}") as reply:
                    assert reply.status == 200, "a read elsewhere sees what was acknowledged here"
            async with there.delete(f"{CONFIG_MAPS}/c0") as reply:
                assert reply.status == 200
            assert "c0" not in await names(here)
            async with here.post(CONFIG_MAPS, json=config_map("c1")) as reply:
                assert reply.status == 409
    finally:
        processes.stop()
