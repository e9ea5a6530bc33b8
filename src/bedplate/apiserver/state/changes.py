"""A committed change of an object, as behaviours and controllers see it.

In: the bodies that the registry holds. Out: values; the objects in them are decoded when asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bedplate.apiserver.state import bodies

__all__ = ["Change"]

Object = bodies.Object


@dataclass(frozen=True, slots=True)
class Change:
    """A committed change of one object, whoever made it. `object` and `previous` are decoded on each use."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    group: str
    resource: str
    namespace: str
    name: str
    revision: int
    body: bytes
    """JSON with resourceVersion, in the storage version; of a deletion the last state with the deletion's revision."""
    previous_body: bytes | None

    @property
    def object(self) -> Object:
        return bodies.decode(self.body)

    @property
    def previous(self) -> Object | None:
        return None if self.previous_body is None else bodies.decode(self.previous_body)
