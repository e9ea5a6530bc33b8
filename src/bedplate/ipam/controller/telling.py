"""What people are told about a pool: Events and log lines, each once for as long as the condition holds.

In: what is the case after each pass. Out: Events with the original's components and reasons. A pass that finds
what the last one found says nothing; what ended may be told again when it comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from bedplate.api import meta
from bedplate.core import logging

__all__ = ["INVALID_SPEC", "NOT_WRITTEN", "OVERLAP", "Teller"]

log = logging.get_logger("ipam.pool")
INVALID_SPEC, OVERLAP, NOT_WRITTEN = "InvalidSpec", "OverlappingPools", "StatusNotWritten"
AT_ONCE = 8
"""So many nodes get an Event of their own in one pass; what is more is told in one."""


class Recorder(Protocol):
    """The part of `EventRecorder` that is needed."""

    def event(self, regarding: meta.ObjectReference, type: str, reason: str, message: str) -> None: ...


class Teller:
    """Tells about the pools of one kind."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._told: dict[str, dict[str, frozenset[str]]] = {}
        """Per pool and reason: what is being the case."""

    def forget(self, key: str) -> None:
        """The pool is gone."""
        self._told.pop(key, None)

    def state(self, pool: meta.ObjectReference, key: str, reason: str, texts: Iterable[str]) -> None:
        """These texts are the case for this reason, and no others; what is new among them is told."""
        for text in self._new(key, reason, texts):
            self._tell(pool, key, reason, text)

    def nodes(self, pool: meta.ObjectReference, key: str, reason: str, why: Mapping[str, str]) -> None:
        """These nodes have no block, each for its reason in words; no others."""
        fresh = self._new(key, reason, why)
        for name in fresh[:AT_ONCE]:
            self._tell(pool, key, reason, why[name], node=name)
        if len(fresh) > AT_ONCE:
            more = len(fresh) - AT_ONCE
            self._tell(pool, key, reason, f"{more} more nodes have no block, starting with {fresh[AT_ONCE]}")

    def _new(self, key: str, reason: str, texts: Iterable[str]) -> list[str]:
        told = self._told.setdefault(key, {})
        before, now = told.get(reason, frozenset()), frozenset(texts)
        if now:
            told[reason] = now
        else:
            told.pop(reason, None)
        return sorted(now - before)

    def _tell(self, pool: meta.ObjectReference, key: str, reason: str, text: str, **values: object) -> None:
        log.warning("pool.warning", kind=pool.kind, pool=key, reason=reason, message=text, **values)
        self._recorder.event(pool, "Warning", reason, text)
