"""How a rehearsal went, for people. Pure.

In: the stages of the lab's upgrade, as its journal has them, and what the client that wrote meanwhile counted. Out: a
line for each stage with its state and its time, one about the writes, and whether the rehearsal succeeded: every stage
is done, and no write was lost. Retries are told and decide nothing: with one control plane node they are expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from bedplate.setup.engine.journal import StageRecord

__all__ = ["Outcome", "Writes"]

_STATES = {"done": "ok", "pending": "not run"}
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Writes:
    """What the client counted. `lost` is None where nobody could look."""

    written: int = 0
    retries: tuple[str, ...] = ()
    lost: tuple[str, ...] | None = ()
    slowest_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The upgrade of the lab; `originals` are the nodes that those of the lab stand for."""

    stages: Sequence[StageRecord]
    writes: Writes
    planes: int
    originals: Mapping[str, str]

    @property
    def is_good(self) -> bool:
        is_done = bool(self.stages) and all(stage.state == "done" for stage in self.stages)
        return is_done and self.writes.lost == () and self.writes.written > 0

    def lines(self) -> Iterable[str]:
        for stage in self.stages:
            original = self.originals.get(stage.name.rpartition(" ")[2])
            why = f": {stage.error}" if stage.error else ""
            state = _STATES.get(stage.state, "failed")
            yield f"{state:<8}{_took(stage):>8}  {stage.name}{f' (for {original})' if original else ''}{why}"
        writes, lost = self.writes, self.writes.lost
        # A server that is away refuses the same write many times: the first answer says why.
        retried: dict[str, str] = {}
        for text in writes.retries:
            retried.setdefault(text.split(" ")[1], text)
        told = "nobody could look whether one is lost" if lost is None else f"{len(lost)} lost"
        yield (
            f"Writes through the proxy: {writes.written}, {told}; {len(writes.retries)} retries of {len(retried)} of "
            f"them with {self.planes} control plane node{'s' * (self.planes != 1)}; "
            f"the slowest took {writes.slowest_s:.1f} s"
        )
        yield from (f"  lost: {name}" for name in (lost or ())[:_SHOWN])
        yield from (f"  retried: {text}" for text in list(retried.values())[:_SHOWN])
        if len(retried) > _SHOWN:
            yield f"  and {len(retried) - _SHOWN} more writes that were retried"


def _took(stage: StageRecord) -> str:
    if not stage.began or not stage.ended:
        return ""
    took = datetime.fromisoformat(stage.ended) - datetime.fromisoformat(stage.began)
    return f"{took.total_seconds():.1f} s"
