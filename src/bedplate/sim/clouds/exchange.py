"""One request and its answer, as the simulated clouds' handlers see them, and the journal of all: plain values.

In: what `server` has read from the wire. Out: a `Reply` that `server` (or a fault) puts on the wire; in the journal
counts by operation and status, and the last entries, for tests that count calls and for people who watch. Handlers
raise `Refused` to answer with one of their cloud's errors.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import msgspec
from multidict import MultiMapping

__all__ = [
    "JSON",
    "NO_CODE",
    "Entry",
    "Handler",
    "Journal",
    "Refused",
    "Reply",
    "Request",
    "Route",
    "Routes",
    "encode",
    "json_reply",
]

JSON = "application/json"
NO_CODE = "-"
"""As the `code` of a refusal: this error has none, not even the usual one of its status."""
encode = msgspec.json.Encoder().encode
KEPT = 20_000


@dataclass(slots=True)
class Request:
    """A request; `stale_s` and `dropped` are what faults have done to the lists it will see."""

    method: str
    path: str
    query: MultiMapping[str]
    headers: Mapping[str, str]
    body: bytes = b""
    operation: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    request_id: str = ""
    stale_s: float = 0.0
    dropped: tuple[Callable[[str], bool], ...] = ()

    def is_dropped(self, name: str) -> bool:
        """Whether a fault hides the machine of this name from lists."""
        return any(drops(name) for drops in self.dropped)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer; `body` is sent as it is."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    def with_headers(self, headers: Mapping[str, str]) -> Reply:
        return dataclasses.replace(self, headers={**self.headers, **headers})


def json_reply(status: int, value: Any, headers: Mapping[str, str] | None = None) -> Reply:
    """An answer with a JSON body."""
    return Reply(status, encode(value), headers=headers or {})


class Refused(Exception):
    """The cloud answers with an error; `code` is the API's own word for it, where it has such words."""

    def __init__(
        self, status: int, message: str, *, code: str = "", data: Any = None, retry_after_s: int | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.data = data
        self.retry_after_s = retry_after_s


Handler = Callable[[Request], Reply]


@dataclass(frozen=True, slots=True)
class Route:
    """A method and a path template (`/v1/instances/{instance}`), and what answers there."""

    method: str
    template: str
    operation: str
    handler: Handler
    needs_token: bool = True


class Routes:
    """Finds the route of a request: by method and number of segments, fixed segments before variable ones."""

    def __init__(self, routes: list[Route]) -> None:
        self._table: dict[tuple[str, int], list[tuple[re.Pattern[str], Route]]] = {}
        self._lengths: dict[int, list[re.Pattern[str]]] = {}
        for route in sorted(routes, key=lambda each: each.template.count("{")):
            pattern = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", route.template))
            length = route.template.count("/")
            self._table.setdefault((route.method, length), []).append((pattern, route))
            self._lengths.setdefault(length, []).append(pattern)

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]] | None:
        """The route and the values of its variables; None where there is none."""
        for pattern, route in self._table.get((method, path.count("/")), ()):
            if match := pattern.fullmatch(path):
                return route, {name: unquote(value) for name, value in match.groupdict().items()}
        return None

    def knows(self, path: str) -> bool:
        """Whether the path exists for some method: then a wrong method is a 405, not a 404."""
        return any(pattern.fullmatch(path) for pattern in self._lengths.get(path.count("/"), ()))


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
