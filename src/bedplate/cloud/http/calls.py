"""What a provider asks for and what it gets: values, nothing else.

A `Call` names an operation of the cloud's API; an `Answer` is a success (2xx) with a body that has been decoded and is
of the JSON type the call expects. Everything else is raised, see `errors`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

__all__ = ["Answer", "Call", "Expected", "path_of"]

Expected = Literal["object", "array", "nothing"]
_READS = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Call:
    """One operation. `operation` is its name in metrics and logs (the API document's operationId).

    `path` stands after the endpoint, begins with `/` and is percent-encoded already (`path_of` does it); `query` may
    name a key several times. `body` is sent as JSON. `expects`: an answer of another JSON type is a `Protocol` error.
    """

    method: str
    path: str
    operation: str
    query: tuple[tuple[str, str], ...] = ()
    body: Any = None
    expects: Expected = "object"

    @property
    def is_mutating(self) -> bool:
        """Whether it changes something in the cloud."""
        return self.method not in _READS


@dataclass(frozen=True, slots=True)
class Answer:
    """A success. `data` is the decoded body (None where nothing was expected); header names are in lower case.

    `is_dry_run`: nothing was sent, because this process only shows what it would do; `data` is None then.
    """

    status: int
    headers: Mapping[str, str]
    data: Any
    is_dry_run: bool = False


def path_of(*segments: str) -> str:
    """A path of these segments, each percent-encoded, so that no name can lead to another operation.

    Raises ValueError for an empty segment and for `.` and `..`, which servers resolve even when encoded.
    """
    for segment in segments:
        if not segment.strip("."):
            raise ValueError(f"{segment!r} must not be part of a path")
    return "".join("/" + quote(segment, safe="") for segment in segments)
