"""Failed sign-ins by address: how long the next answer is delayed, and when administrators are notified.

In: failures with the address they came from. Out: a delay for the answer, and a notice each time the failures of an
address within a minute have doubled. A success is never delayed; memory is bounded, however many addresses there are.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.core.logging import get_logger
from bedplate.head.notices import Notices

__all__ = ["Failures"]

_LOG = get_logger("head.access")
_WITHIN_S = 60.0
_FREE = 5
_FIRST_S = 0.5
_MOST_ADDRESSES = 10_000
_MOST_TIMES = 1000


class Failures:
    """What failed lately, by address."""

    def __init__(self, notices: Notices, host: str, clock: Clock, *, longest_s: float) -> None:
        self._notices = notices
        self._host = host
        self._clock = clock
        self._longest_s = longest_s
        self._times: OrderedDict[str, deque[float]] = OrderedDict()
        self._notified: dict[str, int] = {}

    async def slow(self, address: str) -> None:
        """Note a failure, and return when it may be answered."""
        count = self._note(address)
        if count >= max(_FREE, 2 * self._notified.get(address, 0)):
            self._notified[address] = count
            await self._notify(address, count)
        if count > _FREE:
            await self._clock.sleep(min(_FIRST_S * 2.0 ** min(count - _FREE - 1, 16), self._longest_s))

    def _note(self, address: str) -> int:
        now = self._clock.monotonic()
        times = self._times.setdefault(address, deque(maxlen=_MOST_TIMES))
        self._times.move_to_end(address)
        while times and times[0] < now - _WITHIN_S:
            times.popleft()
        if not times:
            self._notified.pop(address, None)
        times.append(now)
        while len(self._times) > _MOST_ADDRESSES:
            oldest, _ = self._times.popitem(last=False)
            self._notified.pop(oldest, None)
        return len(times)

    async def _notify(self, address: str, count: int) -> None:
        try:
            await self._notices.add(
                self._host, f"{count} failed sign-ins from {address} within the last minute", "warning"
            )
        except errors.BedplateError as err:
            _LOG.warning("head.sign_ins_not_notified", remote=address, failures=count, error=str(err))
