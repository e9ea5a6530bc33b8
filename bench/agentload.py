"""Many agents in one process, on the real protocol with nodes that have no disk.

    python -m bench.agentload URL AUTHORITY CERTIFICATES FIRST COUNT PATH

In: a head that serves, a folder with a certificate for each node; then, a line each, a text that the file at PATH is to
have on every node. Out, a line each: `settled` once all nodes hold their first state; `applied SECONDS` when the last
node has the text, by the clock that all processes of a machine share. The end of the input ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sys
import time

from bedplate.agent.link import Login
from bedplate.core import logging, memory
from bedplate.sim.nodeagents import Node
from bench import headload

__all__ = ["main"]

AT_ONCE = 40
LOOK_S = 0.01


async def settled(nodes: list[Node]) -> None:
    """Wait until all of them hold what the head said."""
    for node in nodes:
        while not (node.agent.held.is_whole and node.agent.held.applied):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)


async def applied(nodes: list[Node], path: str, text: bytes) -> float:
    """When the last of them had the text."""
    left, last_s = nodes, time.monotonic()
    while left:
        left = [node for node in left if node.root.read(path).content != text]
        last_s = time.monotonic()
        await asyncio.sleep(LOOK_S)
    return last_s


async def run(url: str, authority: str, certificates: str, first: int, count: int, path: str) -> None:
    names = [headload.node(number) for number in range(first, first + count)]
    nodes = [Node(Login(name, (url,), authority, f"{certificates}/{name}.pem")) for name in names]
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tasks: list[asyncio.Task[None]] = []
    try:
        # Machines of a site do not all start in one millisecond.
        for start in range(0, count, AT_ONCE):
            some = nodes[start : start + AT_ONCE]
            tasks += [asyncio.create_task(node.run()) for node in some]
            await settled(some)
        memory.keep()
        print("settled", flush=True)
        while line := await reader.readline():
            print(f"applied {await applied(nodes, path, line):.6f}", flush=True)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def main() -> None:
    logging.configure(logging.LogOptions(is_quiet=True))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    url, authority, certificates, first, count, path = sys.argv[1:]
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(url, authority, certificates, int(first), int(count), path))


if __name__ == "__main__":
    main()
