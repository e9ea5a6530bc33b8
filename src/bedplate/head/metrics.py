"""What Prometheus sees of a head besides its requests: whether it is active, its tree, its nodes, its certificates.

In: the parts of a running head. Out: gauges that are asked when somebody scrapes; nothing is counted in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge

from bedplate.api.states import STATES
from bedplate.core.metrics import shared
from bedplate.head.election import Election
from bedplate.head.folder import pki
from bedplate.head.health import Health
from bedplate.head.service import Head, Standing

__all__ = ["HeadMetrics", "watch"]

CERTIFICATES = ("ca", "server", "admin")


class HeadMetrics:
    """One set for each registry; requests and commits are counted by the API."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.active = Gauge("bedplate_head_active", "1 while this head node accepts writes, else 0.", registry=registry)
        self.revision = Gauge("bedplate_head_revision", "The last revision this head knows.", registry=registry)
        self.term = Gauge("bedplate_head_term", "How often the active head node has changed.", registry=registry)
        self.objects = Gauge("bedplate_head_objects", "Objects of the tree.", ("mode",), registry=registry)
        self.nodes = Gauge(
            "bedplate_head_nodes",
            "Compute nodes by state: UP, DOWN (no recent report), UNKNOWN.",
            ("state",),
            registry=registry,
        )
        self.certificate_ends = Gauge(
            "bedplate_head_certificate_expiration_timestamp_seconds",
            "When a certificate of the data folder expires; 0 when it cannot be read.",
            ("certificate",),
            registry=registry,
        )


def watch(registry: CollectorRegistry, head: Head, health: Health, standing: Standing, folder: Path) -> None:
    """Let the gauges ask a running head."""
    metrics = shared(registry, HeadMetrics)
    metrics.active.set_function(lambda: float(standing.is_active))
    metrics.revision.set_function(lambda: float(head.revision))
    metrics.term.set_function(lambda: float(standing.term if isinstance(standing, Election) else 1))
    for mode in head.tree.schema.modes:
        metrics.objects.labels(mode).set_function(_asked(lambda name: len(head.tree.mode(name)), mode))
    for state in STATES:
        metrics.nodes.labels(state).set_function(_asked(lambda name: _states(head, health)[name], state))
    for certificate in CERTIFICATES:
        metrics.certificate_ends.labels(certificate).set_function(
            _asked(lambda name: _end(folder / f"{name}.crt"), certificate)
        )


def _asked(ask: Callable[[str], float], name: str) -> Callable[[], float]:
    return partial(ask, name)


def _states(head: Head, health: Health) -> Counter[str]:
    nodes = (key for key, obj in head.tree.mode("device").items() if obj.type == "PhysicalNode")
    return Counter(health.state(node) for node in nodes)


def _end(file: Path) -> float:
    end = pki.good_until(file)
    return end.timestamp() if end is not None else 0.0
