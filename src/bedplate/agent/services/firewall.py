"""The firewall as a service: our own table of nftables, loaded at once, and nobody else's.

In: steps for the service `nftables`; every other service goes to the back end behind it. Out: `nft -f` of the rendered
file, which replaces the table in one transaction. Distributions' units empty the whole rule set when they stop, and
with it what Kubernetes and others put there; here only the table `inet bedplate` goes. In a sandbox nothing is loaded:
the machine's rules are not the sandbox's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bedplate.agent.commands import Run, run
from bedplate.agent.files import Root
from bedplate.agent.services import Services, Status

__all__ = ["NFTABLES", "Firewalled"]

NFTABLES = "nftables"
_FILE = "/etc/nftables.conf"
_TABLE = ("table", "inet", "bedplate")
_NFT_S = 30.0


class Firewalled:
    """The services of a node, with the firewall among them."""

    def __init__(self, services: Services, root: Root, run: Run = run) -> None:
        self._services = services
        self._root = root
        self._run = run

    async def start(self, name: str, timeout_s: float = 90.0) -> str | None:
        return await self._load() if name == NFTABLES else await self._services.start(name, timeout_s)

    async def restart(self, name: str, timeout_s: float = 90.0) -> str | None:
        return await self._load() if name == NFTABLES else await self._services.restart(name, timeout_s)

    async def reload(self, name: str, timeout_s: float = 90.0) -> str | None:
        return await self._load() if name == NFTABLES else await self._services.reload(name, timeout_s)

    async def stop(self, name: str, timeout_s: float = 90.0) -> str | None:
        if name != NFTABLES:
            return await self._services.stop(name, timeout_s)
        if not self._root.is_machine:
            return None
        # Both words in one transaction: a table that is not there is made first, so that it can go.
        script = f"{' '.join(_TABLE)}; delete {' '.join(_TABLE)}"
        return (await self._run(["nft", script], timeout_s=_NFT_S)).reason or None

    async def retire(self, name: str, timeout_s: float = 90.0) -> str | None:
        return await self.stop(name, timeout_s) if name == NFTABLES else await self._services.retire(name, timeout_s)

    async def enable(self, name: str) -> str | None:
        """The agent loads the table when the machine starts."""
        return None if name == NFTABLES else await self._services.enable(name)

    async def disable(self, name: str) -> str | None:
        return None if name == NFTABLES else await self._services.disable(name)

    async def is_enabled(self, name: str) -> bool:
        return name == NFTABLES or await self._services.is_enabled(name)

    async def reload_units(self) -> str | None:
        return await self._services.reload_units()

    async def status(self, names: Iterable[str]) -> Mapping[str, Status]:
        asked = list(names)
        statuses = dict(await self._services.status([name for name in asked if name != NFTABLES]))
        if NFTABLES in asked:
            statuses[NFTABLES] = await self._status()
        return statuses

    def ordered(self, names: Sequence[str]) -> Sequence[str]:
        return self._services.ordered(names)

    async def _load(self) -> str | None:
        if self._root.stat(_FILE) is None:
            return f"{_FILE} does not exist"
        if not self._root.is_machine:
            return None
        return (await self._run(["nft", "-f", self._root.place(_FILE)], timeout_s=_NFT_S)).reason or None

    async def _status(self) -> Status:
        if not self._root.is_machine:
            is_up = self._root.stat(_FILE) is not None
            return Status(NFTABLES, "running" if is_up else "stopped")
        ended = await self._run(["nft", "-t", "list", *_TABLE], timeout_s=_NFT_S)
        if ended.code is None:
            return Status(NFTABLES, "missing", why=ended.reason)
        return Status(NFTABLES, "running") if ended.is_good else Status(NFTABLES, "stopped", why="its table is gone")
