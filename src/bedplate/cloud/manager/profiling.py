"""`/debug/pprof/`: what a program written in Go offers there, as far as Python has it.

In: the running process. Out: text. `goroutine` lists tasks and threads with their stacks, `profile` samples the event
loop's stack and gives it in the collapsed form that flame graph programs read, `heap` counts live objects, `block`
shows what has held up the event loop (with `--contention-profiling`). Values of variables are never shown: they hold
tokens.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import traceback
from collections import Counter
from types import FrameType

__all__ = ["PROFILES", "Contention", "heap", "sample", "tasks", "threads"]

PROFILES = {
    "block": "what blocked the event loop (needs --contention-profiling)",
    "cmdline": "the command line",
    "goroutine": "stacks of all tasks and threads",
    "heap": "live objects by type",
    "profile": "where the time goes, sampled for ?seconds=30, as collapsed stacks",
    "threadcreate": "stacks of all threads",
}
SAMPLES_PER_S = 100
LONGEST_S = 300.0
HELD_UP_S = 0.05


def tasks() -> str:
    """Every task with the stack at which it waits."""
    lines = []
    for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
        lines.append(f"task {task.get_name()!r}: {getattr(task.get_coro(), '__qualname__', '?')}")
        lines += [f"    {_place(frame)}" for frame in task.get_stack()]
    return "\n".join(lines) + "\n"


def threads() -> str:
    """Every thread with its stack."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines = []
    for number, frame in sys._current_frames().items():
        lines.append(f"thread {names.get(number, '?')!r}")
        lines += [f"    {_place(outer)}" for outer, _ in traceback.walk_stack(frame)]
    return "\n".join(lines) + "\n"


def heap(limit: int = 50) -> str:
    """The most frequent types among live objects."""
    counts = Counter(type(item).__qualname__ for item in gc.get_objects())
    return "\n".join(f"{count:10d}  {name}" for name, count in counts.most_common(limit)) + "\n"


async def sample(seconds: float) -> str:
    """Sample the event loop's thread; one line per stack, with how often it was seen."""
    stacks: Counter[str] = Counter()
    done = threading.Event()
    watched = threading.get_ident()

    def look() -> None:
        while not done.wait(1 / SAMPLES_PER_S):
            frame = sys._current_frames().get(watched)
            if frame is not None:
                stacks[_stack(frame)] += 1

    watcher = threading.Thread(target=look, name="profile", daemon=True)
    watcher.start()
    try:
        await asyncio.sleep(min(max(0.1, seconds), LONGEST_S))
    finally:
        done.set()
    return "\n".join(f"{stack} {count}" for stack, count in stacks.most_common()) + "\n"


class Contention:
    """Notes the stack of the event loop whenever that has not come round for a while."""

    def __init__(self) -> None:
        self.stacks: Counter[str] = Counter()
        self._beat = time.monotonic()
        self._done = threading.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        loop_thread = threading.get_ident()
        watcher = threading.Thread(target=self._watch, args=(loop_thread,), name="contention", daemon=True)
        watcher.start()
        try:
            while True:
                self._beat = time.monotonic()
                await asyncio.sleep(HELD_UP_S / 2)
        finally:
            self._done.set()

    def report(self) -> str:
        return "\n".join(f"{stack} {count}" for stack, count in self.stacks.most_common()) + "\n"

    def _watch(self, thread: int) -> None:
        while not self._done.wait(HELD_UP_S):
            frame = sys._current_frames().get(thread)
            if frame is not None and time.monotonic() - self._beat > HELD_UP_S:
                self.stacks[_stack(frame)] += 1


def _stack(frame: FrameType) -> str:
    return ";".join(
        reversed([_place(outer).replace(";", ":").replace(" ", ":") for outer, _ in traceback.walk_stack(frame)])
    )


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_filename.rpartition('site-packages/')[2]}:{frame.f_lineno} {code.co_qualname}"
