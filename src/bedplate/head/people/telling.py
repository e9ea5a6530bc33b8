"""Notices about users of one cluster: what was done each time, what is wrong once.

In: texts. Out: notices. A trouble is told again only after it was gone, or when it is another one.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from bedplate.head.notices import Notices

__all__ = ["Telling"]


class Telling:
    """Reported troubles live as long as this."""

    def __init__(self, cluster: str, notices: Notices) -> None:
        self._cluster = cluster
        self._notices = notices
        self._told: dict[tuple[str, Hashable], str] = {}

    async def tell(self, text: str) -> None:
        """Tell what was done."""
        await self._notices.add(self._cluster, text)

    async def troubles(self, topic: str, present: Mapping[Any, str]) -> None:
        """Tell the troubles of a topic that are new; those that are not there any more are forgotten."""
        for about, text in present.items():
            if self._told.get((topic, about)) != text:
                self._told[topic, about] = text
                await self._notices.add(self._cluster, text, "warning")
        for key in [key for key in self._told if key[0] == topic and key[1] not in present]:
            del self._told[key]
