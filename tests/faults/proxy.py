"""A proxy that counts requests and plays faults: storms of 429 and 500, cut streams, no answers at all.

In: plain HTTP from the client under test. Out: the same requests to the API server behind, or the fault of the moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from tests import servers

from bedplate.kube import config

__all__ = ["Proxy", "proxied"]

_DROP = {"Transfer-Encoding", "Content-Length", "Content-Encoding", "Connection", "Host"}


@dataclass
class Proxy:
    """The fault in force is set by attributes; `seen` counts what came in, by method and kind of request."""

    session: aiohttp.ClientSession
    upstream: str
    rng: random.Random = field(default_factory=lambda: random.Random(1))
    refuse: tuple[int, float] = (0, 0.0)
    """(status code, share of requests) to answer with."""
    retry_after: str = ""
    cut_streams_after_s: float = 0.0
    seen: Counter[str] = field(default_factory=Counter)
    port: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        is_watch = request.query.get("watch") in ("true", "1")
        self.seen["watch" if is_watch else request.method] += 1
        code, share = self.refuse
        if code and self.rng.random() < share:
            headers = {"Retry-After": self.retry_after} if self.retry_after else {}
            return web.json_response(_status(code), status=code, headers=headers)
        body = await request.read()
        headers = {key: value for key, value in request.headers.items() if key not in _DROP}
        async with self.session.request(
            request.method, self.upstream + request.raw_path, data=body or None, headers=headers
        ) as answer:
            passed = {key: value for key, value in answer.headers.items() if key not in _DROP}
            response = web.StreamResponse(status=answer.status, headers=passed)
            await response.prepare(request)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.cut_streams_after_s if is_watch and self.cut_streams_after_s else None):
                    async for chunk in answer.content.iter_any():
                        await response.write(chunk)
                    await response.write_eof()
                    return response
            # Cut in the middle of a chunked body: the client must notice that it is not a clean end.
            if request.transport is not None:
                request.transport.abort()
            return response


def _status(code: int) -> dict[str, Any]:
    reasons = {429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reasons[code],
        "message": "storm",
    }


@contextlib.asynccontextmanager
async def proxied(kubeconfig: Path, folder: Path) -> AsyncIterator[tuple[Proxy, config.ClientConfig]]:
    """A proxy before a server, and the configuration to reach it; its user is the server's administrator."""
    server = servers.read_kubeconfig("upstream", kubeconfig, folder)
    headers = {"Authorization": f"Bearer {server.token}"} if server.token else {}
    connector = aiohttp.TCPConnector(ssl=server.ssl_context(), limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        connector=connector, headers=headers, timeout=timeout, auto_decompress=False
    ) as session:
        proxy = Proxy(session, server.url)
        runner = web.AppRunner(_app(proxy), access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        proxy.port = runner.addresses[0][1]
        try:
            yield proxy, config.ClientConfig(f"http://127.0.0.1:{proxy.port}").with_rate(-1, 1)
        finally:
            await runner.cleanup()


def _app(proxy: Proxy) -> web.Application:
    app = web.Application(client_max_size=16 * 1024 * 1024)
    app.router.add_route("*", "/{tail:.*}", proxy.handle)
    return app
