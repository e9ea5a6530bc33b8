"""Ports of the address management's programs: probes, metrics, the webhook.

In: an address, the paths to serve on it, for HTTPS a TLS context. Out: answers. A port that is taken is no reason to
stop giving addresses: it is told, and tried again until it is free. An open port says where it is in the log.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from bedplate.core import clock, logging
from bedplate.core.metrics import CONTENT_TYPE
from bedplate.serving.health import Checks, Report

__all__ = ["Endpoint", "Handler", "metrics", "probes"]

log = logging.get_logger("ipam.endpoints")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
RETRY_S = 10.0
_STOP_S = 1.0


@dataclass(slots=True)
class Endpoint:
    """One address with what it serves. `address` is host (None: every interface) and port; port 0 takes a free one, and
    `port` then says which."""

    name: str
    flag: str
    """What a user changes when the port is taken."""
    address: tuple[str | None, int]
    app: web.Application
    time: clock.Clock = field(default_factory=clock.SystemClock)
    tls: ssl.SSLContext | None = None
    port: int = 0
    is_open: bool = False

    async def run(self) -> None:
        """Serve until cancelled."""
        runner = web.AppRunner(self.app, access_log=None, handle_signals=False, shutdown_timeout=_STOP_S)
        await runner.setup()
        try:
            await self._listen(runner)
            await asyncio.Event().wait()
        finally:
            self.is_open = False
            await runner.cleanup()

    async def _listen(self, runner: web.AppRunner) -> None:
        host, port = self.address
        is_told = False
        while not self.is_open:
            site = web.TCPSite(runner, host, port, ssl_context=self.tls, reuse_address=True)
            try:
                await site.start()
                self.is_open = True
            except OSError as err:
                if not is_told:
                    hint = f"choose another one with {self.flag}; until then this one is tried again"
                    shown, error = f"{host or ''}:{port}", err.strerror or str(err)
                    log.error(f"{self.name}.not_served", address=shown, error=error, hint=hint)
                    is_told = True
                await self.time.sleep(RETRY_S)
        self.port = _taken(runner)
        log.info(f"{self.name}.served", address=f"{host or ''}:{self.port}")


def _taken(runner: web.AppRunner) -> int:
    """The port; when a free one was asked for on all interfaces, each family has its own: IPv4's."""
    ports = {":" not in address[0]: int(address[1]) for address in runner.addresses}
    return ports.get(True) or ports[False]


def probes(live: Checks, ready: Checks) -> web.Application:
    """The paths of probes."""
    app = web.Application()
    for name, checks in (("healthz", live), ("readyz", ready)):
        app.router.add_get(f"/{name}", _reporter(checks))
        app.router.add_get(f"/{name}/{{check:.+}}", _single(checks))
    return app


def metrics(registry: CollectorRegistry) -> web.Application:
    """The path of scrapers."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.router.add_get("/metrics", answer)
    return app


def _reporter(checks: Checks) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        exclude = request.query.getall("exclude", [])
        return _response(await checks.report(exclude=exclude, verbose="verbose" in request.query))

    return answer


def _single(checks: Checks) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        return _response(await checks.report_one(request.match_info["check"]))

    return answer


def _response(report: Report) -> web.Response:
    return web.Response(status=report.status, text=report.text, headers={"X-Content-Type-Options": "nosniff"})
