"""Whatever step fails, whenever power is lost: what was acknowledged is there, and nothing twice."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import stat
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.ipam.node.storekit import LossyDisk, StepDisk, owner, pool
from tests.waiting import until

from bedplate.core.clock import ManualClock, SystemClock
from bedplate.ipam.node import storefile
from bedplate.ipam.node.disk import Disk
from bedplate.ipam.node.ledger import Ledger, LedgerOptions
from bedplate.ipam.node.reservations import StoreFailed, Wanted
from bedplate.ipam.node.storage import Storage

SMALL = LedgerOptions(whole_below=3000)
"""Five reservations are rewritten whole; six go into a journal."""
BLOCK = pool(size=60)


class Account:
    """What a client knows: its acknowledged addresses, and the calls whose fate it does not know."""

    def __init__(self) -> None:
        self.held: dict[int, str] = {}
        self.unsure: set[int] = set()

    async def add(self, ledger: Ledger, number: int) -> None:
        try:
            (made,) = await ledger.allocate(owner(number), [Wanted(BLOCK)])
        except StoreFailed:
            self.unsure.add(number)
        else:
            self.held[number] = made.address
            self.unsure.discard(number)

    async def remove(self, ledger: Ledger, number: int) -> None:
        address = self.held.pop(number, None)
        try:
            await ledger.release(owner(number).container_id, "net0")
        except StoreFailed:
            if address is not None:
                self.unsure.add(number)
        else:
            self.unsure.discard(number)

    def check(self, ledger: Ledger) -> None:
        """Everything acknowledged is there, nothing twice, and nothing nobody asked for."""
        found = {one.container_id: one.address for one in ledger.reservations()}
        assert len(set(found.values())) == len(found)
        for number, address in self.held.items():
            assert found.pop(owner(number).container_id, None) == address, number
        assert set(found) <= {owner(number).container_id for number in self.unsure}


async def story(ledger: Ledger, account: Account) -> None:
    """From nothing to a journal, over snapshots and a shortened journal, and back to a small file."""
    for number in range(4):
        await account.add(ledger, number)
    await account.remove(ledger, 1)
    await asyncio.gather(*(account.add(ledger, number) for number in range(10, 18)))
    await quietly(ledger.sync())
    await account.add(ledger, 20)
    await account.remove(ledger, 12)
    await asyncio.gather(quietly(ledger.sync()), *(account.add(ledger, number) for number in range(30, 34)))
    await account.add(ledger, 40)
    await quietly(ledger.sync())
    await account.add(ledger, 41)
    for number in (10, 11, 13, 14, 15, 16, 17, 20, 30, 31, 32, 33, 40):
        await account.remove(ledger, number)
    await account.add(ledger, 50)


async def quietly(work: Awaitable[None]) -> None:
    try:
        await work
    except StoreFailed:
        return


@pytest.fixture(autouse=True)
def short_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Storage, "journal_limit", 2000)


async def tell(folder: Path, disk: StepDisk) -> Account:
    """The story on a disk that may fail; the process is gone afterwards."""
    account = Account()
    try:
        ledger = await Ledger.open(folder / "store", clock=ManualClock(), options=SMALL, disk=disk)
        await story(ledger, account)
        await quietly(ledger.close())
    except StoreFailed:
        assert not account.held
    disk.abandon()
    return account


async def test_the_story_uses_every_kind_of_step(tmp_path: Path) -> None:
    disk = StepDisk(tmp_path / "store")
    account = await tell(tmp_path, disk)
    assert set(account.held) == {0, 2, 3, 41, 50} and not account.unsure
    assert {"create", "open", "write", "sync", "sync_folder", "rename", "link", "unlink"} <= set(disk.done)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "store.lock", "store.previous"]


def steps_of(tmp_path_factory: pytest.TempPathFactory, make: Callable[[Path], StepDisk]) -> int:
    folder = tmp_path_factory.mktemp("count")
    disk = make(folder / "store")
    asyncio.run(tell(folder, disk))
    return disk.steps


async def reopened(folder: Path, account: Account, *, may_set_aside: bool = False) -> None:
    """The next daemon finds everything, can go on, and leaves a file that is complete by itself."""
    ledger = await Ledger.open(folder / "store", clock=ManualClock(), options=SMALL)
    assert ledger.recovery is None
    account.check(ledger)
    await account.add(ledger, 99)
    assert 99 in account.held
    account.check(ledger)
    await ledger.close()
    document, _ = storefile.decode((folder / "store").read_bytes())
    stored = {entry.reservation.address for entry in document.pools["v4"].entries.values()}
    assert stored >= set(account.held.values())
    others = [name for name in os.listdir(folder) if "journal" in name or name.startswith(".")]
    assert not others or (may_set_aside and all(".foreign-" in name for name in others))


def test_a_process_that_dies_at_any_step_loses_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    for last in range(1, steps_of(tmp_path_factory, StepDisk) + 1):
        folder = tmp_path_factory.mktemp("dies")
        account = asyncio.run(tell(folder, StepDisk(folder / "store", last)))
        asyncio.run(reopened(folder, account))


@pytest.mark.parametrize("lossy_names", [False, True], ids=["contents", "contents-and-names"])
def test_power_lost_at_any_step_loses_nothing(tmp_path_factory: pytest.TempPathFactory, lossy_names: bool) -> None:
    for last in range(1, steps_of(tmp_path_factory, LossyDisk) + 1):
        folder, left = tmp_path_factory.mktemp("off"), tmp_path_factory.mktemp("left")
        disk = LossyDisk(folder / "store", last)
        account = asyncio.run(tell(folder, disk))
        disk.left_after_power_failure(left, lossy_names=lossy_names)
        asyncio.run(reopened(left, account))


@pytest.mark.parametrize(
    "code",
    [errno.ENOSPC, *(pytest.param(code, marks=pytest.mark.soak) for code in (errno.EIO, errno.EROFS))],
    ids=errno.errorcode.get,
)
def test_a_step_that_fails_once_fails_its_calls_and_loses_nothing(
    tmp_path_factory: pytest.TempPathFactory, code: int
) -> None:
    for last in range(1, steps_of(tmp_path_factory, StepDisk) + 1):
        folder = tmp_path_factory.mktemp("fails")
        error = OSError(code, os.strerror(code))
        account = asyncio.run(tell(folder, StepDisk(folder / "store", failing=last, error=error)))
        asyncio.run(reopened(folder, account))


def test_a_process_that_dies_after_a_step_failed_loses_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    chance = random.Random(11)
    for failing in range(1, steps_of(tmp_path_factory, StepDisk) + 1):
        folder, last = tmp_path_factory.mktemp("twice"), failing + chance.randint(1, 9)
        account = asyncio.run(tell(folder, StepDisk(folder / "store", last, failing)))
        # A journal that could not be trusted may lie beside the file that made up for it: it is set aside.
        asyncio.run(reopened(folder, account, may_set_aside=True))


def live_often(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Several lives on one store, each with calls at random and an end at a random step."""
    chance, account = random.Random(seed), Account()
    folder = tmp_path_factory.mktemp("lives")
    for _ in range(5):
        disk = LossyDisk(folder / "store", last=int(chance.expovariate(1 / 60)) + 1)
        asyncio.run(a_life(folder, disk, account, chance))
        left = tmp_path_factory.mktemp("left")
        disk.left_after_power_failure(left, lossy_names=chance.random() < 0.5)
        folder = left
    asyncio.run(reopened(folder, account))


async def a_life(folder: Path, disk: LossyDisk, account: Account, chance: random.Random) -> None:
    try:
        ledger = await Ledger.open(folder / "store", clock=ManualClock(), options=SMALL, disk=disk)
    except StoreFailed:
        disk.abandon()
        return
    account.check(ledger)
    if not disk.is_off:
        # What became of calls without an answer is known only now.
        found = {one.container_id: one.address for one in ledger.reservations()}
        known = {number: found.get(owner(number).container_id) for number in account.unsure}
        account.held |= {number: address for number, address in known.items() if address}
        account.unsure = set()
    while not disk.is_off:
        calls: list[Awaitable[None]] = []
        for _ in range(chance.randint(1, 6)):
            if account.held and chance.random() < (0.45 if len(account.held) < 30 else 0.9):
                calls.append(account.remove(ledger, chance.choice(sorted(account.held))))
            else:
                calls.append(account.add(ledger, chance.randrange(100, 10**9)))
        if chance.random() < 0.3:
            calls.append(quietly(ledger.sync()))
        await asyncio.gather(*calls)
    await quietly(ledger.close())
    disk.abandon()


@pytest.mark.parametrize("seed", range(12))
def test_many_lives_with_power_failures_lose_nothing(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    live_often(tmp_path_factory, seed)


@pytest.mark.soak
def test_very_many_lives_with_power_failures_lose_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    for seed in range(1000, 2000):
        live_often(tmp_path_factory, seed)


async def test_a_failed_batch_is_undone_with_all_that_came_after_it(tmp_path: Path) -> None:
    disk = StepDisk(tmp_path / "store")
    ledger = await Ledger.open(tmp_path / "store", clock=ManualClock(), disk=disk)
    account = Account()
    await account.add(ledger, 1)
    disk.failing = disk.steps + 2
    first = asyncio.create_task(ledger.allocate(owner(2), [Wanted(BLOCK)]))
    await asyncio.sleep(0)
    results = await asyncio.gather(
        first,
        ledger.release(owner(1).container_id, "net0"),
        ledger.allocate(owner(3), [Wanted(BLOCK)]),
        return_exceptions=True,
    )
    assert all(isinstance(one, StoreFailed) and "No space left" in str(one) for one in results), results
    account.check(ledger)
    # The addresses that were not kept are given to the next ones.
    await account.add(ledger, 4)
    assert account.held[4] == "10.7.0.3"
    await ledger.close()


@pytest.mark.parametrize("step", [1, 2], ids=["write", "sync"])
async def test_a_line_that_was_not_acknowledged_does_not_stay_in_the_journal(tmp_path: Path, step: int) -> None:
    disk, account = StepDisk(tmp_path / "store"), Account()
    ledger = await Ledger.open(tmp_path / "store", clock=ManualClock(), options=SMALL, disk=disk)
    for number in range(12):
        await account.add(ledger, number)
    disk.failing = disk.steps + step
    await account.add(ledger, 100)
    assert disk.done[disk.failing - 1] == ("write", "sync")[step - 1] and 100 in account.unsure
    await account.add(ledger, 101)
    assert account.held[101] == "10.7.0.14"
    # Should the first line be there, too, one address would have two owners.
    disk.last = disk.steps
    await quietly(ledger.close())
    disk.abandon()
    await reopened(tmp_path, account, may_set_aside=True)


@pytest.mark.parametrize("held", [0, 12], ids=["whole", "journal"])
async def test_a_disk_that_stays_full_fails_every_call_and_loses_nothing(tmp_path: Path, held: int) -> None:
    class Full(StepDisk):
        is_full = False

        def step(self, name: str) -> None:
            super().step(name)
            if self.is_full and name in ("write", "create"):
                raise OSError(errno.ENOSPC, "No space left on device")

    disk, account = Full(tmp_path / "store"), Account()
    ledger = await Ledger.open(tmp_path / "store", clock=ManualClock(), options=SMALL, disk=disk)
    for number in range(held):
        await account.add(ledger, number)
    disk.is_full = True
    for number in range(100, 105):
        with pytest.raises(StoreFailed, match="No space left"):
            await ledger.allocate(owner(number), [Wanted(BLOCK)])
    account.check(ledger)
    disk.is_full = False
    await account.add(ledger, 200)
    await ledger.close()
    await reopened(tmp_path, account)


@pytest.mark.root
async def test_a_small_real_disk_that_is_full_loses_nothing(small_disk: Path) -> None:
    ledger, account = await Ledger.open(small_disk / "store", clock=SystemClock(), options=SMALL), Account()
    number = 0
    big = pool(size=4000)
    with pytest.raises(StoreFailed, match="No space left"):
        for number in range(4000):
            (made,) = await ledger.allocate(owner(number), [Wanted(big)])
            account.held[number] = made.address
    account.unsure.add(number)
    account.check(ledger)
    await quietly(ledger.close())
    # The next daemon starts on the full disk, knows everything, and writes as soon as it can.
    ledger = await Ledger.open(small_disk / "store", clock=SystemClock(), options=SMALL)
    account.check(ledger)
    with pytest.raises(StoreFailed, match="No space left"):
        while True:
            number += 1
            (made,) = await ledger.allocate(owner(number), [Wanted(big)])
            account.held[number] = made.address
    account.unsure.add(number)
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    (made,) = await ledger.allocate(owner(number + 1), [Wanted(big)])
    account.held[number + 1] = made.address
    await ledger.close()
    assert not (small_disk / "store.journal").exists()
    ledger = await Ledger.open(small_disk / "store", clock=SystemClock(), options=SMALL)
    account.check(ledger)
    await ledger.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    if os.geteuid() != 0:
        pytest.skip("a file system is mounted by root alone")
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


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
    deadline = SystemClock().monotonic() + 60
    while stored() < 12 and SystemClock().monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert stored() == 12
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
    deadline = SystemClock().monotonic() + 60
    while (tmp_path / "store").stat().st_ino == before and SystemClock().monotonic() < deadline:
        await clock.advance(1)
        await asyncio.sleep(0.01)
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
