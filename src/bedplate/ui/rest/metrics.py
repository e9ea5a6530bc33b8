"""What is counted of the API, and the log of its requests.

In: requests as they end. Out: Prometheus metrics with labels from small fixed sets (operations, not addresses), and a
log line with the author for each request that writes; reads are logged at `-v 6`.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from bedplate.core.logging import get_logger

__all__ = ["RequestMetrics", "log_request"]

_LOG = get_logger("head.rest")
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class RequestMetrics:
    """One set for each registry (`core.metrics.shared`)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "bedplate_head_requests_total",
            "Requests of the API that were answered.",
            ("operation", "method", "code"),
            registry=registry,
        )
        self.duration = Histogram(
            "bedplate_head_request_duration_seconds",
            "How long answers took; event streams and waiting requests are left out.",
            ("operation",),
            buckets=_BUCKETS,
            registry=registry,
        )
        self.inflight = Gauge("bedplate_head_requests_inflight", "Requests being answered now.", registry=registry)
        self.commits = Counter("bedplate_head_commits_total", "Revisions made through the API.", registry=registry)
        self.readers = Gauge("bedplate_head_event_readers", "Open event streams.", registry=registry)
        self.reports = Counter("bedplate_head_reports_total", "Reports of nodes.", registry=registry)


def log_request(operation: str, method: str, path: str, status: int, author: str, duration_s: float) -> None:
    """One line: what was asked, by whom, how it ended. The query and bodies are left out: they may hold secrets."""
    is_worth_it = status >= 500 or method not in ("GET", "HEAD", "OPTIONS")
    logger = _LOG if is_worth_it else _LOG.v(6)
    if operation == "report" and status < 400:
        logger = _LOG.v(4)
    logger.info(
        "head.request",
        operation=operation,
        method=method,
        path=path,
        status=status,
        author=author or "nobody",
        duration_ms=round(duration_s * 1000, 1),
    )
