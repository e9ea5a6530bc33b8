"""Who has which address: the only place that chooses one.

In: owners, what they want, and a store's path. Out: reservations that are on the disk when they are returned. One
event loop owns the memory; `commits.py` makes batches of changes durable. It knows no pods and no API server: which
reservations are dead is decided by the caller.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from bedplate.core.clock import Clock
from bedplate.core.logging import get_logger
from bedplate.ipam import addresses
from bedplate.ipam.addresses import Address
from bedplate.ipam.node import journal, poolconfig, storefile, storeload
from bedplate.ipam.node.book import Book, PoolPage, free_set
from bedplate.ipam.node.commits import WHOLE_BELOW, Commit, Committer, Step, undo
from bedplate.ipam.node.disk import Disk, take_locks
from bedplate.ipam.node.poolconfig import PoolConfig
from bedplate.ipam.node.reservations import (
    AlreadyReserved,
    Exhausted,
    Owner,
    Proven,
    Refused,
    Reservation,
    StaticIPCheck,
    StoreFailed,
    Usage,
    Wanted,
    choose_static,
    foreign_node,
    key_of,
)
from bedplate.ipam.node.storage import Storage
from bedplate.ipam.node.storefile import Entry, PoolRecord
from bedplate.ipam.node.storeload import Recovery

__all__ = ["Ledger", "LedgerOptions", "Recovery", "timestamp"]

log = get_logger("ipam.node.ledger")


class LedgerOptions(msgspec.Struct, frozen=True):
    """How a ledger behaves."""

    static_ip_check: StaticIPCheck = StaticIPCheck.WARN
    on_foreign: Callable[[str, Address, str], None] | None = None
    """Called when an address is given that lies in another node's block (pool key, address, that node)."""
    on_commit: Callable[[Commit], None] | None = None
    """Called after every batch that was written."""
    wall_ns: Callable[[], int] = time.time_ns
    whole_below: int = WHOLE_BELOW
    """Bytes of a store file up to which every batch rewrites it."""


_DEFAULTS = LedgerOptions()


def timestamp(nanoseconds: int) -> str:
    """A time as the original writes it: local, with as many digits as it has, up to nine."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    local = time.localtime(seconds)
    offset = local.tm_gmtoff // 60
    zone = "Z" if offset == 0 else f"{'-' if offset < 0 else '+'}{abs(offset) // 60:02d}:{abs(offset) % 60:02d}"
    fraction = f".{rest:09d}".rstrip("0").rstrip(".")
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', local)}{fraction}{zone}"


class Ledger:
    """The reservations of a node."""

    def __init__(self, disk: Disk, storage: Storage, book: Book, clock: Clock, options: LedgerOptions) -> None:
        self._disk, self._storage, self._book, self._options = disk, storage, book, options
        self._commits = Committer(book, storage, clock, options.whole_below, options.on_commit)
        self._is_closed = False
        self.recovery: Recovery | None = None
        """Something acknowledged may be missing: give no address before `adopt`. It survives a restart."""

    @classmethod
    async def open(
        cls, path: Path, *, clock: Clock, options: LedgerOptions = _DEFAULTS, disk: Disk | None = None
    ) -> Ledger:
        """Lock, load and repair the store. Raises `StoreBusy` or `StoreFailed` with what to do next."""
        disk = disk or Disk(path)

        def stamp() -> str:
            return clock.now().strftime("%Y%m%dT%H%M%SZ")

        opened = asyncio.get_running_loop().run_in_executor(None, _open, disk, stamp)
        try:
            storage, book, loaded = await asyncio.shield(opened)
        except asyncio.CancelledError:
            # Nobody else knows of the locks that are taken meanwhile.
            opened.add_done_callback(_let_go)
            raise
        ledger = cls(disk, storage, book, clock, options)
        ledger.recovery = loaded
        ledger._commits.start(is_behind=storage.has_journal)
        return ledger

    async def allocate(self, owner: Owner, requests: Iterable[Wanted]) -> list[Reservation]:
        """One address of each pool, all or nothing. Returns when they are on the disk.

        A request is asked for when those before it could be met.
        """
        steps: list[Step] = []
        reservations: list[Reservation] = []
        requested: set[Address] = set()
        try:
            for request in requests:
                reservations.append(self._reserve(owner, request, steps))
                requested.update(request.requested)
            for address in requested:
                if all(reservation.address != str(address) for reservation in reservations):
                    raise Refused(f"the requested address {address} is not in any pool on this node")
        except BaseException:
            undo(steps)
            raise
        await self._commits.commit(steps)
        return reservations

    def _reserve(self, owner: Owner, request: Wanted, steps: list[Step]) -> Reservation:
        config = request.config
        static = choose_static(request, self._options.static_ip_check)
        key = key_of(owner.container_id, owner.interface_name)
        page = self._book.pages.get(config.key) or PoolPage(config.key, PoolRecord(config.key))
        if key in page.entries:
            raise AlreadyReserved(
                f"interface {owner.interface_name} of container {owner.container_id} has the address "
                f"{page.entries[key].address} in pool {config.key} already",
                pool=config.key,
            )
        if static is None:
            address = _next_address(page, config)
            return self._enter(page, owner, config, address, str(address), steps)
        self._check_static(page, request, static)
        # The rotation goes on where it was.
        return self._enter(page, owner, config, static, page.pointer, steps)

    def _check_static(self, page: PoolPage, request: Wanted, address: Address) -> None:
        node = foreign_node(request, address, self._options.static_ip_check)
        if address in page.held:
            raise Exhausted(f"{address} of pool {page.key} is already reserved", pool=page.key)
        if node is not None:
            log.warning("ledger.foreign_address", pool=page.key, address=str(address), node=node)
            if self._options.on_foreign is not None:
                self._options.on_foreign(page.key, address, node)

    def _enter(
        self, page: PoolPage, owner: Owner, config: PoolConfig, address: Address, pointer: str, steps: list[Step]
    ) -> Reservation:
        reservation = Reservation(
            config.key,
            owner.container_id,
            owner.interface_name,
            str(address),
            timestamp(self._options.wall_ns()),
            owner.pod_uid,
            owner.pod_name,
            owner.pod_namespace,
            owner.device_id,
            config.document,
        )
        key, pages = key_of(owner.container_id, owner.interface_name), self._book.pages
        entry = Entry(reservation, storefile.encode_entry(key, reservation))
        is_new, before = config.key not in pages, (page.pointer, page.config)

        def strike() -> None:
            page.remove(key)
            page.pointer, page.config = before
            if is_new:
                del pages[config.key]

        pages[config.key] = page
        page.add(key, entry, address)
        page.pointer, page.config = pointer, config.document
        steps.append((functools.partial(journal.add, config.key, pointer, entry.text), strike))
        return reservation

    async def release(self, container_id: str, interface_name: str, pools: Collection[str] | None = None) -> int:
        """Free the interface's addresses in these pools (None: in all); how many there were."""
        reservations = (
            self.find(pool, container_id, interface_name) for pool in (self._book.pages if pools is None else pools)
        )
        return await self._release([reservation for reservation in reservations if reservation is not None])

    async def release_proven(self, dead: Sequence[Reservation]) -> int:
        """Free those that are still the same; how many they were."""
        return await self._release(
            [
                reservation
                for reservation in dead
                if self.find(reservation.pool, reservation.container_id, reservation.interface_name) == reservation
            ]
        )

    async def _release(self, named: Sequence[Reservation]) -> int:
        reservations = list(dict.fromkeys(named))
        if not reservations:
            # Another call may have freed it just now: it is gone when that is on the disk.
            await self._commits.settled()
            return 0
        pages = self._book.pages
        await self._commits.commit([_strike(pages[reservation.pool], reservation) for reservation in reservations])
        return len(reservations)

    async def forget_pools(self, keys: Collection[str]) -> int:
        """Remove the records of these pools that hold nothing (their rotation goes with them); how many there were."""
        pages = self._book.pages
        empty = [key for key in dict.fromkeys(keys) if key in pages and not pages[key].entries]
        steps: list[Step] = [
            (functools.partial(journal.drop, key), functools.partial(pages.__setitem__, key, pages.pop(key)))
            for key in empty
        ]
        if steps:
            await self._commits.commit(steps)
        return len(steps)

    async def adopt(self, proven: Sequence[Proven]) -> int:
        """Add what pods prove to have after a loss, and end `recovery`; how many were new."""
        steps: list[Step] = []
        for claim in proven:
            config, container = claim.config, claim.container_id or f"recovered-{claim.pod_uid}"
            page = self._book.pages.get(config.key) or PoolPage(config.key, PoolRecord(config.key))
            if claim.address in page.held or key_of(container, claim.interface_name) in page.entries:
                continue
            owner = Owner(
                container, claim.interface_name, claim.pod_uid, claim.pod_name, claim.pod_namespace, claim.device_id
            )
            self._enter(page, owner, config, claim.address, page.pointer, steps)
        if steps:
            await self._commits.commit(steps)
        await asyncio.get_running_loop().run_in_executor(None, self._disk.unlink, self._disk.recovering)
        if self.recovery is not None:
            log.warning("ledger.recovered", added=len(steps), restored=self.recovery.restored)
        self.recovery = None
        return len(steps)

    def find(self, pool: str, container_id: str, interface_name: str) -> Reservation | None:
        """The interface's reservation in that pool."""
        page = self._book.pages.get(pool)
        reservation = page.entries.get(key_of(container_id, interface_name)) if page is not None else None
        if reservation is None or (reservation.container_id, reservation.interface_name) != (
            container_id,
            interface_name,
        ):
            return None
        return reservation

    def reservations(self, pool: str | None = None) -> Iterator[Reservation]:
        """All of them, or those of one pool, as they are now."""
        if pool is None:
            return self._book.reservations()
        page = self._book.pages.get(pool)
        return iter(list(page.entries.values()) if page is not None else ())

    def pools(self) -> Mapping[str, PoolConfig | None]:
        """Every pool with a record, and the configuration it remembers (None: none that can be used)."""
        return {key: poolconfig.read(key, page.config) for key, page in self._book.pages.items()}

    def usage(self, configs: Mapping[str, PoolConfig]) -> dict[str, Usage]:
        """How full each pool is, those of `configs` and those with a record."""
        usages = {}
        for key in {*configs, *self._book.pages}:
            page, config = self._book.pages.get(key), configs.get(key)
            count = len(page.entries) if page is not None else 0
            if config is None:
                usages[key] = Usage(count)
            else:
                free = page.free(config) if page is not None else free_set(config, ())
                usages[key] = Usage(count, free.capacity, free.free)
        return usages

    async def sync(self) -> None:
        """Bring the store file up to date."""
        await self._commits.sync()

    async def close(self) -> None:
        """Write what is outstanding, bring the file up to date, give up the locks."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self._commits.close()
        finally:
            self._storage.release()


def _strike(page: PoolPage, reservation: Reservation) -> Step:
    key = key_of(reservation.container_id, reservation.interface_name)
    entry = page.remove(key)
    address = addresses.parse_address(reservation.address)
    return functools.partial(journal.delete, page.key, key), lambda: page.add(key, entry, address)


def _next_address(page: PoolPage, config: PoolConfig) -> Address:
    bits = config.network.bits
    pointer = addresses.parse_address(page.pointer) if page.pointer else None
    number = page.free(config).after(pointer.value if pointer is not None and pointer.bits == bits else None)
    if number is None:
        raise Exhausted(f"no free address in the node's block of pool {config.key}", pool=config.key)
    return Address(bits, number)


def _let_go(opened: asyncio.Future[tuple[Storage, Book, Recovery | None]]) -> None:
    if opened.exception() is None:
        opened.result()[0].release()


def _renew(storage: Storage, book: Book, *, keeps_previous: bool) -> None:
    """Bring the file up to date, so that the original finds everything from the first moment on."""
    try:
        storage.write_whole(book.text(), book.version, keeps_previous=keeps_previous)
    except OSError as error:
        # What was read is still there to be read: calls are answered, and fail only where they have to write.
        log.error("ledger.store_not_renewed", reason=error.strerror or str(error), hint="check the node's disk")


def _open(disk: Disk, stamp: Callable[[], str]) -> tuple[Storage, Book, Recovery | None]:
    taken = take_locks(disk)
    try:
        loaded = storeload.load(disk, stamp())
        storage, book = Storage(disk, taken, loaded.assessment, stamp), Book(loaded.assessment.document)
        if not loaded.is_current:
            _renew(storage, book, keeps_previous=loaded.assessment.file is not None)
    except OSError as error:
        taken.release()
        disk.release()
        raise StoreFailed(
            f"the store {disk.path} cannot be used: {error.strerror or error}",
            hint=f"check the disk that holds {disk.path.parent}",
        ) from error
    except BaseException:
        taken.release()
        disk.release()
        raise
    return storage, book, loaded.recovery
