"""What several API servers on one etcd agree on: their keys, who gives out addresses, whose controllers run.

In: the store and the registry of one of them. Out: the files every server must have the same (`share_keys`), the
operation that makes an allocation fail when another server has allocated meanwhile (`allocation`), and `while_leading`,
which runs the controllers in one server at a time. A server with a store of its own needs none of it.
"""

from __future__ import annotations

import asyncio
import pathlib
import socket
import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec

from bedplate.apiserver import hooks, services, status
from bedplate.apiserver.access import subjects
from bedplate.apiserver.state import bodies, registry
from bedplate.core import clock as clocks
from bedplate.core import errors, logging
from bedplate.serving.files import write_private
from bedplate.store import interface

__all__ = ["allocation", "share_keys", "while_leading"]

log = logging.get_logger("apiserver.sharing")

KEYS = "/keys"
FILES = ("ca.crt", "ca.key", "service-accounts.key")
ALLOCATIONS: registry.Kind = ("allocation.bedplate", "guards")
"""A kind nobody is served: its one object is rewritten with every allocation."""
_GUARD = bodies.key_of(ALLOCATIONS, "", "services")
_VALUE = b'{"kind":"Guard","apiVersion":"allocation.bedplate/v1","metadata":{"name":"services"}}'
LEASE = "bedplate-controllers"
LEASE_S, RENEW_WITHIN_S, RETRY_S = 15, 10.0, 2.0


async def share_keys(store: interface.Store, folder: pathlib.Path, make: Callable[[], object]) -> None:
    """Have the same authority and token key as the others: theirs if there are any, else those that `make` makes."""
    entry = await store.get(KEYS)
    if entry is None:
        make()
        mine = _read_keys(folder)
        try:
            await store.commit([interface.Put(KEYS, msgspec.json.encode(mine), 0)])
            return
        except interface.CompareFailed:
            entry = await store.get(KEYS)
    assert entry is not None, "the keys are written once and never removed"
    _write_keys(folder, entry.value)


def _read_keys(folder: pathlib.Path) -> dict[str, str]:
    return {name: (folder / name).read_text() for name in FILES}


def _write_keys(folder: pathlib.Path, value: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, text in msgspec.json.decode(value, type=dict[str, str]).items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            write_private(path, text.encode())
            # Certificates of another authority are of no use: without this file they are generated again.
            (folder / "state.json").unlink(missing_ok=True)


def allocation(state: registry.Registry) -> list[interface.Op]:
    """To be committed with what was allocated from memory: fails if memory did not hold all that is given out."""
    if not state.is_shared:
        return []
    known = state.get(ALLOCATIONS, "", "services")
    return [interface.Put(_GUARD, _VALUE, known.revision if known is not None else 0)]


async def while_leading(parts: services.Services, work: Callable[[], Awaitable[None]]) -> None:
    """Run the work, in one server at a time where several share a store; until cancelled."""
    if not parts.registry.is_shared:
        await work()
        return
    identity = f"{socket.gethostname()}_{uuid.uuid4()}"
    election = _Election(parts, identity)
    while True:
        await election.acquire()
        log.info("sharing.leading", identity=identity)
        working = asyncio.ensure_future(work())
        try:
            await election.hold(working)
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            await election.release()


class _Election:
    """One server's part in the contest for the controllers' Lease."""

    def __init__(self, parts: services.Services, identity: str) -> None:
        self._client = parts.client.acting_as(subjects.LOOPBACK, "bedplate-election")
        self._clock = parts.clock
        self._identity = identity
        self._seen: tuple[str, float] = ("", 0.0)

    async def acquire(self) -> None:
        while not await self._try():
            await self._clock.sleep(RETRY_S)

    async def hold(self, working: asyncio.Future[None]) -> None:
        """Renew until that fails for too long, or the work ends."""
        renewed = self._clock.monotonic()
        while self._clock.monotonic() - renewed < RENEW_WITHIN_S and not working.done():
            await self._clock.sleep(RETRY_S)
            if await self._try():
                renewed = self._clock.monotonic()
            elif self._is_lost():
                return
        if working.done():
            working.result()

    def _is_lost(self) -> bool:
        lease = self._lease()
        return lease is not None and lease["spec"].get("holderIdentity") != self._identity

    async def release(self) -> None:
        lease = self._lease()
        if lease is not None and lease["spec"].get("holderIdentity") == self._identity:
            lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
            try:
                async with asyncio.timeout(RETRY_S):
                    await self._client.update("coordination.k8s.io", "leases", lease)
            except (status.StatusError, errors.BedplateError, TimeoutError):
                pass  # it runs out by itself

    def _lease(self) -> hooks.Object | None:
        return self._client.get("coordination.k8s.io", "leases", "kube-system", LEASE)

    async def _try(self) -> bool:
        """Take or renew the Lease; whether it is ours now."""
        try:
            async with asyncio.timeout(RETRY_S):
                return await self._write()
        except (status.StatusError, errors.BedplateError, TimeoutError) as err:
            log.v(2).info("sharing.not_leading", reason=str(err))
            return False

    async def _write(self) -> bool:
        lease, now = self._lease(), self._clock.now()
        moment = clocks.rfc3339_micro(now)
        spec = {"holderIdentity": self._identity, "leaseDurationSeconds": LEASE_S, "renewTime": moment}
        if lease is None:
            meta = {"name": LEASE, "namespace": "kube-system"}
            await self._client.create("coordination.k8s.io", "leases", {"metadata": meta, "spec": spec})
            return True
        if self._is_held(lease):
            return False
        await self._client.update("coordination.k8s.io", "leases", lease | {"spec": lease["spec"] | spec})
        return True

    def _is_held(self, lease: hooks.Object) -> bool:
        """Whether another has it: named in it, and seen to renew it within its duration by our own clock."""
        holder, version = lease["spec"].get("holderIdentity"), lease["metadata"]["resourceVersion"]
        if not holder or holder == self._identity:
            return False
        now = self._clock.monotonic()
        if self._seen[0] != version:
            self._seen = (version, now)
        life = timedelta(seconds=lease["spec"].get("leaseDurationSeconds", LEASE_S))
        return now - self._seen[1] < life.total_seconds()
