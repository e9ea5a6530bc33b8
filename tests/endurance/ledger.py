"""Writers that note what the server acknowledged, and the check that none of it is lost.

Each writer has names of its own, so for every name the truth is known: the last acknowledged state, or one of the
states asked for since then that never got an answer. Anything else found after a restart is a lost write or a ghost.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from typing import Any

import aiohttp

__all__ = ["Ledger", "Writer"]

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
SERVICES = "/api/v1/namespaces/default/services"
ABSENT = None


@dataclasses.dataclass
class Ledger:
    """What is known of every name: `sure` is the acknowledged value (None: absent), `maybe` are unanswered ones."""

    sure: dict[str, str | None] = dataclasses.field(default_factory=dict)
    maybe: dict[str, set[str | None]] = dataclasses.field(default_factory=dict)
    acknowledged: int = 0
    highest: int = 0
    """The highest resourceVersion that was ever answered."""

    def asked(self, name: str, value: str | None) -> None:
        self.maybe.setdefault(name, set()).add(value)

    def settled(self, name: str, value: str | None, version: str = "") -> None:
        self.sure[name] = value
        self.maybe.pop(name, None)
        self.acknowledged += 1
        self.highest = max(self.highest, int(version or 0))

    def problems(self, found: dict[str, str]) -> list[str]:
        """What is wrong with the values found, by name."""
        wrong = []
        for name in self.sure.keys() | self.maybe.keys() | found.keys():
            allowed = self.maybe.get(name, set()) | {self.sure.get(name)}
            if found.get(name) not in allowed:
                wrong.append(f"{name}: found {found.get(name)}, acknowledged {self.sure.get(name)}, asked {allowed}")
        return wrong

    def accept(self, found: dict[str, str]) -> None:
        """After a restart what is there is the truth."""
        self.sure = {name: found.get(name) for name in self.sure.keys() | self.maybe.keys()}
        self.maybe.clear()


class Writer:
    """One of many concurrent writers; ends when the server does."""

    def __init__(self, number: int, ledger: Ledger, rng: random.Random) -> None:
        self._number = number
        self._ledger = ledger
        self._rng = rng
        self._count = 0

    async def run(self, session: aiohttp.ClientSession) -> None:
        try:
            while True:
                await self._step(session)
        except (aiohttp.ClientError, ConnectionError, TimeoutError):
            return

    async def _step(self, session: aiohttp.ClientSession) -> None:
        self._count += 1
        name = f"w{self._number}-{self._rng.randrange(8)}"
        value = f"{self._number}.{self._count}"
        is_there = self._ledger.sure.get(name) is not None
        if not is_there:
            await self._write(session, "POST", CONFIGMAPS, name, value, 201)
        elif self._rng.random() < 0.2:
            self._ledger.asked(name, ABSENT)
            async with session.delete(f"{CONFIGMAPS}/{name}") as answer:
                assert answer.status == 200, await answer.text()
                self._ledger.settled(name, ABSENT)
        else:
            await self._write(session, "PUT", f"{CONFIGMAPS}/{name}", name, value, 200)

    async def _write(
        self, session: aiohttp.ClientSession, method: str, path: str, name: str, value: str, code: int
    ) -> None:
        body: dict[str, Any] = {"metadata": {"name": name}, "data": {"value": value}}
        self._ledger.asked(name, value)
        async with session.request(method, path, json=body) as answer:
            got = await answer.json()
            assert answer.status == code, got
            assert got["data"] == {"value": value}
            self._ledger.settled(name, value, got["metadata"]["resourceVersion"])


async def settle(writers: list[Writer], session: aiohttp.ClientSession) -> None:
    """Let all writers work until the server is gone."""
    await asyncio.gather(*(writer.run(session) for writer in writers))
