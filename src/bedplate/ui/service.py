"""What the REST API and the page need of the daemon that serves them: one value.

In: nothing. Out: `Service`. It holds no state of its own; the head, its notices and its health are opened, followed and
closed by their owner, the daemon.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from bedplate.core.clock import Clock, SystemClock
from bedplate.head import Access, Head, Health, Notices
from bedplate.head.explain import Renderer
from bedplate.serving.health import Checks

__all__ = ["Limits", "Service"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may ask of the daemon."""

    body_bytes: int = 1 << 20
    import_bytes: int = 64 << 20
    heartbeat_s: float = 15.0
    stall_s: float = 30.0
    """How long a reader of events may take none before it is dropped."""
    backlog: int = 4096
    """How many events a reader may be behind before it is dropped; fewer when they are large (`backlog_bytes`)."""
    backlog_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class Service:
    """The head with what is kept beside its tree, and how it is served."""

    head: Head
    access: Access
    notices: Notices
    health: Health
    name: str = "head"
    renderers: Sequence[Renderer] = ()
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    clock: Clock = field(default_factory=SystemClock)
    live: Checks = field(default_factory=lambda: Checks("livez"))
    ready: Checks = field(default_factory=lambda: Checks("readyz"))
    limits: Limits = Limits()
