"""The simulated Oxide API as a process of its own, so that its work is not counted as a manager's.

    python -m bench.simulated COUNT        prints where it listens, as JSON, and serves until ended

In: how many instances. Out: a `Cloud` with what a manager needs to reach it, and its counter of calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from bedplate.core import errors
from bedplate.lab import processes
from bedplate.sim.clouds import OxideCloud

__all__ = ["Cloud", "name", "oxide"]

PREFIX = "bench-"
WIDTH = 5
STOP_DEADLINE_S = 10.0


def name(number: int) -> str:
    """The name of a node and of its instance."""
    return f"{PREFIX}{number:0{WIDTH}d}"


@dataclass(frozen=True, slots=True)
class Cloud:
    """A running simulated cloud."""

    url: str
    token: str
    project: str
    pid: int

    @property
    def environ(self) -> dict[str, str]:
        """What the managers read."""
        return {"OXIDE_HOST": self.url, "OXIDE_TOKEN": self.token, "OXIDE_PROJECT": self.project}

    async def calls(self) -> int:
        """Requests of the vendor's API since the last reset."""
        counters = await self._admin("GET")
        return sum(counters["operations"].values())

    async def refusals(self) -> int:
        """How many of them were answered with 429."""
        counters = await self._admin("GET")
        return int(counters["statuses"].get("429", 0))

    async def reset(self) -> None:
        await self._admin("DELETE")

    async def behave(self, conditions: Mapping[str, object]) -> None:
        """From now on it answers like this: `latency_s`, `rate_limit`."""
        await self._admin("PATCH", "conditions", dict(conditions))

    async def _admin(self, method: str, what: str = "counters", body: object = None) -> Any:
        url = f"{self.url}/__sim/{what}"
        async with aiohttp.ClientSession() as session, session.request(method, url, json=body) as answer:
            return json.loads(await answer.text() or "{}")


@contextlib.contextmanager
def oxide(folder: pathlib.Path, count: int) -> Iterator[Cloud]:
    """Run it with that many instances."""
    with open(folder / "cloud.log", "ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "bench.simulated", str(count)],
            stdout=subprocess.PIPE,
            stderr=log,
            preexec_fn=processes.die_with_parent(os.getpid()),
        )
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line:
            raise errors.Terminal(f"the simulated cloud ended: {processes.tail(folder / 'cloud.log')}")
        yield Cloud(**json.loads(line))
    finally:
        child.terminate()
        try:
            child.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


async def _serve(count: int) -> None:
    async with OxideCloud() as cloud:
        for number in range(count):
            cloud.add(name(number))
        where = {"url": cloud.url, "token": cloud.token, "project": cloud.project, "pid": os.getpid()}
        print(json.dumps(where), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
