"""What rendering gives: the values of `api/desired`, each with the object of the tree that caused it.

In: nothing. Out: `Rendered`, all that holds on a node, and `Part`, what one role adds to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from bedplate.api.desired import Check, File, Flag, Service, Taint
from bedplate.head.resolve import Exclude, Given, Source

__all__ = ["Held", "Part", "Rendered"]

T = TypeVar("T")


class Held(NamedTuple, Generic[T]):
    """A value, who gave it, and who would give it next."""

    value: T
    source: Source
    next_best: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """What one role means for a node. `kept` are folders with data that image updates leave alone. `serial` names, for
    a service, the group whose members restart it in turn."""

    files: Sequence[File] = ()
    unmanaged: Sequence[str] = ()
    packages: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Taint] = ()
    flags: Sequence[Flag] = ()
    warnings: Sequence[str] = ()
    data_node: bool = False
    kept: Sequence[str] = ()
    serial: Mapping[str, str] = field(default_factory=dict)

    def is_like(self, other: Part) -> bool:
        """Whether the two differ in nothing but what their files say."""
        return self._but_files() == other._but_files() and [file.path for file in self.files] == [
            file.path for file in other.files
        ]

    def _but_files(self) -> tuple[object, ...]:
        return (
            self.unmanaged,
            self.packages,
            self.labels,
            self.taints,
            self.flags,
            self.warnings,
            self.data_node,
            self.kept,
            self.serial,
        )


@dataclass(frozen=True, slots=True)
class Rendered:
    """All that holds on a node, by name (files by path), each with its cause."""

    files: Mapping[str, Held[File]]
    unmanaged: Mapping[str, Source]
    packages: Mapping[str, Source]
    services: Mapping[str, Held[Service]]
    environment: Mapping[str, Given]
    labels: Mapping[str, Given]
    taints: Mapping[str, Held[Taint]]
    flags: Mapping[str, Held[Flag]]
    excludes: Sequence[Exclude]
    checks: Mapping[str, Held[Check]]
    data_node: Source | None
    warnings: Mapping[str, Source]
