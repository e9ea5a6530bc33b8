"""Whether this head has room for the connections of its nodes.

In: how many files and connections the process has open and may have, how many devices there are. Out: a line in the log
and a notice while there is too little room, and another one when there is enough again. An event loop without a file
descriptor left closes new connections without a word: nodes would seem to be down, and nothing would say why.
`shortage` decides, and is pure.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from bedplate.core import errors, openfiles
from bedplate.core.clock import Clock
from bedplate.core.logging import get_logger
from bedplate.core.openfiles import Usage
from bedplate.head.notices import Notices
from bedplate.head.service import Head

__all__ = ["Room", "Shortage", "shortage"]

_LOG = get_logger("head.room")
_LOOK_S = 30.0
_OWN = 200
"""What the head has open for itself: its store, pages, transfers, other heads."""
_EACH = 2
"""An agent's poll, and its reports."""
_FULL, _ENOUGH = 0.9, 0.8
_REMEDY = "raise LimitNOFILE= of bedplate-head.service (ulimit -n in a shell) to {needed}, and restart it"


class Shortage(NamedTuple):
    """Too little room: `full` when connections are about to be refused, `small` when they will be once all are here."""

    kind: Literal["full", "small"]
    text: str


def shortage(usage: Usage, devices: int, *, is_full: bool = False) -> Shortage | None:
    """What there is too little of, and what to do; `is_full`: whether that was so when somebody last looked."""
    needed = _EACH * devices + _OWN
    share = _ENOUGH if is_full else _FULL
    if usage.opened >= share * usage.limit:
        remedy = _REMEDY.format(needed=max(needed, 2 * usage.limit))
        text = (
            f"This head has {usage.opened} of {usage.limit} files and connections open, and refuses further ones soon"
        )
        return Shortage("full", f"{text}: {remedy}")
    if needed > usage.limit:
        text = f"This head may have {usage.limit} files and connections open, and {devices} devices need about {needed}"
        return Shortage("small", f"{text}: {_REMEDY.format(needed=needed)}")
    return None


class Room:
    """Looks now and then; `run` until cancelled."""

    def __init__(self, head: Head, notices: Notices, name: str, *, clock: Clock) -> None:
        self._head = head
        self._notices = notices
        self._name = name
        self._clock = clock
        self._told: Literal["", "full", "small"] = ""

    async def run(self) -> None:
        while True:
            await self.look()
            await self._clock.sleep(_LOOK_S)

    async def look(self) -> None:
        """Tell what has changed since the last look."""
        usage = openfiles.usage()
        lack = shortage(usage, len(self._head.tree.mode("device")), is_full=self._told == "full")
        kind: Literal["", "full", "small"] = lack.kind if lack is not None else ""
        if kind == self._told:
            return
        self._told = kind
        if lack is not None:
            _LOG.warning("head.room", open=usage.opened, limit=usage.limit, next=lack.text)
            await self._tell(lack.text, is_bad=True)
        else:
            _LOG.info("head.room", open=usage.opened, limit=usage.limit)
            await self._tell(f"This head has room for connections again ({usage.opened} of {usage.limit} are open)")

    async def _tell(self, text: str, *, is_bad: bool = False) -> None:
        if not self._head.standing.is_active:
            return
        try:
            await self._notices.add(self._name, text, "warning" if is_bad else "notice")
        except (errors.BedplateError, OSError) as err:
            # Without a descriptor left the store may fail, too; the log has it.
            _LOG.v(2).info("head.room_untold", error=str(err))
