"""A process that adds and removes reservations as fast as it can, to be killed at any moment.

In: the store's path, the number of bytes below which the file is rewritten whole, what is held already as JSON, and the
seed of its random numbers.
Out: a line for every call before it is made and one when it is acknowledged, written without a buffer.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from pathlib import Path

from tests.ipam.node.storekit import owner, pool

from bedplate.core.clock import SystemClock
from bedplate.core.logging import LogOptions, configure
from bedplate.ipam.node.ledger import Ledger, LedgerOptions
from bedplate.ipam.node.reservations import Wanted

BLOCK = pool(size=300)
WIDTH = 16


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def hammer(path: Path, whole_below: int, held: list[int], seed: int) -> None:
    configure(LogOptions(is_quiet=True))
    ledger = await Ledger.open(path, clock=SystemClock(), options=LedgerOptions(whole_below=whole_below))
    assert ledger.recovery is None
    chance, ours = random.Random(seed), set(held)
    number = max(ours, default=0) + 1
    say("ready")

    async def client() -> None:
        nonlocal number
        while True:
            if ours and chance.random() < (0.7 if len(ours) > 200 else 0.4):
                one = ours.pop()
                say("del", one)
                assert await ledger.release(owner(one).container_id, "net0") == 1
                say("gone", one)
            else:
                one, number = number, number + 1
                say("add", one)
                (made,) = await ledger.allocate(owner(one), [Wanted(BLOCK)])
                say("got", one, made.address)
                ours.add(one)

    await asyncio.gather(*(client() for _ in range(WIDTH)))


def main() -> None:
    asyncio.run(hammer(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]), int(sys.argv[4])))


if __name__ == "__main__":
    main()
