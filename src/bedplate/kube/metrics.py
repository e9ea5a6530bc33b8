"""Request metrics under the names that client-go uses, so that existing dashboards and alerts work.

In: one observation per request. Out: samples in the registry that the program passes in. Several clients may
share one `RequestMetrics`; `core.metrics.shared` finds the one that a registry already has.
"""

from __future__ import annotations

from bedplate.core.figures import Counter, Histogram, Registry

__all__ = ["RequestMetrics"]

_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class RequestMetrics:
    """`rest_client_*` of one registry."""

    def __init__(self, registry: Registry) -> None:
        self._requests = Counter(
            "rest_client_requests",
            "Number of HTTP requests, partitioned by status code, method, and host.",
            ("code", "method", "host"),
            registry=registry,
        )
        self._durations = Histogram(
            "rest_client_request_duration_seconds",
            "Request latency in seconds. Broken down by verb, and host.",
            ("verb", "host"),
            buckets=_SECONDS,
            registry=registry,
        )
        self._waits = Histogram(
            "rest_client_rate_limiter_duration_seconds",
            "Client side rate limiter latency in seconds. Broken down by verb, and host.",
            ("verb", "host"),
            buckets=_SECONDS,
            registry=registry,
        )
        self._retries = Counter(
            "rest_client_request_retries",
            "Number of request retries, partitioned by status code, verb, and host.",
            ("code", "verb", "host"),
            registry=registry,
        )

    def observe(self, code: str, method: str, host: str, seconds: float) -> None:
        """A request ended with `code` (`<error>` when no answer came)."""
        self._requests.labels(code, method, host).inc()
        self._durations.labels(method, host).observe(seconds)

    def waited(self, method: str, host: str, seconds: float) -> None:
        """A request passed the rate limiter."""
        self._waits.labels(method, host).observe(seconds)

    def retried(self, code: str, method: str, host: str) -> None:
        """A request is sent once more."""
        self._retries.labels(code, method, host).inc()
