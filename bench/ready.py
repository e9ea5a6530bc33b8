"""How long until one can work: an embedded API server, a real one, and (as root, with --full) a lab with one node.

Binaries and images are in the cache already. The first start has no data and makes its certificates, the second finds
both.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable

from bedplate.core import errors
from bench import report, servers

__all__ = ["run"]

LAB = "bedplate-bench"
LAB_TIMEOUT_S = 900


async def run(folder: pathlib.Path, *, is_quick: bool, is_full: bool, tell: Callable[[str], None]) -> report.Topic:
    topic = report.Topic("ready", "seconds from the start of the process to a ready /readyz", "apiserver+etcd")
    first: list[tuple[float, float]] = []
    second: list[tuple[float, float]] = []
    for turn in range(1 if is_quick else 3):
        for start in (first, second):
            tell(f"starting both servers, turn {turn + 1}, {'first' if start is first else 'second'} start")
            with servers.embedded(folder / f"embedded-{turn}") as ours:
                pass
            async with servers.real(folder / f"real-{turn}", tell) as theirs:
                pass
            start.append((ours.ready_s, theirs.ready_s))
    for name, start in (("first start", first), ("second start", second)):
        mine, other = (statistics.median(each[side] for each in start) for side in (0, 1))
        topic.rows.append(report.Row(name, mine, other, "s", limit=1.0, is_less_better=True))
    if is_full:
        await _add_lab(topic, tell)
    return topic


async def _add_lab(topic: report.Topic, tell: Callable[[str], None]) -> None:
    if os.geteuid():
        topic.notes.append("the lab needs root and was left out")
        return
    tell("starting a lab with one node")
    begin = time.perf_counter()
    try:
        await _lab("up", "--nodes", "1")
        topic.rows.append(
            report.Row("a lab with one node", time.perf_counter() - begin, None, "s", is_less_better=True)
        )
    finally:
        await _lab("down")


async def _lab(verb: str, *arguments: str) -> None:
    program = str(pathlib.Path(sys.executable).with_name("bedplate"))
    child = await asyncio.create_subprocess_exec(
        program,
        *("lab", verb, "--name", LAB, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(LAB_TIMEOUT_S):
        output, _ = await child.communicate()
    if child.returncode:
        raise errors.Terminal(f"bedplate lab {verb} failed: {output.decode(errors='replace')[-500:]}")
