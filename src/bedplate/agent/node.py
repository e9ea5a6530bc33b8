"""What the parts of an agent share: the machine, the head, what holds, and the lock of whoever changes the machine.

In: what effects are done with, and a way to the head. Out: one place for what holds now, so that the part that follows
the head, the part that keeps the machine right and the part that carries out requests never have two opinions.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from bedplate.agent.apply import Effects
from bedplate.agent.link import Head
from bedplate.agent.observe import Edits
from bedplate.agent.state import Held
from bedplate.agent.update import Updates
from bedplate.core.clock import Clock

__all__ = ["Node", "Pace"]


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a poll waits, how often drift is looked for, when what failed is tried again (each time twice as long),
    how long news are collected, and how often the node says that it lives."""

    poll_s: float = 120.0
    drift_s: float = 30.0
    packages_s: float = 600.0
    retry_s: float = 30.0
    longest_retry_s: float = 600.0
    gather_s: float = 0.2
    alive_s: float = 100.0


@dataclass(slots=True)
class Node:
    """A machine as its agent knows it. `working` is held by whoever changes it; `revision` is the head's newest,
    `tried` the one that the node last set out to become."""

    effects: Effects
    head: Head
    clock: Clock
    pace: Pace
    rng: random.Random
    updates: Updates | None = None
    held: Held = field(default_factory=Held)
    revision: int = 0
    tried: int = 0
    working: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def edits(self) -> Edits:
        """What is done about changes by hand, as the head and the machine's settings say."""
        return self.effects.edits.under(self.held.wanted.settings if self.held.wanted is not None else {})

    @property
    def services(self) -> list[str]:
        """The services that should run."""
        return [service.name for service in self.held.state.services] if self.held.state is not None else []
