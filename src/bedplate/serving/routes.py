"""The paths of a port and who answers them, and the listening itself.

In: handlers by method and path, an address, for HTTPS a TLS context. Out: answers. A path is met as it is, or by the
part before its last slashes (`get_below`). What nobody handles is 404 or 405, what is too large 413; a handler that
raises is logged, and the client learns nothing of it but 500.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs

from bedplate.core import logging
from bedplate.serving.http import MAX_BODY_BYTES, Application, Connection, Connections, Request, Response

__all__ = ["Handler", "Listener", "Routes", "text", "values"]

log = logging.get_logger("serving.routes")
Handler = Callable[[Request], Awaitable[Response]]
TEXT = "text/plain; charset=utf-8"
_HANDSHAKE_S = 20.0


def text(code: int, content: str, *headers: tuple[str, str]) -> Response:
    """An answer in words."""
    return Response(code, content.encode(), TEXT, headers)


def values(request: Request) -> dict[str, list[str]]:
    """The parameters of the query, each with all its values."""
    return parse_qs(request.raw_query, keep_blank_values=True)


class Routes:
    """Handlers by path. GET handlers answer HEAD too."""

    def __init__(self) -> None:
        self._exact: dict[str, dict[str, Handler]] = {}
        self._below: dict[str, dict[str, Handler]] = {}

    def add(self, method: str, path: str, handler: Handler) -> None:
        self._exact.setdefault(path, {})[method] = handler

    def get_below(self, prefix: str, handler: Callable[[Request, str], Awaitable[Response]]) -> None:
        """All that is below a path that ends with a slash; the handler also gets what follows it."""

        async def answer(request: Request) -> Response:
            return await handler(request, request.path.removeprefix(prefix))

        self._below.setdefault(prefix, {})["GET"] = answer

    async def answer(self, request: Request) -> Response:
        if request.is_too_large:
            return text(413, "the body is too large\n")
        handlers = self._exact.get(request.path) or self._below_of(request.path)
        if handlers is None:
            return text(404, "not found\n")
        handler = handlers.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            return text(405, "method not allowed\n", ("Allow", ", ".join(sorted(handlers))))
        return await handler(request)

    def _below_of(self, path: str) -> dict[str, Handler] | None:
        fitting = [prefix for prefix in self._below if path.startswith(prefix) and path != prefix]
        return self._below[max(fitting, key=len)] if fitting else None


class Listener:
    """An open port. `host` None: every interface; port 0 takes a free one, and `port` says which."""

    def __init__(self, answer: Handler, *, largest_body: int = MAX_BODY_BYTES) -> None:
        self._answer = answer
        self._largest_body = largest_body
        self._connections = Connections()
        self._server: asyncio.Server | None = None
        self._watch: asyncio.Task[None] | None = None
        self.port = 0

    async def open(
        self, host: str | None, port: int, context: ssl.SSLContext | None = None, *, reuse_port: bool = False
    ) -> None:
        """Listen. Raises OSError when the port cannot be had."""
        loop = asyncio.get_running_loop()
        application: Application = self._answered
        server = await loop.create_server(
            lambda: Connection(application, self._connections, largest_body=self._largest_body),
            host,
            port,
            ssl=context,
            reuse_address=True,
            reuse_port=reuse_port or None,
            ssl_handshake_timeout=_HANDSHAKE_S if context is not None else None,
        )
        self._server = server
        self._watch = asyncio.ensure_future(self._connections.run())
        # A free port on all interfaces differs between families: IPv4's.
        ports = {":" not in name[0]: int(name[1]) for name in (socket.getsockname() for socket in server.sockets)}
        self.port = ports.get(True) or ports[False]

    async def close(self, grace_s: float) -> None:
        """Listen no more, give answers in work some time, then cut them."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        await self._connections.close(grace_s)

    async def _answered(self, request: Request) -> Response:
        try:
            return await self._answer(request)
        except Exception:
            log.exception("serving.bug", path=request.path)
            return text(500, "internal server error\n")
