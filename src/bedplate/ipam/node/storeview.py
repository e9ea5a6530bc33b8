"""A store seen from outside the daemon: for people who ask, and before a way back to the original.

In: a store's path. Out: what its file and journal add up to, without any lock (`read_store`); the file brought up to
date (`sync_store`): by this process when nobody holds the store, otherwise by the daemon that does, which is waited
for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.ipam.node import storeload
from bedplate.ipam.node.disk import Disk, holder_of
from bedplate.ipam.node.ledger import Ledger
from bedplate.ipam.node.reservations import Reservation, StoreBusy, StoreFailed
from bedplate.ipam.node.storeload import Assessment

__all__ = ["StoreView", "Synced", "read_store", "sync_store"]

_PATIENCE_S = 30.0
_READS = 20


class StoreView(msgspec.Struct, frozen=True):
    """A store as it was when it was read."""

    assessment: Assessment
    holder: int | None
    """The process that uses the store, where that is known."""

    @property
    def pending(self) -> int:
        """Calls that stand in the journal alone: the original's daemon would not see them."""
        return self.assessment.pending

    @property
    def problem(self) -> str:
        """What is broken; empty when nothing is."""
        parts = (("the file", self.assessment.broken_file), ("the journal", self.assessment.broken_journal))
        return "; ".join(f"{what}: {why}" for what, why in parts if why)

    def reservations(self) -> Iterator[Reservation]:
        """All of them, sorted by pool and key."""
        for _, pool in sorted(self.assessment.document.pools.items()):
            for _, entry in sorted(pool.entries.items()):
                yield entry.reservation


def read_store(path: Path) -> StoreView:
    """Read a store that a daemon may be writing meanwhile. Raises `NotFound` and `StoreFailed`."""
    disk = Disk(path)
    try:
        return _read(disk)
    except OSError as error:
        raise StoreFailed(f"the store {path} cannot be read: {error.strerror or error}") from error
    finally:
        disk.release()


def _read(disk: Disk) -> StoreView:
    for _ in range(_READS):
        before = disk.look(disk.name)
        content, log = disk.read(disk.name), disk.read(disk.journal)
        previous, after = disk.read(disk.previous), disk.look(disk.name)
        if before is not None and after is not None and before.st_ino == after.st_ino:
            break  # The file was not replaced between its own reading and that of its journal.
    if content is None:
        raise errors.NotFound(f"there is no store at {disk.path}", hint="give the path in the daemon's --store-file")
    lock = disk.look(disk.lock_file)
    holder = (holder_of(lock) if lock else None) or (holder_of(after) if after else None)
    return StoreView(storeload.assess(content, log, previous), holder)


class Synced(msgspec.Struct, frozen=True):
    """The store file holds everything that was acknowledged before the call."""

    reservations: int
    daemon: int | None
    """The process that did it, when it was not this one."""


async def sync_store(path: Path, *, clock: Clock) -> Synced:
    """Bring a store file up to date. Raises `NotFound` and `StoreFailed`."""
    seen = read_store(path)
    try:
        ledger = await Ledger.open(path, clock=clock)
    except StoreBusy as busy:
        return await _wait_for_daemon(path, clock, seen, busy)
    count = sum(1 for _ in ledger.reservations())
    await ledger.close()
    return Synced(count, None)


async def _wait_for_daemon(path: Path, clock: Clock, seen: StoreView, busy: StoreBusy) -> Synced:
    """The daemon lets its file follow by itself: wait until it holds what stood in the journal at the beginning."""
    newest = seen.assessment.journal.last_mark if seen.assessment.journal else 0
    until = clock.monotonic() + _PATIENCE_S
    while True:
        now = read_store(path)
        if not now.pending or (now.assessment.place or 0) > newest:
            return Synced(sum(1 for _ in now.reservations()), busy.pid)
        if clock.monotonic() > until:
            raise StoreFailed(
                f"process {busy.pid or 'unknown'} has locked the store {path} and does not bring its file up to date",
                hint="see its log; the file is also brought up to date when the daemon stops",
            )
        await clock.sleep(0.05)
