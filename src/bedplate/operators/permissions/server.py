"""The webhook's HTTPS port: reviews, readiness, metrics.

In: reviews from the API server, what is known of the cluster, a certificate. Out: answers. The port opens once there is
a certificate; `/readyz` is 200 once the rules of all namespaces are known. Every replica answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram

from bedplate.api.permissions import PERSISTENT_VOLUMES, PersistentVolume
from bedplate.api.resources import PODS
from bedplate.core import clock, errors, logging
from bedplate.core.metrics import shared
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client
from bedplate.operators.permissions import manifests, review
from bedplate.operators.permissions.knowledge import Cluster
from bedplate.operators.permissions.review import Answer, Knowledge
from bedplate.program import endpoints
from bedplate.program.endpoints import Endpoint
from bedplate.program.webhookcertificates import ServingPair
from bedplate.serving.health import Checks
from bedplate.serving.http import Request, Response
from bedplate.serving.routes import Handler, Routes

__all__ = ["WebhookMetrics", "WebhookServer"]

log = logging.get_logger("permissions.webhook")
LARGEST_REVIEW = 8 * 1024 * 1024
_CERTIFICATE_S = 0.2


class WebhookMetrics:
    """Reviews of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.seconds = Histogram(
            "bedplate_permissions_review_seconds", "How long reviews took.", ("review",), registry=registry
        )
        self.total = Counter(
            "bedplate_permissions_reviews", "Reviews by their outcome.", ("review", "outcome"), registry=registry
        )


class _ClaimRequest(msgspec.Struct, frozen=True):
    request: _Claimed


class _Claimed(msgspec.Struct, frozen=True):
    object: _Claim


class _Claim(msgspec.Struct, frozen=True):
    spec: _ClaimSpec


class _ClaimSpec(msgspec.Struct, frozen=True, rename="camel"):
    volume_name: str = ""


@dataclass(slots=True)
class WebhookServer:
    """Serves until cancelled. Port 0 takes a free one; `port` then says which."""

    pair: ServingPair
    cluster: Cluster
    client: Client
    has_synced: Callable[[], bool]
    registry: CollectorRegistry
    wanted_port: int
    time: clock.Clock = field(default_factory=clock.SystemClock)
    ready: Checks = field(init=False)
    _endpoint: Endpoint = field(init=False)

    def __post_init__(self) -> None:
        cluster = self.cluster
        known = Knowledge(cluster.rules, cluster.claims_of, cluster.claim, cluster.was_other)
        served, self.ready = Routes(), Checks("readyz")
        self.ready.add("rules", self._check_rules)
        endpoints.add_health(served, "readyz", self.ready)
        endpoints.add_health(served, "healthz", Checks("healthz"))
        served.add("GET", "/metrics", endpoints.metrics_handler(self.registry))

        async def mutate(body: bytes) -> Answer:
            return review.judge_pod(body, known, may_change=True)

        async def validate(body: bytes) -> Answer:
            return review.judge_pod(body, known, may_change=False)

        async def claims(body: bytes) -> Answer:
            await self._look_up(body)
            namespace = review.namespace_of_a_path(body, known)
            present = (await self.client.list(PODS.raw(), namespace)).items if namespace else ()
            return review.judge_claim(body, known, present)

        for path, judge in (
            (manifests.MUTATE_PODS, mutate),
            (manifests.VALIDATE_PODS, validate),
            (manifests.VALIDATE_CLAIMS, claims),
        ):
            served.add("POST", path, self._handler(path.removeprefix("/"), judge))
        address = (None, self.wanted_port)
        self._endpoint = Endpoint(
            "webhook", "--webhook-port", address, served, self.time, self.pair.context, LARGEST_REVIEW
        )

    @property
    def port(self) -> int:
        return self._endpoint.port

    async def run(self) -> None:
        """Open the port once there is a certificate, and answer."""
        while not self.pair.is_ready:
            await self.time.sleep(_CERTIFICATE_S)
        await self._endpoint.run()

    def _check_rules(self) -> None:
        if not self.has_synced():
            raise errors.Unavailable("the rules of namespaces have not all been listed yet")

    async def _look_up(self, body: bytes) -> None:
        """A volume that the cache does not show yet may have been created a moment ago."""
        try:
            name = msgspec.json.decode(body, type=_ClaimRequest).request.object.spec.volume_name
        except msgspec.DecodeError:
            return
        if not name or name in self.cluster.persistent:
            return
        try:
            volume: PersistentVolume = await self.client.get(PERSISTENT_VOLUMES, name)
        except kube_errors.NotFound:
            return
        self.cluster.remember(volume)

    def _handler(self, name: str, judge: Callable[[bytes], Awaitable[Answer]]) -> Handler:
        metrics = shared(self.registry, WebhookMetrics)
        seconds = metrics.seconds.labels(name)
        counts = {True: metrics.total.labels(name, "allowed"), False: metrics.total.labels(name, "refused")}

        async def answer(request: Request) -> Response:
            if not self.has_synced():
                # Without the rules every answer would be a guess; the API server fails closed.
                return Response(503, b"the rules have not been loaded yet\n", "text/plain; charset=utf-8")
            started = self.time.monotonic()
            verdict = await judge(request.body)
            seconds.observe(self.time.monotonic() - started)
            counts[verdict.is_allowed].inc()
            return Response(200, verdict.body)

        return answer
