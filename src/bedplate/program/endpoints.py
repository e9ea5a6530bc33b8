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

from prometheus_client import CollectorRegistry, generate_latest

from bedplate.core import clock, logging
from bedplate.core.metrics import CONTENT_TYPE
from bedplate.program.options import listener
from bedplate.serving import routes
from bedplate.serving.health import Checks, Report
from bedplate.serving.http import MAX_BODY_BYTES, Request, Response
from bedplate.serving.routes import Handler, Listener, Routes

__all__ = ["Endpoint", "Serving", "add_health", "metrics_handler", "serve_metrics", "serve_probes"]

log = logging.get_logger("program.endpoints")
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
    routes: Routes
    time: clock.Clock = field(default_factory=clock.SystemClock)
    tls: ssl.SSLContext | None = None
    largest_body: int = MAX_BODY_BYTES
    port: int = 0
    is_open: bool = False

    async def run(self) -> None:
        """Serve until cancelled."""
        listener = Listener(self.routes.answer, largest_body=self.largest_body)
        try:
            await self._listen(listener)
            await asyncio.Event().wait()
        finally:
            self.is_open = False
            await listener.close(_STOP_S)

    async def _listen(self, listener: Listener) -> None:
        host, port = self.address
        is_logged = False
        while not self.is_open:
            try:
                await listener.open(host, port, self.tls)
                self.is_open = True
            except OSError as err:
                if not is_logged:
                    hint = f"choose another one with {self.flag}; until then this one is tried again"
                    shown, error = f"{host or ''}:{port}", err.strerror or str(err)
                    log.error(f"{self.name}.not_served", address=shown, error=error, hint=hint)
                    is_logged = True
                await self.time.sleep(RETRY_S)
        self.port = listener.port
        log.info(f"{self.name}.served", address=f"{host or ''}:{self.port}")


def serve_probes(manager: Serving, live: Checks, ready: Checks, address: str, time: clock.Clock) -> Endpoint | None:
    """Serve `/healthz` and `/readyz` at the address of `--health-probe-bind-address`; None when that is 0."""
    served = Routes()
    for checks in (live, ready):
        add_health(served, checks.name, checks)
    return _serve(manager, "probes", "--health-probe-bind-address", address, served, time)


def serve_metrics(manager: Serving, registry: CollectorRegistry, address: str, time: clock.Clock) -> Endpoint | None:
    """Serve `/metrics` at the address of `--metrics-bind-address`; None when that is 0."""
    served = Routes()
    served.add("GET", "/metrics", metrics_handler(registry))
    return _serve(manager, "metrics", "--metrics-bind-address", address, served, time)


def _serve(manager: Serving, name: str, flag: str, address: str, served: Routes, time: clock.Clock) -> Endpoint | None:
    listening = listener(address)
    if listening is None:
        return None
    endpoint = Endpoint(name, flag, listening, served, time)
    manager.serve(endpoint.run)
    return endpoint


def add_health(served: Routes, name: str, checks: Checks) -> None:
    """The path of all checks together, and one below it for each."""

    async def report(request: Request) -> Response:
        query = routes.values(request)
        return _response(
            await checks.report(exclude=query.get("exclude", []), verbose="verbose" in query, shown_as=name)
        )

    async def report_one(request: Request, check: str) -> Response:
        return _response(await checks.report_one(check))

    served.add("GET", f"/{name}", report)
    served.get_below(f"/{name}/", report_one)


def metrics_handler(registry: CollectorRegistry) -> Handler:
    """What answers scrapers."""

    async def answer(request: Request) -> Response:
        return Response(200, generate_latest(registry), CONTENT_TYPE)

    return answer


def _response(report: Report) -> Response:
    return routes.text(report.status, report.text, ("X-Content-Type-Options", "nosniff"))
