"""Events expire: those older than an hour are deleted, as in Kubernetes.

In: Event objects. Out: deletions, a few at a time. `expired` is pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from bedplate.apiserver import hooks, services
from bedplate.apiserver.access import subjects
from bedplate.apiserver.controllers.loop import absent_is_fine, insist
from bedplate.core import clock as clocks

__all__ = ["expired", "run"]

LIFETIME = timedelta(hours=1)
_PERIOD_S = 60.0


async def run(parts: services.Services) -> None:
    """Run until cancelled."""
    client = parts.client.acting_as(subjects.LOOPBACK, "event-expiry")

    async def sweep() -> None:
        for namespace, name in expired(client.list("", "events"), parts.clock.now()):
            await absent_is_fine(client.delete("", "events", namespace, name))

    await insist("event-expiry", _PERIOD_S, parts.clock, sweep)


def expired(events: Iterable[hooks.Object], now: datetime) -> list[tuple[str, str]]:
    """Namespace and name of the events last seen more than `LIFETIME` ago."""
    event_keys = []
    for event in events:
        last = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
        series = event.get("series") or {}
        last = max(str(last or ""), str(series.get("lastObservedTime") or ""))
        try:
            is_old = bool(last) and clocks.parse_rfc3339(last) < now - LIFETIME
        except ValueError:
            is_old = True  # not a valid time: the event will never be renewed
        if is_old:
            event_keys.append((str(event["metadata"]["namespace"]), str(event["metadata"]["name"])))
    return event_keys
