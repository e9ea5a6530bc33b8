"""A store seen and brought up to date from outside the daemon."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.ipam.node.storekit import StepDisk, owner, pool

from bedplate.core import errors
from bedplate.core.clock import ManualClock, SystemClock
from bedplate.ipam.node import storefile
from bedplate.ipam.node.ledger import Ledger, LedgerOptions
from bedplate.ipam.node.reservations import StoreFailed, Wanted
from bedplate.ipam.node.storeview import read_store, sync_store

SMALL = LedgerOptions(whole_below=3000)


async def filled(folder: Path, clock: ManualClock | SystemClock, disk: StepDisk | None = None) -> Ledger:
    """A ledger whose file is behind its journal."""
    ledger = await Ledger.open(folder / "store", clock=clock, options=SMALL, disk=disk)
    for number in range(9):
        await ledger.allocate(owner(number), [Wanted(pool())])
    return ledger


def in_file(folder: Path) -> int:
    return len(storefile.decode((folder / "store").read_bytes())[0].pools["v4"].entries)


async def test_reading_needs_no_lock_and_sees_the_journal(tmp_path: Path) -> None:
    ledger = await filled(tmp_path, ManualClock())
    view = read_store(tmp_path / "store")
    assert set(view.reservations()) == set(ledger.reservations())
    assert view.pending == 9 - in_file(tmp_path) > 0
    assert (view.holder, view.problem) == (os.getpid(), "")
    await ledger.close()
    view = read_store(tmp_path / "store")
    assert (view.pending, view.holder) == (0, None)


async def test_a_dead_daemons_file_is_brought_up_to_date(tmp_path: Path) -> None:
    disk = StepDisk(tmp_path / "store")
    ledger = await filled(tmp_path, ManualClock(), disk)
    disk.last = disk.steps + 1
    with pytest.raises(StoreFailed):
        await ledger.close()
    disk.abandon()
    assert in_file(tmp_path) < 9
    done = await sync_store(tmp_path / "store", clock=SystemClock())
    assert (done.reservations, done.daemon) == (9, None)
    assert in_file(tmp_path) == 9 and not (tmp_path / "store.journal").exists()


async def test_a_living_daemon_brings_its_file_up_to_date_itself(tmp_path: Path) -> None:
    ledger = await filled(tmp_path, SystemClock())
    done = await sync_store(tmp_path / "store", clock=SystemClock())
    assert (done.reservations, done.daemon) == (9, os.getpid())
    assert in_file(tmp_path) == 9
    await ledger.close()


async def test_a_daemon_that_does_not_is_named(tmp_path: Path) -> None:
    ledger = await filled(tmp_path, ManualClock())

    class Impatient(SystemClock):
        def monotonic(self) -> float:
            return super().monotonic() * 1000

    with pytest.raises(StoreFailed, match=f"process {os.getpid()}"):
        await sync_store(tmp_path / "store", clock=Impatient())
    await ledger.close()


async def test_no_store_and_a_broken_one_are_told(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFound, match="no store"):
        read_store(tmp_path / "store")
    with pytest.raises(errors.NotFound):
        await sync_store(tmp_path / "store", clock=SystemClock())
    with pytest.raises(StoreFailed):
        read_store(Path("/dev/null/store"))
    (tmp_path / "store").write_bytes(b"{")
    assert "the file: it is not valid JSON" in read_store(tmp_path / "store").problem
    assert not (tmp_path / "store.lock").exists()
