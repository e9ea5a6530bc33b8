"""Packages of a node: one interface, a back end for each family of distributions, and one for sandboxes.

In: names as the head renders them. Out: None, or why it failed in one line. A package that was there before is never
removed; `apply` remembers which ones the agent installed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

__all__ = ["Packages"]


class Packages(Protocol):
    """Installing what is there, and removing what is not, is a success that does nothing."""

    async def installed(self, names: Iterable[str]) -> set[str]:
        """Those of the packages that are installed."""
        ...

    async def install(self, name: str) -> str | None: ...

    async def remove(self, name: str) -> str | None: ...

    async def upgrade(self, name: str, version: str, *, only_fetch: bool = False) -> str | None:
        """Make an installed package that version; `only_fetch`: see that it can be had, and change nothing."""
        ...
