"""What the page needs of the daemon that serves it.

In: nothing. Out: `Site`, the one value that `mount` takes: the head, who may do what, what nodes told and measured.
The page holds no state of its own beside its logins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bedplate.core.clock import Clock, SystemClock
from bedplate.head import Access, Head, Health, Notices
from bedplate.head.explain import Renderer

__all__ = ["Site"]


@dataclass(frozen=True, slots=True)
class Site:
    """The head, access to it, and what nodes reported. `name` is the head node's."""

    head: Head
    access: Access
    notices: Notices
    health: Health
    renderers: Sequence[Renderer] = ()
    name: str = "head"
    clock: Clock = field(default_factory=SystemClock)
