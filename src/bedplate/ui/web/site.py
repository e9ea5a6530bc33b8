"""What the page needs of the daemon that serves it.

In: nothing. Out: `Site`, the one value that `mount` takes: the head, who may do what, what nodes told and measured.
The page holds no state of its own beside its logins.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from bedplate.core.clock import Clock, SystemClock
from bedplate.head.explain import Renderer
from bedplate.head.service import Head
from bedplate.head.session import Edit

__all__ = ["Access", "Health", "Notice", "Notices", "Person", "Sample", "Site"]


class Person(NamedTuple):
    """Who is signed in: the user's name, and admin, operator or auditor."""

    name: str
    role: str


class Access(Protocol):
    """Who may do what; the same rules as for the REST API."""

    async def by_token(self, token: str) -> Person | None:
        """Whose token that is; None for nobody's, or when the user is not let in."""
        ...

    def by_name(self, name: str) -> Person | None:
        """The user as the present tree has it: asked at every request, so that a user who was shut out is out."""
        ...

    def allow(self, person: Person, edits: Sequence[Edit]) -> None:
        """Raise `Denied` unless the person may commit the edits."""
        ...


class Notice(NamedTuple):
    """Something that happened on a node, or to the head."""

    time: str
    level: str
    node: str
    text: str


class Notices(Protocol):
    """What happened lately, and what happens from now on."""

    def latest(self, limit: int, node: str = "") -> Sequence[Notice]:
        """The newest first."""
        ...

    def follow(self) -> AsyncIterator[Notice]:
        """Those that come from now on."""
        ...


class Sample(NamedTuple):
    """One result of a check: PASS, FAIL or UNKNOWN, and what it measured where it measures."""

    time: str
    result: str
    value: float | None = None
    detail: str = ""


class Health(Protocol):
    """What the checks of the nodes said."""

    def of(self, node: str) -> Mapping[str, Sequence[Sample]]:
        """The history of each check, oldest first."""
        ...

    def state(self, node: str) -> str:
        """`UP`, `DOWN` or, for one that never reported, `UNKNOWN`."""
        ...


def _anybody() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Site:
    """See the module. `refuse_writes` raises `Unavailable` while another head node is the active one."""

    head: Head
    access: Access
    notices: Notices
    health: Health
    renderers: Sequence[Renderer] = ()
    name: str = "head"
    refuse_writes: Callable[[], None] = _anybody
    clock: Clock = field(default_factory=SystemClock)
