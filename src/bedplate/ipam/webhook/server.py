"""The webhook's HTTPS port.

In: reviews from the API server, the pools that are known, a certificate. Out: answers. It opens once there is a
certificate; a port that is taken is told and tried again. Metrics have the names that controller-runtime gives them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from bedplate.core import clock, errors, logging
from bedplate.core.metrics import shared
from bedplate.ipam.pools import CIDRPool, IPPool
from bedplate.ipam.webhook import review
from bedplate.ipam.webhook.certificates import ServingPair

__all__ = ["WebhookMetrics", "WebhookServer"]

log = logging.get_logger("ipam.webhook")
LARGEST_REVIEW = 8 * 1024 * 1024
"""A pool with its status may be as large as etcd lets it be, and an update sends it twice."""
_STOP_S = 1.0
_RETRY_S = 5.0
_CERTIFICATE_S = 0.2


class WebhookMetrics:
    """`controller_runtime_webhook_*` of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.seconds = Histogram(
            "controller_runtime_webhook_latency_seconds",
            "Histogram of the latency of processing admission requests",
            ("webhook",),
            registry=registry,
        )
        self.total = Counter(
            "controller_runtime_webhook_requests",
            "Total number of admission requests by HTTP status code.",
            ("webhook", "code"),
            registry=registry,
        )
        self.active = Gauge(
            "controller_runtime_webhook_requests_in_flight",
            "Current number of admission requests being served.",
            ("webhook",),
            registry=registry,
        )


@dataclass(slots=True)
class WebhookServer:
    """Serves until cancelled. Port 0 takes a free one; `port` then says which."""

    pair: ServingPair
    registry: CollectorRegistry
    port: int
    warn_ippool: Callable[[IPPool], Sequence[str]]
    warn_cidrpool: Callable[[CIDRPool], Sequence[str]]
    host: str | None = None
    time: clock.Clock = field(default_factory=clock.SystemClock)
    is_open: bool = False

    async def run(self) -> None:
        """Open the port once there is a certificate, and answer."""
        while not self.pair.is_ready:
            await self.time.sleep(_CERTIFICATE_S)
        app = web.Application(client_max_size=LARGEST_REVIEW)
        app.router.add_post(review.IPPOOL.path, self._handler(review.IPPOOL, self.warn_ippool))
        app.router.add_post(review.CIDRPOOL.path, self._handler(review.CIDRPOOL, self.warn_cidrpool))
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=_STOP_S)
        await runner.setup()
        try:
            await self._listen(runner)
            await asyncio.Event().wait()
        finally:
            self.is_open = False
            await runner.cleanup()

    def check(self) -> None:
        """For readiness: raise unless reviews are answered."""
        if not self.is_open:
            raise errors.Unavailable("the webhook's port is not open")

    async def _listen(self, runner: web.AppRunner) -> None:
        is_told = False
        while not self.is_open:
            site = web.TCPSite(runner, self.host, self.port, ssl_context=self.pair.context, reuse_address=True)
            try:
                await site.start()
                self.is_open = True
            except OSError as err:
                if not is_told:
                    hint = "give another port with --webhook-port; until then this one is tried again"
                    log.error("webhook.not_served", port=self.port, error=err.strerror or str(err), hint=hint)
                    is_told = True
                await self.time.sleep(_RETRY_S)
        self.port = runner.addresses[0][1]
        log.info("webhook.served", port=self.port)

    def _handler(self, rules: review.Rules[Any], warn: Callable[[Any], Sequence[str]]) -> Any:
        metrics = shared(self.registry, WebhookMetrics)

        async def answer(request: web.Request) -> web.Response:
            started = self.time.monotonic()
            metrics.active.labels(rules.path).inc()
            try:
                found = review.judge(rules, await request.read(), warn)
            finally:
                metrics.active.labels(rules.path).dec()
                metrics.seconds.labels(rules.path).observe(self.time.monotonic() - started)
            metrics.total.labels(rules.path, str(found.code)).inc()
            log.v(2).info("webhook.judged", kind=rules.model.__name__, code=found.code)
            return web.Response(body=found.body, content_type="application/json")

        return answer
