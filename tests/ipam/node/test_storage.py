"""Whatever step fails, whenever power is lost: what was acknowledged is there, and nothing twice."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.ipam.node.storekit import BLOCK, SMALL, Account, LossyDisk, StepDisk, owner, pool, quietly, reopened, story

from bedplate.core.clock import ManualClock, SystemClock
from bedplate.ipam.node.ledger import Ledger
from bedplate.ipam.node.reservations import StoreFailed, Wanted
from bedplate.ipam.node.storage import Storage


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
