"""Scripted heads on loopback: they give the answers a test lists, and remember what they were asked."""

from __future__ import annotations

import contextlib
import json
import types
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from aiohttp import web


class Said(NamedTuple):
    """One answer; a status of 0 closes the connection instead."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = types.MappingProxyType({})
    content_type: str = "application/json"


class Asked(NamedTuple):
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class Scripted:
    """`script` is worked off in order; its last answer is given forever."""

    def __init__(self, *script: Said) -> None:
        self.script = list(script)
        self.asked: list[Asked] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        body = json.loads(data) if data and request.content_type == "application/json" else data.decode()
        self.asked.append(Asked(request.method, request.path, dict(request.query), dict(request.headers), body))
        said = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if said.status == 0:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        text = said.body if isinstance(said.body, str) else json.dumps(said.body)
        headers = {**said.headers, "Content-Type": said.content_type}
        return web.Response(status=said.status, text=None if said.status == 304 else text, headers=headers)


@contextlib.asynccontextmanager
async def scripted(*script: Said) -> AsyncIterator[Scripted]:
    head = Scripted(*script)
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", head.answer)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        head.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield head
    finally:
        await runner.cleanup()


def problem(status: int, kind: str = "about:blank", **more: Any) -> Said:
    headers = more.pop("headers", {})
    body = {"type": kind, "title": "Trouble", "status": status, **more}
    return Said(status, body, headers, "application/problem+json")
