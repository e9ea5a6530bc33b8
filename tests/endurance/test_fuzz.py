"""Random requests from the server's own OpenAPI: no internal error, no traceback in the log, no end of the server."""

from __future__ import annotations

import asyncio
import collections
import json
import os
import pathlib
import random
import time
from collections.abc import Iterator

import aiohttp
import pytest
from tests.endurance import fuzz, running

SECONDS = 30.0
SOAK_SECONDS = 1200.0
CLIENTS = 4


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[running.Embedded]:
    with running.Embedded(tmp_path / "server").running() as server:
        yield server


async def documents(session: aiohttp.ClientSession) -> list[dict[str, object]]:
    async with session.get("/openapi/v3") as answer:
        paths = (await answer.json())["paths"]
    found = []
    for entry in paths.values():
        async with session.get(entry["serverRelativeURL"]) as answer:
            found.append(await answer.json())
    return found


async def assail(server: running.Embedded, seconds: float, seed: int) -> collections.Counter[int]:
    """Send random requests for some time; how often which code was answered."""
    codes: collections.Counter[int] = collections.Counter()
    wrong: list[str] = []
    async with running.session(server.server, limit=CLIENTS * 2) as session:
        await session.post("/api/v1/namespaces", json={"metadata": {"name": "fuzz"}})
        requests = fuzz.Requests(await documents(session), random.Random(seed))
        end = time.monotonic() + seconds

        async def client() -> None:
            while time.monotonic() < end:
                one = requests.next()
                headers = {"Accept": one.accept, "Content-Type": one.content_type or "application/json"}
                async with session.request(
                    one.method, one.path, params=one.query, data=one.body or None, headers=headers
                ) as answer:
                    body = await answer.read()
                codes[answer.status] += 1
                if answer.status >= 500 and b'"reason":"InternalError"' in body.replace(b'": "', b'":"'):
                    wrong.append(f"{one}\n  -> {body[:600]!r}")

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
    assert server.is_alive, server.log[-5000:]
    assert not wrong, f"{len(wrong)} internal errors, the first:\n" + "\n".join(wrong[:3])
    assert server.faults == [], server.log[-5000:]
    return codes


async def test_random_requests_meet_no_internal_error(server: running.Embedded) -> None:
    seed = int(os.environ.get("FUZZ_SEED", "1"))
    codes = await assail(server, float(os.environ.get("FUZZ_SECONDS", SECONDS)), seed)
    print(json.dumps(codes))
    assert codes[200] and codes[201] and codes[400] and codes[404] and codes[422]
    assert server.get("/api/v1/namespaces")["items"]
    # What was stored can also be read back by a new life of the server.
    server.kill()
    server.start()
    assert server.get("/api/v1/namespaces")["items"]


@pytest.mark.soak
@pytest.mark.parametrize("seed", [11, 12, 13])
async def test_random_requests_meet_no_internal_error_for_long(server: running.Embedded, seed: int) -> None:
    await assail(server, SOAK_SECONDS / 3, seed)
