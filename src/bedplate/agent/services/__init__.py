"""Services of a node: one interface, two back ends.

In: names without `.service`. Out: None, or why it failed, in one line. systemd is used where it is PID 1
(`systemd.Systemd`), our own supervisor everywhere else (`supervisor.Supervisor`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

__all__ = ["Condition", "Services", "Status"]

Condition = Literal["running", "starting", "stopped", "failed", "missing", "unknown"]


class Status(NamedTuple):
    """What a service does. `instance` names the present run; `missing`: there is no unit of that name."""

    name: str
    condition: Condition
    pid: int = 0
    instance: str = ""
    restarts: int = 0
    why: str = ""

    @property
    def is_up(self) -> bool:
        return self.condition in ("running", "starting")


class Services(Protocol):
    """Starting what runs, and stopping what does not, is a success that does nothing."""

    async def start(self, name: str, timeout_s: float = 90.0) -> str | None: ...

    async def stop(self, name: str, timeout_s: float = 90.0) -> str | None: ...

    async def retire(self, name: str, timeout_s: float = 90.0) -> str | None:
        """Stop it for good: the node does not have this service any more."""
        ...

    async def restart(self, name: str, timeout_s: float = 90.0) -> str | None: ...

    async def reload(self, name: str, timeout_s: float = 90.0) -> str | None: ...

    async def enable(self, name: str) -> str | None:
        """Start it with the machine from now on."""
        ...

    async def disable(self, name: str) -> str | None: ...

    async def is_enabled(self, name: str) -> bool: ...

    async def reload_units(self) -> str | None:
        """Unit files have changed."""
        ...

    async def status(self, names: Iterable[str]) -> Mapping[str, Status]: ...

    def ordered(self, names: Sequence[str]) -> Sequence[str]:
        """In the order in which they start."""
        ...
