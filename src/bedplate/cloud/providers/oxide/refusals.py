"""Instances that lately refused a floating IP, remembered for a while so that another node is tried first."""

from __future__ import annotations

from bedplate.cloud.providers.oxide import providerid
from bedplate.core import clock

__all__ = ["Refusals"]

REMEMBERED_S = 120.0


class Refusals:
    """Which instances refused, and until when that counts."""

    def __init__(self, time: clock.Clock) -> None:
        self._time = time
        self._until: dict[str, float] = {}

    def add(self, instance: str) -> None:
        self._until[providerid.fold(instance)] = self._time.monotonic() + REMEMBERED_S

    def current(self) -> frozenset[str]:
        """Those that still count; others are forgotten."""
        now = self._time.monotonic()
        self._until = {instance: until for instance, until in self._until.items() if until > now}
        return frozenset(self._until)
