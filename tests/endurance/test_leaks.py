"""What comes and goes leaves nothing behind: memory, files and tasks of the server stay bounded.

Measured on the running process from outside. Bounds are generous: what they catch is growth with every request, not a
megabyte here or there. The server keeps up to 32 MB of recent events per kind for watches that resume; the bounds allow
for that, and the first round of each test fills what is kept anyway.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import re
from collections.abc import Iterator

import aiohttp
import pytest
from tests.endurance import running
from tests.waiting import until

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
SHARE = 10
"""`make test` does a tenth of what `make soak` does, and a twentieth of the watches."""
WATCHES, WRITES = 20_000, 50_000


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[running.Embedded]:
    with running.Embedded(tmp_path / "server", "--history", "5s").running() as server:
        yield server


async def open_and_close_watches(server: running.Embedded, count: int, width: int = 50) -> None:
    """Watches of all sorts: with selectors no two of which are equal, as tables, of forgotten versions, cut at once."""
    async with running.session(server.server) as session:

        async def one(number: int) -> None:
            parameters = {"watch": "1", "labelSelector": f"n={number}", "allowWatchBookmarks": "true"}
            if number % 5 == 0:
                parameters["resourceVersion"] = "1"
            if number % 3 == 0:
                parameters["timeoutSeconds"] = "1"
            accept = "application/json;as=Table;v=v1;g=meta.k8s.io" if number % 4 == 0 else "application/json"
            answer = await session.get(CONFIGMAPS, params=parameters, headers={"Accept": accept})
            assert answer.status == 200
            if number % 2:
                answer.close()
            else:
                answer.release()

        for start in range(0, count, width):
            await asyncio.gather(*(one(number) for number in range(start, min(count, start + width))))


async def write(server: running.Embedded, count: int, width: int = 16) -> None:
    """Create, change, list and delete; objects of a few kilobytes, a watcher looking on."""
    async with running.session(server.server) as session:
        watcher = asyncio.create_task(_follow(session))

        async def one(worker: int) -> None:
            for number in range(count // width // 3):
                name, data = f"w{worker}-{number}", {"x": "y" * 3000}
                async with session.post(CONFIGMAPS, json={"metadata": {"name": name}, "data": data}) as answer:
                    assert answer.status == 201
                patch = json.dumps({"metadata": {"labels": {"a": str(number)}}})
                headers = {"Content-Type": "application/merge-patch+json"}
                async with session.patch(f"{CONFIGMAPS}/{name}", data=patch, headers=headers) as answer:
                    assert answer.status == 200
                async with session.delete(f"{CONFIGMAPS}/{name}") as answer:
                    assert answer.status == 200
                if number % 20 == 0:
                    async with session.get(f"/api/v1/{number}/nothing-{worker}-{number}") as answer:
                        await answer.read()
                    async with session.get(CONFIGMAPS, params={"labelSelector": f"q={worker}.{number}"}) as answer:
                        await answer.read()

        await asyncio.gather(*(one(worker) for worker in range(width)))
        watcher.cancel()


async def _follow(session: aiohttp.ClientSession) -> None:
    async with session.get(CONFIGMAPS, params={"watch": "1"}, timeout=aiohttp.ClientTimeout()) as answer:
        async for _ in answer.content.iter_chunked(65536):
            pass


def watchers(server: running.Embedded) -> int:
    """How many watches the server believes are open."""
    _, body = server.request("GET", "/metrics")
    found = [float(line.split()[-1]) for line in body.decode().splitlines() if re.match(r"\w*watch\w*[ {]", line)]
    return int(sum(found))


async def quiet(server: running.Embedded, files: int) -> None:
    await until(lambda: server.open_files <= files + 5, "the connections are closed")


async def check_watches(server: running.Embedded, count: int) -> None:
    idle = server.open_files
    await open_and_close_watches(server, count // 4)
    await quiet(server, idle)
    files, memory = server.open_files, server.rss_mb
    await open_and_close_watches(server, count)
    await quiet(server, files)
    assert server.rss_mb < memory + 60, f"{memory:.0f} MB before, {server.rss_mb:.0f} MB after {count} watches"
    assert watchers(server) == 0
    assert server.faults == []


async def check_writes(server: running.Embedded, count: int) -> None:
    idle = server.open_files
    await write(server, count // 4)
    await quiet(server, idle)
    files, memory = server.open_files, server.rss_mb
    await write(server, count)
    await quiet(server, files)
    assert server.rss_mb < memory + 150, f"{memory:.0f} MB before, {server.rss_mb:.0f} MB after {count} writes"
    lines = server.request("GET", "/metrics")[1].decode().count("\n")
    assert lines < 2000, "a number per nonsensical path"
    assert server.faults == []


async def test_watches_that_come_and_go_leave_nothing(server: running.Embedded) -> None:
    await check_watches(server, WATCHES // SHARE // 2)


async def test_writes_leave_nothing_but_history(server: running.Embedded) -> None:
    await check_writes(server, WRITES // SHARE)


@pytest.mark.soak
async def test_twenty_thousand_watches_leave_nothing(server: running.Embedded) -> None:
    await check_watches(server, WATCHES)


@pytest.mark.soak
async def test_fifty_thousand_writes_leave_nothing_but_history(server: running.Embedded) -> None:
    await check_writes(server, WRITES)


async def test_a_watcher_that_never_reads_is_cut(server: running.Embedded) -> None:
    """It would otherwise make the server keep every event for it forever."""
    connection = server.connect()
    try:
        connection.sendall(b"GET /api/v1/configmaps?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.recv(1000)
        memory = server.rss_mb
        async with running.session(server.server) as session:
            body = {"metadata": {"name": "fat"}, "data": {"x": "y" * 500_000}}
            async with session.post(CONFIGMAPS, json=body) as answer:
                assert answer.status == 201
            for number in range(150):
                patch = json.dumps({"metadata": {"labels": {"a": str(number)}}})
                headers = {"Content-Type": "application/merge-patch+json"}
                async with session.patch(f"{CONFIGMAPS}/fat", data=patch, headers=headers) as answer:
                    assert answer.status == 200
        assert server.rss_mb < memory + 250
        assert await asyncio.to_thread(_is_cut, connection)
    finally:
        connection.close()
    assert server.faults == []


def _is_cut(connection: object) -> bool:
    """Read all there is; whether it ends."""
    connection.settimeout(30)  # type: ignore[attr-defined]
    try:
        while connection.recv(1 << 20):  # type: ignore[attr-defined]
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True
