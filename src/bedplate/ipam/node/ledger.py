"""Who has which address (§8): the only place that chooses one.

In: owners, what they want, and a store's path. Out: reservations that are on the disk when they are returned. One event
loop owns the memory; `storage.py` makes batches durable. It knows no pods and no API server: which reservations are dead
is decided by the caller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from bedplate.core.clock import Clock
from bedplate.ipam.addresses import Address
from bedplate.ipam.node.poolconfig import PoolConfig
from bedplate.ipam.node.reservations import Owner, Proven, Reservation, StaticIPCheck, Usage, Wanted

__all__ = ["Ledger", "LedgerOptions", "Recovery"]


class LedgerOptions(msgspec.Struct, frozen=True):
    """How a ledger behaves."""

    static_ip_check: StaticIPCheck = StaticIPCheck.WARN
    on_foreign: Callable[[str, Address, str], None] | None = None
    """Called when an address is given that lies in another node's block (pool key, address, that node)."""
    wall_ns: Callable[[], int] = time.time_ns


class Recovery(msgspec.Struct, frozen=True):
    """What was found broken at start, and what became of it. It stands until `adopt` was called."""

    what: str
    set_aside: tuple[str, ...]
    restored: int


class Ledger:
    """The reservations of a node."""

    @classmethod
    async def open(cls, path: Path, *, clock: Clock, options: LedgerOptions = LedgerOptions()) -> Ledger:
        """Lock, load and repair the store. Raises `StoreBusy` or `StoreFailed` with what to do next."""
        raise NotImplementedError

    recovery: Recovery | None
    """Something acknowledged may be missing: give no address before `adopt`. It survives a restart."""

    async def allocate(self, owner: Owner, wanted: Sequence[Wanted]) -> tuple[Reservation, ...]:
        """One address of each pool, all or nothing. Returns when they are on the disk."""
        raise NotImplementedError

    async def release(self, container_id: str, interface_name: str, pools: Collection[str] | None = None) -> int:
        """Free the interface's addresses in these pools (None: in all); how many there were."""
        raise NotImplementedError

    async def release_proven(self, dead: Sequence[Reservation]) -> int:
        """Free those that are still the same; how many they were."""
        raise NotImplementedError

    async def forget_pools(self, keys: Collection[str]) -> int:
        """Remove the records of these pools that hold nothing (their rotation goes with them); how many there were."""
        raise NotImplementedError

    async def adopt(self, proven: Sequence[Proven]) -> int:
        """Add what pods prove to have after a loss, and end `recovery`; how many were new."""
        raise NotImplementedError

    def find(self, pool: str, container_id: str, interface_name: str) -> Reservation | None:
        """The interface's reservation in that pool."""
        raise NotImplementedError

    def reservations(self, pool: str | None = None) -> Iterator[Reservation]:
        """All of them, or those of one pool."""
        raise NotImplementedError

    def pools(self) -> Mapping[str, PoolConfig | None]:
        """Every pool with a record, and the configuration it remembers (None: none that can be used)."""
        raise NotImplementedError

    def usage(self, configs: Mapping[str, PoolConfig]) -> dict[str, Usage]:
        """How full each pool is, those of `configs` and those with a record."""
        raise NotImplementedError

    async def sync(self) -> None:
        """Bring the store file up to date."""
        raise NotImplementedError

    async def close(self) -> None:
        """Write what is outstanding, bring the file up to date, give up the locks."""
        raise NotImplementedError
