"""The webhook's HTTPS port.

In: reviews from the API server, the pools that are known, a certificate. Out: answers. It opens once there is a
certificate; a port that is taken is told and tried again. Metrics have the names that controller-runtime gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from bedplate.core import clock, errors, logging
from bedplate.core.metrics import shared
from bedplate.ipam.pools import CIDRPool, IPPool
from bedplate.ipam.webhook import review
from bedplate.program.endpoints import Endpoint
from bedplate.program.webhookcertificates import ServingPair
from bedplate.serving.http import Request, Response
from bedplate.serving.routes import Handler, Routes

__all__ = ["WebhookMetrics", "WebhookServer"]

log = logging.get_logger("ipam.webhook")
LARGEST_REVIEW = 8 * 1024 * 1024
"""A pool with its status may be as large as etcd lets it be, and an update sends it twice."""
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
    wanted_port: int
    warn_ippool: Callable[[IPPool], Sequence[str]]
    warn_cidrpool: Callable[[CIDRPool], Sequence[str]]
    time: clock.Clock = field(default_factory=clock.SystemClock)
    _endpoint: Endpoint = field(init=False)

    def __post_init__(self) -> None:
        served = Routes()
        served.add("POST", review.IPPOOL.path, self._handler(review.IPPOOL, self.warn_ippool))
        served.add("POST", review.CIDRPOOL.path, self._handler(review.CIDRPOOL, self.warn_cidrpool))
        address = (None, self.wanted_port)
        self._endpoint = Endpoint(
            "webhook", "--webhook-port", address, served, self.time, self.pair.context, LARGEST_REVIEW
        )

    @property
    def is_open(self) -> bool:
        return self._endpoint.is_open

    @property
    def port(self) -> int:
        return self._endpoint.port

    async def run(self) -> None:
        """Open the port once there is a certificate, and answer."""
        while not self.pair.is_ready:
            await self.time.sleep(_CERTIFICATE_S)
        await self._endpoint.run()

    def check(self) -> None:
        """For readiness: raise unless reviews are answered."""
        if not self.is_open:
            raise errors.Unavailable("the webhook's port is not open")

    def _handler(self, rules: review.Rules[Any], warn: Callable[[Any], Sequence[str]]) -> Handler:
        metrics = shared(self.registry, WebhookMetrics)

        async def answer(request: Request) -> Response:
            started = self.time.monotonic()
            metrics.active.labels(rules.path).inc()
            try:
                verdict = review.judge(rules, request.body, warn)
            finally:
                metrics.active.labels(rules.path).dec()
                metrics.seconds.labels(rules.path).observe(self.time.monotonic() - started)
            metrics.total.labels(rules.path, str(verdict.code)).inc()
            log.v(2).info("webhook.judged", kind=rules.model.__name__, code=verdict.code)
            return Response(200, verdict.body)

        return answer
