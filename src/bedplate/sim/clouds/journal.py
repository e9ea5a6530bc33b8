"""What a simulated cloud was asked: for tests that count calls, and for people who watch.

In: one entry per answered request. Out: counts by operation and status, the last entries.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

__all__ = ["Entry", "Journal"]

KEPT = 20_000


@dataclass(frozen=True, slots=True)
class Entry:
    """One request; `status` is 0 when no answer was sent (a fault hung or reset the connection)."""

    at: float
    operation: str
    method: str
    path: str
    status: int
    fault: str = ""


class Journal:
    """Counts everything, keeps the last entries."""

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque(maxlen=KEPT)
        self.by_operation: Counter[str] = Counter()
        self.by_status: Counter[int] = Counter()

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.by_operation[entry.operation] += 1
        self.by_status[entry.status] += 1

    def count(self, operation: str = "") -> int:
        """Requests so far, of one operation or of all."""
        return self.by_operation[operation] if operation else self.by_operation.total()

    def of(self, operation: str) -> list[Entry]:
        """The kept entries of an operation, oldest first."""
        return [entry for entry in self.entries if entry.operation == operation]

    def reset(self) -> None:
        """Forget everything."""
        self.entries.clear()
        self.by_operation.clear()
        self.by_status.clear()
