"""The small HTTPS server beside every program: /healthz, /livez, /readyz, /metrics and what a program adds.

In: checks, a prometheus registry, a TLS context, and who may ask what (`Gate`). Out: answers. Requests are
authenticated and authorised by the gate, except on paths that are always allowed (the health paths by default, as in
Kubernetes).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from bedplate.core import errors, logging
from bedplate.serving.certificates import Reloader
from bedplate.serving.health import Checks, Report

__all__ = ["ALWAYS_ALLOWED", "Access", "Gate", "HealthServer", "OpenGate"]

log = logging.get_logger("serving")
ALWAYS_ALLOWED = ("/healthz", "/readyz", "/livez")
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_RELOAD_PERIOD_S = 30.0


class Access(NamedTuple):
    """The gate's answer: 200 to let pass, 401 or 403 with a sentence otherwise."""

    status: int
    reason: str = ""


class Gate(Protocol):
    """Decides who may ask what."""

    async def admit(self, method: str, path: str, token: str, certificate: dict[str, object] | None) -> Access: ...


class OpenGate:
    """Lets everybody in; for loopback use only."""

    async def admit(self, method: str, path: str, token: str, certificate: dict[str, object] | None) -> Access:
        return Access(200)


@dataclass(slots=True)
class HealthServer:
    """Serves until cancelled. Port 0 takes a free one; `port` then says which."""

    registry: CollectorRegistry
    host: str = "127.0.0.1"
    port: int = 0
    tls: Reloader | None = None
    gate: Gate = field(default_factory=OpenGate)
    always_allowed: Sequence[str] = ALWAYS_ALLOWED
    live: Checks = field(default_factory=lambda: Checks("livez"))
    ready: Checks = field(default_factory=lambda: Checks("readyz"))
    handlers: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = field(default_factory=dict)
    started: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Serve until cancelled; `started` is set once the port is open."""
        app = web.Application(middlewares=[self._check_access])
        for name, checks in (("healthz", self.live), ("livez", self.live), ("readyz", self.ready)):
            app.router.add_get(f"/{name}", _reporter(name, checks))
            app.router.add_get(f"/{name}/{{check:.+}}", _single(checks))
        app.router.add_get("/metrics", self._metrics)
        for path, handler in self.handlers.items():
            app.router.add_get(path, handler)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=2)
        await runner.setup()
        context: ssl.SSLContext | None = self.tls.context if self.tls is not None else None
        site = web.TCPSite(runner, self.host, self.port, ssl_context=context, reuse_address=True)
        try:
            try:
                await site.start()
            except OSError as err:
                raise errors.Invalid(
                    f"cannot listen on {self.host}:{self.port}: {err.strerror}", hint="choose another port"
                ) from err
            self.port = runner.addresses[0][1]
            self.started.set()
            log.info("serving.started", address=f"{self.host}:{self.port}", tls=self.tls is not None)
            while True:
                await asyncio.sleep(_RELOAD_PERIOD_S)
                if self.tls is not None:
                    self.tls.check()
        finally:
            await runner.cleanup()

    @web.middleware
    async def _check_access(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if not self._is_always_allowed(request.path):
            scheme, _, token = request.headers.get("Authorization", "").strip().partition(" ")
            certificate = request.transport.get_extra_info("peercert") if request.transport is not None else None
            bearer = token.strip() if scheme.lower() == "bearer" else ""
            access = await self.gate.admit(request.method.lower(), request.path, bearer, certificate)
            if access.status != 200:
                return web.Response(status=access.status, text=access.reason + "\n")
        return await handler(request)

    def _is_always_allowed(self, path: str) -> bool:
        return any(path == one or (one.endswith("*") and path.startswith(one[:-1])) for one in self.always_allowed)

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self.registry), headers={"Content-Type": METRICS_TYPE})


def _reporter(name: str, checks: Checks) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        exclude = request.query.getall("exclude", [])
        return _response(await checks.report(exclude=exclude, verbose="verbose" in request.query, shown_as=name))

    return answer


def _single(checks: Checks) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        return _response(await checks.report_one(request.match_info["check"]))

    return answer


def _response(report: Report) -> web.Response:
    return web.Response(status=report.status, text=report.text, headers={"X-Content-Type-Options": "nosniff"})
