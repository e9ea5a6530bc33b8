"""Ports of a program: probes, metrics, webhooks.

In: an address, the paths to serve on it, for HTTPS a TLS context. Out: answers. A port that is in use does not stop the
program: it is logged, and tried again until it is free. The log says where an open port is.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from bedplate.core import clock, logging
from bedplate.core.metrics import CONTENT_TYPE
from bedplate.program.options import listener
from bedplate.serving.health import Checks, Report

__all__ = ["Endpoint", "Handler", "Serving", "add_health", "metrics_handler", "serve_metrics", "serve_probes"]

log = logging.get_logger("program.endpoints")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
RETRY_S = 10.0
_STOP_S = 1.0


class Serving(Protocol):
    """What runs an endpoint until the program stops: `runtime.Manager`."""

    def serve(self, task: Callable[[], Awaitable[None]]) -> None: ...


@dataclass(slots=True)
class Endpoint:
    """One address with what it serves. `address` is host (None: every interface) and port; port 0 takes a free one, and
    `port` then says which."""

    name: str
    flag: str
    """The flag that chooses another port."""
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
        is_logged = False
        while not self.is_open:
            site = web.TCPSite(runner, host, port, ssl_context=self.tls, reuse_address=True)
            try:
                await site.start()
                self.is_open = True
            except OSError as err:
                if not is_logged:
                    hint = f"choose another one with {self.flag}; until then this one is tried again"
                    shown, error = f"{host or ''}:{port}", err.strerror or str(err)
                    log.error(f"{self.name}.not_served", address=shown, error=error, hint=hint)
                    is_logged = True
                await self.time.sleep(RETRY_S)
        self.port = _port_of(runner)
        log.info(f"{self.name}.served", address=f"{host or ''}:{self.port}")


def _port_of(runner: web.AppRunner) -> int:
    """The port that was opened; a free one on all interfaces differs between families: IPv4's."""
    ports = {":" not in address[0]: int(address[1]) for address in runner.addresses}
    return ports.get(True) or ports[False]


def serve_probes(manager: Serving, live: Checks, ready: Checks, address: str, time: clock.Clock) -> Endpoint | None:
    """Serve `/healthz` and `/readyz` at the address of `--health-probe-bind-address`; None when that is 0."""
    app = web.Application()
    for checks in (live, ready):
        add_health(app, checks.name, checks)
    return _serve(manager, "probes", "--health-probe-bind-address", address, app, time)


def serve_metrics(manager: Serving, registry: CollectorRegistry, address: str, time: clock.Clock) -> Endpoint | None:
    """Serve `/metrics` at the address of `--metrics-bind-address`; None when that is 0."""
    app = web.Application()
    app.router.add_get("/metrics", metrics_handler(registry))
    return _serve(manager, "metrics", "--metrics-bind-address", address, app, time)


def _serve(
    manager: Serving, name: str, flag: str, address: str, app: web.Application, time: clock.Clock
) -> Endpoint | None:
    listening = listener(address)
    if listening is None:
        return None
    endpoint = Endpoint(name, flag, listening, app, time)
    manager.serve(endpoint.run)
    return endpoint


def add_health(app: web.Application, name: str, checks: Checks) -> None:
    """The path of all checks together, and one below it for each."""

    async def report(request: web.Request) -> web.Response:
        exclude = request.query.getall("exclude", [])
        return _response(await checks.report(exclude=exclude, verbose="verbose" in request.query, shown_as=name))

    async def report_one(request: web.Request) -> web.Response:
        return _response(await checks.report_one(request.match_info["check"]))

    app.router.add_get(f"/{name}", report)
    app.router.add_get(f"/{name}/{{check:.+}}", report_one)


def metrics_handler(registry: CollectorRegistry) -> Handler:
    """What answers scrapers."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE})

    return answer


def _response(report: Report) -> web.Response:
    return web.Response(status=report.status, text=report.text, headers={"X-Content-Type-Options": "nosniff"})
