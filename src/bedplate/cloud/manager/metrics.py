"""Metrics of the process, under the names that dashboards for Kubernetes' own managers know.

In: observations of the process and of its health checks. Out: samples in the registry that the program passes in.
Health has a registry of its own, as it is served apart (`/metrics/slis`).
"""

from __future__ import annotations

import platform
from collections.abc import Awaitable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from bedplate import __version__
from bedplate.serving.health import Check

__all__ = ["HealthMetrics", "ProcessMetrics", "WebhookMetrics"]


class ProcessMetrics:
    """What runs, and which build."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._running = Gauge(
            "running_managed_controllers",
            "Indicates where instances of a controller are currently running",
            ("name", "manager"),
            registry=registry,
        )
        build = Gauge(
            "kubernetes_build_info",
            "A metric with a constant '1' value labeled by major, minor, git version, and the platform of the build.",
            ("major", "minor", "git_version", "go_version", "platform"),
            registry=registry,
        )
        major, minor = [*__version__.split("."), "0", "0"][:2]
        implementation = f"{platform.python_implementation().lower()}{platform.python_version()}"
        build.labels(major, minor, f"v{__version__}", implementation, f"linux/{platform.machine()}").set(1)

    def running(self, controller: str, *, is_running: bool) -> None:
        """A controller has started or stopped."""
        self._running.labels(controller, "cloud-controller-manager").set(1 if is_running else 0)


class WebhookMetrics:
    """Requests of webhooks. None exists, so they never have a sample; dashboards that name them find them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("name", "code")
        Counter("cloud_provider_webhook_request", "Requests served by webhooks.", labels, registry=registry)
        Histogram(
            "cloud_provider_webhook_request_duration_seconds",
            "Time webhooks took to answer.",
            labels,
            registry=registry,
        )


class HealthMetrics:
    """`kubernetes_healthcheck*`: how each check went whenever somebody asked."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._state = Gauge(
            "kubernetes_healthcheck",
            "This metric records the result of a single healthcheck.",
            ("name", "type"),
            registry=registry,
        )
        self._results = Counter(
            "kubernetes_healthchecks",
            "This metric records the results of all healthcheck.",
            ("name", "type", "status"),
            registry=registry,
        )

    def observed(self, kind: str, name: str, check: Check) -> Check:
        """The same check, with its results counted."""

        async def run() -> None:
            try:
                result = check()
                if isinstance(result, Awaitable):
                    await result
            except BaseException:
                self._note(kind, name, is_good=False)
                raise
            self._note(kind, name, is_good=True)

        return run

    def _note(self, kind: str, name: str, *, is_good: bool) -> None:
        self._state.labels(name, kind).set(1 if is_good else 0)
        self._results.labels(name, kind, "success" if is_good else "error").inc()
