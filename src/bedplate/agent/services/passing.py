"""Services that are handed on as they are: what looks after one service derives from this, and does that one itself.

In: steps for services. Out: the same steps for the back end behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bedplate.agent.services import Services, Status

__all__ = ["Passing"]


class Passing:
    """All services go to the back end."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def start(self, name: str, timeout_s: float = 90.0) -> str | None:
        return await self._services.start(name, timeout_s)

    async def restart(self, name: str, timeout_s: float = 90.0) -> str | None:
        return await self._services.restart(name, timeout_s)

    async def reload(self, name: str, timeout_s: float = 90.0) -> str | None:
        return await self._services.reload(name, timeout_s)

    async def stop(self, name: str, timeout_s: float = 90.0) -> str | None:
        return await self._services.stop(name, timeout_s)

    async def retire(self, name: str, timeout_s: float = 90.0) -> str | None:
        return await self._services.retire(name, timeout_s)

    async def enable(self, name: str) -> str | None:
        return await self._services.enable(name)

    async def disable(self, name: str) -> str | None:
        return await self._services.disable(name)

    async def is_enabled(self, name: str) -> bool:
        return await self._services.is_enabled(name)

    async def reload_units(self) -> str | None:
        return await self._services.reload_units()

    async def status(self, names: Iterable[str]) -> Mapping[str, Status]:
        return await self._services.status(names)

    def ordered(self, names: Sequence[str]) -> Sequence[str]:
        return self._services.ordered(names)
