"""Kills a run at every step in turn, then resumes or undoes it: a program for `test_kills.py`.

    python -m tests.setup.engine.killed FOLDER resume|undo

A step is a place before, in the middle of and after each write of the journal, and one within each stage. The killed
process is a fork of this one that kills itself, so that every step is hit exactly. Out: a JSON object for each step.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.setup.engine import fakes

from bedplate.core.clock import SystemClock
from bedplate.setup.engine import Journal, journal, lock


class Steps:
    """Counts steps, and ends this process at one of them."""

    def __init__(self, deadly: int) -> None:
        self.deadly = deadly
        self.count = 0

    def __call__(self) -> None:
        self.count += 1
        if self.count == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)


@contextlib.contextmanager
def _planted(step: Steps) -> Iterator[None]:
    write, replace = journal.write_atomically, os.replace

    def writing(file: Path, content: bytes, mode: int = 0o600) -> None:
        step()
        write(file, content, mode)
        step()

    def replacing(old: Path, new: Path) -> None:
        step()
        replace(old, new)

    journal.write_atomically, os.replace = writing, replacing  # type: ignore[assignment]
    try:
        yield
    finally:
        journal.write_atomically, os.replace = write, replace  # type: ignore[assignment]


def _run(folder: Path, how: str, deadly: int) -> int:
    """Run, resume or undo once; the number of steps there were."""
    step = Steps(deadly)
    world, state = folder / "world", folder / "state"
    stages = fakes.stages(world, step)
    bench = fakes.Bench(state, SystemClock())

    async def main() -> None:
        with lock.hold(state, lock.Holder(os.getpid(), "now", "a test")), _planted(step):
            if how == "run":
                await bench.run(stages).execute()
                return
            former = Journal.load(state, "default")
            if former is None:
                return  # Killed before there was a journal: nothing was begun.
            run = bench.run(stages, journal=former)
            if former.is_over:
                return
            status = await (run.execute() if how == "resume" else run.undo())
            assert status == ("completed" if how == "resume" else "undone"), bench.printed

    asyncio.run(main())
    return step.count


def _forked(folder: Path, how: str, deadly: int) -> int:
    """The way in which a fork that does this ends: 0, or the number of its signal."""
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            sys.stdout = io.StringIO()
            _run(folder, how, deadly)
            code = 0
        os._exit(code)
    return os.waitpid(child, 0)[1]


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "world").mkdir(parents=True)
    return folder


def main() -> None:
    base, how = Path(sys.argv[1]), sys.argv[2]
    total = _run(_fresh(base / "whole"), "run", 0)
    finished = fakes.content(base / "whole" / "world")
    for deadly in range(1, total + 1):
        folder = _fresh(base / "killed")
        first = _forked(folder, "run", deadly)
        second = _forked(folder, how, 0)
        former = Journal.load(folder / "state", "default")
        row = {
            "step": deadly,
            "of": total,
            "killed": first,
            "after": second,
            "is_over": former is None or former.is_over,
            "status": former.record.status if former is not None else "none",
            "world": fakes.content(folder / "world"),
            "finished": finished,
        }
        print(json.dumps(row))


if __name__ == "__main__":
    main()
