"""What the tests of the ledger share: pools, owners, and disks that fail or lose power at any step."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable
from pathlib import Path

from bedplate.core.clock import ManualClock
from bedplate.ipam.node import poolconfig, storefile
from bedplate.ipam.node.disk import Disk
from bedplate.ipam.node.ledger import Ledger, LedgerOptions
from bedplate.ipam.node.poolconfig import PoolConfig
from bedplate.ipam.node.reservations import Owner, StoreFailed, Wanted

VECTORS = Path(__file__).parents[2] / "vectors" / "ipam"


def pool(key: str = "v4", size: int = 250, gateway: str = "10.7.0.1") -> PoolConfig:
    """A pool with a block of that many addresses."""
    end = 0x0A070001 + size - 1
    last = ".".join(str(end >> shift & 255) for shift in (24, 16, 8, 0))
    return poolconfig.make(key, subnet="10.7.0.0/16", start="10.7.0.1", end=last, gateway=gateway)


def owner(number: int, interface: str = "net0") -> Owner:
    """An interface of some pod."""
    uid = f"5d1f1a7e-0000-4000-8000-{number:012d}"
    return Owner(f"{number:064x}", interface, uid, f"pod-{number}", "default", "")


class Power(OSError):
    """The machine is off: no call does anything any more."""


class StepDisk(Disk):
    """A disk that counts its steps. At step `last` power is lost; at step `failing` that step fails, and no other."""

    def __init__(
        self, path: Path, last: int | None = None, failing: int | None = None, error: OSError | None = None
    ) -> None:
        super().__init__(path)
        self.steps = 0
        self.last = last
        self.failing = failing
        self.error = error or OSError(errno.ENOSPC, "No space left on device")
        self.done: list[str] = []
        self.files: set[int] = set()

    def step(self, name: str) -> None:
        """Count a step; raise when it is not done."""
        self.steps += 1
        self.done.append(name)
        if self.is_off:
            raise Power(errno.EIO, "power lost")
        if self.steps == self.failing:
            raise self.error

    @property
    def is_off(self) -> bool:
        """Power was lost."""
        return self.last is not None and self.steps >= self.last

    def abandon(self) -> None:
        """What the system does for a process that has ended."""
        for file in self.files:
            os.close(file)
        self.files = set()
        Disk.release(self)

    def create(self, name: str, mode: int) -> int:
        self.step("create")
        file = super().create(name, mode)
        self.files.add(file)
        return file

    def open(self, name: str, flags: int = os.O_RDWR, mode: int = 0o600) -> int:
        self.step("open")
        file = super().open(name, flags, mode)
        self.files.add(file)
        return file

    def close(self, file: int) -> None:
        if self.is_off:
            return
        self.files.discard(file)
        super().close(file)

    def release(self) -> None:
        if not self.is_off:
            super().release()

    def write(self, file: int, texts: object) -> None:
        whole = b"".join(texts)  # type: ignore[arg-type]
        try:
            self.step("write")
        except OSError:
            if not self.is_off or self.steps == self.last:
                super().write(file, [whole[: len(whole) // 2]])
            raise
        super().write(file, [whole])

    def truncate(self, file: int, size: int) -> None:
        self.step("truncate")
        super().truncate(file, size)

    def chmod(self, file: int, mode: int) -> None:
        self.step("chmod")
        super().chmod(file, mode)

    def sync(self, file: int) -> None:
        self.step("sync")

    def sync_folder(self) -> None:
        self.step("sync_folder")

    def rename(self, old: str, new: str) -> None:
        self.step("rename")
        super().rename(old, new)

    def link(self, old: str, new: str) -> None:
        self.step("link")
        super().link(old, new)

    def unlink(self, name: str) -> None:
        self.step("unlink")
        super().unlink(name)


class LossyDisk(StepDisk):
    """A disk that also knows what would be left after a power failure: nothing but what was synced.

    `lossy_names` tells whether names given since the last sync of the folder are lost, too; otherwise they are there
    and only contents are missing, which is the other end of what file systems do.
    """

    def __init__(self, path: Path, last: int | None = None) -> None:
        super().__init__(path, last)
        self._inodes: dict[int, int] = {}
        self._synced: dict[int, bytes] = {}
        self._names: dict[str, int] = {}
        for name in os.listdir(path.parent):
            inode = os.stat(path.parent / name).st_ino
            self._names[name] = inode
            self._synced[inode] = (path.parent / name).read_bytes()

    def create(self, name: str, mode: int) -> int:
        return self._known(super().create(name, mode), is_new=True)

    def open(self, name: str, flags: int = os.O_RDWR, mode: int = 0o600) -> int:
        return self._known(super().open(name, flags, mode))

    def _known(self, file: int, *, is_new: bool = False) -> int:
        inode = os.fstat(file).st_ino
        self._inodes[file] = inode
        if is_new or inode not in self._synced:
            self._synced[inode] = b""  # Inode numbers are used again.
        return file

    def sync(self, file: int) -> None:
        super().sync(file)
        size = os.fstat(file).st_size
        reader = os.open(f"/proc/self/fd/{file}", os.O_RDONLY)
        try:
            self._synced[self._inodes[file]] = os.pread(reader, size, 0)
        finally:
            os.close(reader)

    def sync_folder(self) -> None:
        super().sync_folder()
        self._names = self._present()

    def _present(self) -> dict[str, int]:
        return {name: os.stat(self.path.parent / name).st_ino for name in os.listdir(self.path.parent)}

    def left_after_power_failure(self, folder: Path, *, lossy_names: bool) -> None:
        """Put what is left into another folder."""
        for name, inode in (self._names if lossy_names else self._present()).items():
            (folder / name).write_bytes(self._synced[inode])


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


async def quietly(work: Awaitable[None]) -> None:
    try:
        await work
    except StoreFailed:
        return


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
