"""The store on etcd v3 (3.5.8 or later), for those who outgrow one machine.

In: commits, reads and watches. Out: etcd's own revisions: other users of the same etcd make them grow too, so they
are ascending but not dense. Reads are linearizable. A commit is one transaction; when its outcome cannot be known it
raises `OutcomeUnknown` and is not repeated, and `StoreFull` says that nothing was written. etcd's limits apply (by
default 128 keys and 1.5 MiB per commit).
"""

from __future__ import annotations

import asyncio
import random
import weakref
from collections.abc import Sequence

from bedplate.core import errors
from bedplate.core.backoff import Backoff
from bedplate.core.clock import Clock, SystemClock
from bedplate.store import interface
from bedplate.store.etcd.members import Connection, EtcdOptions, Failed
from bedplate.store.etcd.translate import Translator, Verdict
from bedplate.store.etcd.watch import Watch
from bedplate.store.etcdpb import bedplate_etcd_pb2 as pb
from bedplate.store.interface import Compacted, Entry, FutureRevision, Op, OutcomeUnknown, Page, Put, StoreFull

__all__ = ["EtcdStore"]

_KEYS_PER_REQUEST = 2000
_CHECK_S = 2.0


class EtcdStore:
    """A `Store` below one prefix of an etcd. It refuses requests of more than 128 operations or 1.5 MiB by default."""

    most_ops = 62

    def __init__(self, options: EtcdOptions, *, clock: Clock | None = None, rng: random.Random | None = None) -> None:
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self._connection = Connection(options, self._clock, self._rng)
        self._translator = Translator(options.prefix)
        self._watches: weakref.WeakSet[Watch] = weakref.WeakSet()
        self._oldest = 1

    async def __aenter__(self) -> EtcdStore:
        try:
            await self._connection.open()
            await self.revision()
        except BaseException:
            await self._connection.close()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        closed = errors.Unavailable("the store is closed")
        for watch in list(self._watches):
            watch.closed = closed
            await watch.aclose()
        await self._connection.close()

    async def revision(self) -> int:
        return (await self._range(pb.RangeRequest(key=self._translator.key("\x00"), keys_only=True))).header.revision

    async def check(self) -> None:
        try:
            async with asyncio.timeout(_CHECK_S):
                await self.revision()
        except (errors.Unavailable, TimeoutError) as err:
            raise await self._connection.without_quorum() or err from err

    async def get(self, key: str, *, revision: int = 0) -> Entry | None:
        interface.check_key(key)
        answer = await self._range(pb.RangeRequest(key=self._translator.key(key), revision=revision))
        return self._translator.entry(answer.kvs[0]) if answer.kvs else None

    async def list(self, prefix: str, *, revision: int = 0, limit: int = 0, after: str = "") -> Page:
        low, end = self._translator.bounds(prefix, after)
        entries: list[Entry] = []
        at = revision
        while True:
            # A long list is read in parts of one revision, so that no message grows without bound.
            page_size = min(limit - len(entries), _KEYS_PER_REQUEST) if limit else _KEYS_PER_REQUEST
            try:
                answer = await self._range(pb.RangeRequest(key=low, range_end=end, limit=page_size, revision=at))
            except Compacted:
                if at == revision:
                    raise
                return await self.list(prefix, revision=revision, limit=limit, after=after)
            at = at or answer.header.revision
            entries += [self._translator.entry(pair) for pair in answer.kvs]
            if not answer.more or len(entries) == limit:
                return Page(entries, at, answer.more, answer.count - len(answer.kvs))
            low = answer.kvs[-1].key + b"\x00"

    async def commit(self, ops: Sequence[Op]) -> int:
        interface.check_ops(ops)
        if not ops:
            return await self.revision()
        request = self._translator.transaction(ops)
        try:
            answer = await self._connection.ask("/etcdserverpb.KV/Txn", request, pb.TxnResponse, writes=True)
        except StoreFull as full:
            # etcd looks at its quota before it takes a transaction and again after it applied it, with one answer.
            if await self._may_be_written(ops):
                raise OutcomeUnknown(f"{full}; this write may still have been done", hint=full.hint) from full
            raise
        if not answer.succeeded:
            raise self._translator.refusal(ops, answer)
        return answer.header.revision

    async def _may_be_written(self, ops: Sequence[Op]) -> bool:
        """Whether the first key that a refused commit wrote looks as if the commit had been applied."""
        put = next((op for op in ops if isinstance(op, Put)), None)
        if put is None:
            return False
        entry = await self.get(put.key)
        if entry is not None and entry.value == put.value:
            return entry.revision != put.expect
        return put.expect is not None and put.expect != (entry.revision if entry is not None else 0)

    def watch(self, prefix: str, *, after: int) -> Watch:
        backoff = Backoff(first_s=0.05, cap_s=5.0, rng=self._rng)
        watch = Watch(self._connection, self._translator, self._clock, backoff, prefix, after, self._confirm)
        self._watches.add(watch)
        return watch

    async def compact(self, revision: int) -> None:
        if revision <= self._oldest:
            return
        try:
            await self._connection.ask(
                "/etcdserverpb.KV/Compact", pb.CompactionRequest(revision=revision), pb.CompactionResponse
            )
        except Failed as failed:
            if failed.verdict is Verdict.FUTURE:
                raise FutureRevision(revision, await self.revision()) from None

    async def oldest(self) -> int:
        """etcd does not tell: found by bisection, from the last answer upwards, one small read per step."""
        low = self._oldest
        if await self._is_readable(low):
            return low
        high = await self.revision()
        while high - low > 1:
            middle = (low + high) // 2
            if await self._is_readable(middle):
                high = middle
            else:
                low = middle
        self._oldest = high
        return high

    async def sync(self) -> int:
        """Wait until the readers of all open watches have dealt with everything up to now; the revision of now."""
        now = await self.revision()
        await asyncio.gather(*(watch.reach(now) for watch in list(self._watches)))
        return now

    async def _confirm(self, revision: int) -> None:
        if revision < self._oldest or (revision > 0 and not await self._is_readable(revision)):
            raise Compacted(revision, await self.oldest())

    async def _is_readable(self, revision: int) -> bool:
        request = pb.RangeRequest(key=self._translator.key("\x00"), revision=revision, keys_only=True)
        try:
            await self._connection.ask("/etcdserverpb.KV/Range", request, pb.RangeResponse)
        except Failed as failed:
            return failed.verdict is not Verdict.COMPACTED
        return True

    async def _range(self, request: pb.RangeRequest) -> pb.RangeResponse:
        try:
            return await self._connection.ask("/etcdserverpb.KV/Range", request, pb.RangeResponse)
        except Failed as failed:
            if failed.verdict is Verdict.FUTURE:
                raise FutureRevision(request.revision, await self.revision()) from None
            raise Compacted(request.revision, await self.oldest()) from None
