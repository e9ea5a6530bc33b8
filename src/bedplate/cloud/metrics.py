"""Metrics of the manager that are its own (`ccm_*`); the Kubernetes-compatible ones stand with their code.

In: observations. Out: samples in the registry that the program passes in; `core.metrics.shared` finds the one set that
a registry has. Label values come from small fixed sets: providers, operations of their APIs, status codes.
"""

from __future__ import annotations

from bedplate.core.figures import Counter, Gauge, Histogram, Registry

__all__ = ["CloudApiMetrics", "InstanceCacheMetrics"]

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class CloudApiMetrics:
    """What the shared HTTP client counts."""

    def __init__(self, registry: Registry) -> None:
        self._requests = Counter(
            "ccm_cloud_api_requests",
            "Requests to the cloud's API by operation and status code (<error>: no response).",
            ("provider", "operation", "code"),
            registry=registry,
        )
        self._durations = Histogram(
            "ccm_cloud_api_request_duration_seconds",
            "Time from sending a request to the cloud's API to the end of its response.",
            ("provider", "operation"),
            buckets=_SECONDS,
            registry=registry,
        )
        self._throttled = Counter(
            "ccm_cloud_api_throttled_seconds",
            "Time that calls have waited for our own limits or for a pause the cloud asked for.",
            ("provider",),
            registry=registry,
        )
        self._last_success = Gauge(
            "ccm_cloud_api_last_success_timestamp_seconds",
            "When the cloud's API last responded successfully.",
            ("provider",),
            registry=registry,
        )
        self._reloads = Counter(
            "ccm_credentials_reloads",
            "How often credentials were read or fetched again, by result (changed, unchanged, error).",
            ("provider", "result"),
            registry=registry,
        )

    def observe(self, provider: str, operation: str, code: str, seconds: float) -> None:
        """A request ended with `code`."""
        self._requests.labels(provider, operation, code).inc()
        self._durations.labels(provider, operation).observe(seconds)

    def waited(self, provider: str, seconds: float) -> None:
        """A call has waited before it was sent."""
        self._throttled.labels(provider).inc(seconds)

    def succeeded(self, provider: str, at: float) -> None:
        """A success, at that moment (seconds since 1970)."""
        self._last_success.labels(provider).set(at)

    def reloaded(self, provider: str, result: str) -> None:
        """Credentials were read again."""
        self._reloads.labels(provider, result).inc()


class InstanceCacheMetrics:
    """What the instance caches count."""

    def __init__(self, registry: Registry) -> None:
        self._hits = Counter(
            "ccm_instance_cache_hits",
            "Lookups served from the cache, without a request to the cloud.",
            ("provider",),
            registry=registry,
        )
        self._misses = Counter(
            "ccm_instance_cache_misses",
            "Lookups for which a request was sent to the cloud.",
            ("provider",),
            registry=registry,
        )

    def hit(self, provider: str) -> None:
        self._hits.labels(provider).inc()

    def missed(self, provider: str) -> None:
        self._misses.labels(provider).inc()
