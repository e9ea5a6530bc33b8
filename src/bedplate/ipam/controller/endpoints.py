"""Plain HTTP for probes and scrapers: /healthz, /readyz and /metrics, each where its flag says.

In: checks, a prometheus registry, addresses. Out: answers. A port that is taken is no reason to stop giving
addresses: it is told, and tried again until it is free. An open port says where it is in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from bedplate.core import clock, logging
from bedplate.serving.health import Checks, Report
from bedplate.serving.server import METRICS_TYPE

__all__ = ["Endpoint", "metrics", "probes"]

log = logging.get_logger("ipam.endpoints")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
RETRY_S = 10.0
_STOP_S = 1.0


@dataclass(slots=True)
class Endpoint:
    """One address with its paths. `address` is host (None: every interface) and port; port 0 takes a free one."""

    name: str
    flag: str
    address: tuple[str | None, int]
    routes: dict[str, Handler]
    time: clock.Clock = field(default_factory=clock.SystemClock)
    port: int = 0

    async def run(self) -> None:
        """Serve until cancelled."""
        app = web.Application()
        for path, handler in self.routes.items():
            app.router.add_get(path, handler)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=_STOP_S)
        await runner.setup()
        try:
            await self._listen(runner)
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    async def _listen(self, runner: web.AppRunner) -> None:
        host, port = self.address
        shown = f"{host or ''}:{port}"
        is_told = False
        while True:
            site = web.TCPSite(runner, host, port, reuse_address=True)
            try:
                await site.start()
                break
            except OSError as err:
                if not is_told:
                    log.error(
                        f"{self.name}.not_served",
                        address=shown,
                        error=err.strerror or str(err),
                        hint=f"give another address with {self.flag}, or 0; until then this one is tried again",
                    )
                    is_told = True
                await self.time.sleep(RETRY_S)
        self.port = runner.addresses[0][1]
        log.info(f"{self.name}.served", address=f"{host or ''}:{self.port}")


def probes(live: Checks, ready: Checks) -> dict[str, Handler]:
    """The paths of probes."""
    return {
        "/healthz": _reporter(live),
        "/healthz/{check:.+}": _single(live),
        "/readyz": _reporter(ready),
        "/readyz/{check:.+}": _single(ready),
    }


def metrics(registry: CollectorRegistry, refresh: Callable[[], None] | None = None) -> dict[str, Handler]:
    """The path of scrapers; `refresh` brings up to date what is counted only when somebody asks."""

    async def answer(request: web.Request) -> web.Response:
        if refresh is not None:
            refresh()
        return web.Response(body=generate_latest(registry), headers={"Content-Type": METRICS_TYPE})

    return {"/metrics": answer}


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
