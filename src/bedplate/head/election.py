"""Which of several heads on one store is the active one.

In: a store, and who this head is. Out: whether it is active, and who is otherwise. One record of the store names the
active head, which renews it; a head that has not seen it change for a whole lease takes its place,
by compare-and-set. No clock but one's own monotonic one is trusted. An active head that could not write the record
within the renew time stops being one; as that is shorter than the lease, it has stopped before another begins.

The election keeps clients with one head. That no commit is lost or made twice does not hang on it: each commit must
find its number free, whoever writes it (`service`).
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from bedplate.core import errors
from bedplate.core.backoff import jitter
from bedplate.core.clock import Clock, SystemClock, rfc3339
from bedplate.core.logging import get_logger
from bedplate.head.service import NotActive
from bedplate.store.interface import CompareFailed, Entry, OutcomeUnknown, Put, Store

__all__ = ["ACTIVE", "Candidate", "Election", "Record", "Timing", "may_take"]

ACTIVE: Final = "/head/active"
_LOG = get_logger("head.election")
_JITTER = 0.2


class Candidate(NamedTuple):
    """A head: an identity of this process, its head node's name, and where clients reach it."""

    identity: str
    name: str
    url: str


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the store says. `beat` grows with each renewal, `term` with each change of the holder."""

    identity: str
    name: str = ""
    url: str = ""
    lease_s: float = 0.0
    since: str = ""
    term: int = 0
    beat: int = 0


@dataclass(frozen=True, slots=True)
class Timing:
    """After `renew_s` without success the active head steps back; after `lease_s` of silence another takes over."""

    lease_s: float = 4.0
    renew_s: float = 2.7
    retry_s: float = 0.8

    def __post_init__(self) -> None:
        if not 0 < self.retry_s * (1 + _JITTER) < self.renew_s < self.lease_s:
            raise errors.Invalid("an election needs retry < renew < lease", hint=f"{self} violates that")

    @classmethod
    def of(cls, lease_s: float) -> Timing:
        """The times that go with a lease, as the usual ones do."""
        usual = cls()
        share = lease_s / usual.lease_s
        return cls(lease_s, usual.renew_s * share, usual.retry_s * share)


def may_take(record: Record | None, seen_at: float, now: float, own: str) -> bool:
    """Whether `own` may write itself into the record, which was first seen as it is at `seen_at`."""
    if record is None or not record.identity or record.identity == own:
        return True
    return now >= seen_at + record.lease_s


class Election:
    """One candidate. `run` takes part until cancelled, and then gives the place back."""

    def __init__(
        self,
        store: Store,
        own: Candidate,
        *,
        timing: Timing | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._store = store
        self._own = own
        self._timing = timing or Timing()
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self._record: Record | None = None
        self._entry: Entry | None = None
        self._seen_at = 0.0
        self._renewed_at: float | None = None
        self._was_active = False
        self.trouble = ""
        self.decided = asyncio.Event()
        """Set once it is known who is active."""

    @property
    def is_active(self) -> bool:
        """Whether it is certain, at this very moment, that this head is the active one."""
        return self._renewed_at is not None and self._clock.monotonic() < self._renewed_at + self._timing.renew_s

    @property
    def active_name(self) -> str:
        return self._record.name if self._record is not None and self._record.identity else ""

    @property
    def active_url(self) -> str:
        if self._record is None or not self._record.identity:
            return ""
        if self._record.identity == self._own.identity:
            # Its own record, but no longer certain: nobody is known to be active.
            return self._own.url if self.is_active else ""
        return self._record.url

    @property
    def term(self) -> int:
        """How often the active head changed."""
        return self._record.term if self._record is not None else 0

    def refuse_writes(self) -> None:
        if not self.is_active:
            is_own = self._record is not None and self._record.identity == self._own.identity
            raise NotActive("" if is_own else self.active_name, self.active_url)

    async def run(self) -> None:
        """Take part until cancelled."""
        try:
            while True:
                await self._try()
                self._tell()
                await self._clock.sleep(jitter(self._timing.retry_s, _JITTER, self._rng))
        finally:
            self._renewed_at = None
            await self._release()
            self._tell()

    async def _try(self) -> None:
        started = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._timing.renew_s):
                is_won = await self._attempt()
        except (errors.BedplateError, TimeoutError) as err:
            self.trouble = await self._named(err)
            _LOG.warning("head.election_attempt_failed", error=self.trouble)
            return
        self.trouble = ""
        # Counted from before the write: the record may be as old as that.
        self._renewed_at = started if is_won else None
        self.decided.set()

    async def _named(self, err: Exception) -> str:
        """What is wrong with the store, as it says itself when it is asked."""
        try:
            async with asyncio.timeout(self._timing.renew_s):
                await self._store.check()
        except (errors.BedplateError, TimeoutError) as fault:
            err = fault
        return str(err) or "the store does not answer in time"

    async def _attempt(self) -> bool:
        self._observe(await self._store.get(ACTIVE))
        now = self._clock.monotonic()
        if not may_take(self._record, self._seen_at, now, self._own.identity):
            return False
        return await self._write(self._next())

    def _next(self) -> Record:
        old, own = self._record, self._own
        if old is not None and old.identity == own.identity:
            return msgspec.structs.replace(old, beat=old.beat + 1)
        term = old.term + 1 if old is not None else 1
        since = rfc3339(self._clock.now())
        return Record(own.identity, own.name, own.url, self._timing.lease_s, since, term)

    async def _write(self, record: Record) -> bool:
        """Whether the record is the store's now; somebody quicker has won."""
        value, expect = msgspec.json.encode(record), self._entry.revision if self._entry is not None else 0
        try:
            at = await self._store.commit([Put(ACTIVE, value, expect=expect)])
        except (CompareFailed, OutcomeUnknown):
            self._observe(await self._store.get(ACTIVE))
            return self._record == record
        self._observe(Entry(ACTIVE, value, at, at))
        return True

    def _observe(self, entry: Entry | None) -> None:
        if entry is None:
            self._entry = self._record = None
            return
        if self._entry is None or entry.revision != self._entry.revision:
            self._entry, self._seen_at = entry, self._clock.monotonic()
            self._record = _decoded(entry)

    async def _release(self) -> None:
        """Leave the place free at once. If that fails, it becomes free by itself."""
        if self._record is None or self._record.identity != self._own.identity:
            return
        try:
            async with asyncio.timeout(self._timing.retry_s):
                await self._write(Record("", term=self._record.term))
        except (errors.BedplateError, TimeoutError) as err:
            _LOG.v(2).info("head.election_not_released", error=str(err) or "timed out")

    def _tell(self) -> None:
        if self.is_active != self._was_active:
            self._was_active = self.is_active
            what = "head.became_active" if self.is_active else "head.became_passive"
            _LOG.info(what, name=self._own.name, url=self._own.url, active=self.active_name, term=self.term)


def _decoded(entry: Entry) -> Record:
    try:
        return msgspec.json.decode(entry.value, type=Record)
    except msgspec.DecodeError as err:
        raise errors.Invalid(f"the record {entry.key} cannot be read: {err}", hint="delete that key") from err
