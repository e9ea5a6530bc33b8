"""The files of the store: their modes and locks, snapshots beside the journal, and what a reload gives."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
import threading
from pathlib import Path

import pytest
from tests.ipam.node.storekit import BLOCK, SMALL, Account, StepDisk, owner, quietly, reopened, story
from tests.waiting import until

from bedplate.core.clock import ManualClock
from bedplate.ipam.node import storefile
from bedplate.ipam.node.disk import Disk
from bedplate.ipam.node.ledger import Ledger, LedgerOptions
from bedplate.ipam.node.reservations import StoreFailed, Wanted
from bedplate.ipam.node.storage import Storage


@pytest.fixture(autouse=True)
def short_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Storage, "journal_limit", 2000)


async def test_a_folder_that_cannot_be_written_is_told_at_start(tmp_path: Path) -> None:
    class ReadOnly(StepDisk):
        def open(self, name: str, flags: int = os.O_RDWR, mode: int = 0o600) -> int:
            raise OSError(errno.EROFS, "Read-only file system")

    with pytest.raises(StoreFailed, match="Read-only file system") as caught:
        await Ledger.open(tmp_path / "store", clock=ManualClock(), disk=ReadOnly(tmp_path / "store"))
    assert str(tmp_path) in caught.value.hint
    with pytest.raises(StoreFailed, match="No such file"):
        await Ledger.open(tmp_path / "none" / "store", clock=ManualClock())


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
async def test_the_mode_of_the_file_is_kept(tmp_path: Path, mode: int) -> None:
    (tmp_path / "store").touch()
    (tmp_path / "store").chmod(mode)
    ledger, account = await Ledger.open(tmp_path / "store", clock=ManualClock()), Account()
    await account.add(ledger, 1)
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == mode
    (tmp_path / "store").unlink()
    await account.add(ledger, 2)
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o664 & ~mask
    await ledger.close()


async def test_a_new_store_is_for_root_alone_as_the_originals(tmp_path: Path) -> None:
    ledger = await Ledger.open(tmp_path / "store", clock=ManualClock())
    await Account().add(ledger, 1)
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o600
    await ledger.close()


async def test_every_new_file_is_locked_as_the_original_locks_it(tmp_path: Path) -> None:
    ledger, other = await Ledger.open(tmp_path / "store", clock=ManualClock()), Disk(tmp_path / "store")
    for number in range(3):
        file = other.open("store")
        assert not other.lock(file)
        other.close(file)
        await Account().add(ledger, number)
    await ledger.close()
    file = other.open("store")
    assert other.lock(file)
    other.close(file)
    other.release()


async def test_a_file_that_another_put_in_place_is_set_aside_when_it_is_replaced(tmp_path: Path) -> None:
    ledger, account = await Ledger.open(tmp_path / "store", clock=ManualClock()), Account()
    await account.add(ledger, 1)
    (tmp_path / "other").write_bytes(b"theirs")
    (tmp_path / "other").rename(tmp_path / "store")
    await account.add(ledger, 2)
    await ledger.close()
    (aside,) = tmp_path.glob("store.foreign-*")
    assert aside.read_bytes() == b"theirs"
    await reopened(tmp_path, account)


async def test_the_file_follows_the_journal(tmp_path: Path) -> None:
    clock = ManualClock()
    ledger, account = await Ledger.open(tmp_path / "store", clock=clock, options=SMALL), Account()
    for number in range(12):
        await account.add(ledger, number)

    def stored() -> int:
        document, _ = storefile.decode((tmp_path / "store").read_bytes())
        return len(document.pools["v4"].entries)

    assert stored() < 12 and (tmp_path / "store.journal").exists()
    await clock.advance(0.25)
    await until(lambda: stored() == 12)
    await account.add(ledger, 20)
    await ledger.sync()
    assert stored() == 13
    await ledger.close()
    await reopened(tmp_path, account)


async def test_a_snapshot_that_fails_is_tried_again_and_nothing_is_lost(tmp_path: Path) -> None:
    clock, disk, account = ManualClock(), StepDisk(tmp_path / "store"), Account()
    ledger = await Ledger.open(tmp_path / "store", clock=clock, options=SMALL, disk=disk)
    for number in range(12):
        await account.add(ledger, number)
    disk.failing = disk.steps + 1
    with pytest.raises(StoreFailed, match="brought up to date"):
        await ledger.sync()
    await account.add(ledger, 50)
    account.check(ledger)
    before = (tmp_path / "store").stat().st_ino

    async def is_replaced() -> bool:
        await clock.advance(1)
        return (tmp_path / "store").stat().st_ino != before

    await until(is_replaced)
    assert len(storefile.decode((tmp_path / "store").read_bytes())[0].pools["v4"].entries) == 13
    await ledger.close()
    await reopened(tmp_path, account)


async def test_a_snapshot_of_what_was_undone_meanwhile_is_not_installed(tmp_path: Path) -> None:
    held_up, go_on = threading.Event(), threading.Event()

    class Slow(StepDisk):
        is_slow = False

        def write(self, file: int, texts: object) -> None:
            if self.is_slow and os.readlink(f"/proc/self/fd/{file}").endswith(".journal"):
                self.is_slow = False
                held_up.set()
                assert go_on.wait(60)
                raise OSError(errno.ENOSPC, "No space left on device")
            super().write(file, texts)

    clock, disk, account = ManualClock(), Slow(tmp_path / "store"), Account()
    ledger = await Ledger.open(tmp_path / "store", clock=clock, options=SMALL, disk=disk)
    for number in range(12):
        await account.add(ledger, number)
    disk.is_slow = True
    doomed = asyncio.create_task(account.add(ledger, 100))
    await until(held_up.is_set)
    await clock.advance(0.25)
    # The text is taken with the reservation that will be undone.
    await until(lambda: any(path.name.startswith(".store") for path in tmp_path.iterdir()))
    go_on.set()
    await doomed
    await until(lambda: not any(path.name.startswith(".store") for path in tmp_path.iterdir()))
    assert 100 in account.unsure
    await account.add(ledger, 101)
    disk.last = disk.steps
    await quietly(ledger.close())
    disk.abandon()
    await reopened(tmp_path, account)


async def test_whoever_watches_the_commits_cannot_stop_them(tmp_path: Path) -> None:
    def fail(commit: object) -> None:
        raise RuntimeError("no metrics today")

    ledger = await Ledger.open(tmp_path / "store", clock=ManualClock(), options=LedgerOptions(on_commit=fail))
    account = Account()
    for number in range(3):
        await account.add(ledger, number)
    assert len(account.held) == 3
    await ledger.close()


async def test_what_is_in_memory_is_what_a_reload_gives(tmp_path: Path) -> None:
    ledger, account = await Ledger.open(tmp_path / "store", clock=ManualClock(), options=SMALL), Account()
    await story(ledger, account)
    before = set(ledger.reservations())
    await ledger.close()
    ledger = await Ledger.open(tmp_path / "store", clock=ManualClock())
    assert set(ledger.reservations()) == before
    await ledger.close()


async def test_a_closed_ledger_takes_nothing(tmp_path: Path) -> None:
    ledger = await Ledger.open(tmp_path / "store", clock=ManualClock())
    await ledger.close()
    await ledger.close()
    with pytest.raises(StoreFailed, match="closed"):
        await ledger.allocate(owner(1), [Wanted(BLOCK)])
    assert not list(ledger.reservations())


@pytest.mark.parametrize("name", ["store", "store.lock", "store.journal", "store.previous", "store.recovering"])
async def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path, name: str) -> None:
    """Root would write, or believe, whatever the link points to."""
    folder, target = tmp_path / "folder", tmp_path / "target"
    folder.mkdir()
    target.write_text("of others")
    (folder / name).symlink_to(target)
    ledger = None
    with contextlib.suppress(StoreFailed):
        ledger = await Ledger.open(folder / "store", clock=ManualClock(), options=SMALL)
        account = Account()
        for number in range(40):
            await account.add(ledger, number)
    if ledger is not None:
        await quietly(ledger.close())
    if name in ("store", "store.lock"):
        assert ledger is None
    assert target.read_text() == "of others"


async def test_the_folder_of_the_store_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    ledger = await Ledger.open(tmp_path / "link" / "store", clock=ManualClock())
    await ledger.close()
    assert (tmp_path / "folder" / "store").is_file()
