"""Whether the credential of a request that lasts still counts: asked at every event and every heartbeat, of everybody.

In: the whole question of who is asking, a number that changes with whatever may answer it otherwise (`Access.mark`),
the time. Out: whether the request may go on. The whole question costs a digest and a few searches; it is asked again
only where its answer may be another one. A revoked token, a disabled user or an expired credential is thus noticed at
the same event as if it were always asked, while thousands of ordinary events cost each reader a comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bedplate.core.clock import Clock
from bedplate.head.access import Access
from bedplate.head.policy import NODE, Identity

__all__ = ["Answer", "Lasting", "may_differ"]

_AGAIN_S = 60.0
"""The whole question is asked at least so often, for it notes the last use of the credential."""


class Answer(NamedTuple):
    """An answer to the whole question: under which mark it was given, when by a clock that only grows, and until when
    by the wall clock it can hold."""

    mark: int
    given_s: float
    until: float


def may_differ(answer: Answer, mark: int, monotonic_s: float, now: float) -> bool:
    """Whether the question has to be asked again."""
    return mark != answer.mark or now >= answer.until or not 0.0 <= monotonic_s - answer.given_s < _AGAIN_S


class Lasting:
    """One request that lasts. `question` says who is asking by now; None, or what it raises: nobody who may."""

    def __init__(self, access: Access, clock: Clock, question: Callable[[], Identity | None]) -> None:
        self._access = access
        self._clock = clock
        self._question = question
        self._answer: Answer | None = None
        self._node = ""

    def holds(self) -> bool:
        """Whether the request may go on. Raises what the question raises."""
        mark, clock = self._access.mark, self._clock
        monotonic_s = clock.monotonic()
        if self._answer is not None and not may_differ(self._answer, mark, monotonic_s, clock.now().timestamp()):
            # A node is a device of the tree, which changes too often to be part of the mark.
            return not self._node or self._access.by_node(self._node) is not None
        self._answer = None
        identity = self._question()
        if identity is None:
            return False
        self._answer = Answer(mark, monotonic_s, identity.until)
        self._node = identity.name if identity.role == NODE else ""
        return True
