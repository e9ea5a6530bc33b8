"""A run that is killed at any point can be resumed to its end, or undone to its start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_until

from bedplate.core import errors
from bedplate.setup.engine import lock

ROOT = Path(__file__).resolve().parents[3]


def rows(folder: Path, how: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.setup.engine.killed", str(folder), how],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_killed_at_any_step_a_run_is_resumed_to_its_end(tmp_path: Path) -> None:
    steps = rows(tmp_path, "resume")
    assert len(steps) == steps[0]["of"] > 30
    for row in steps:
        assert row["killed"] == signal.SIGKILL
        assert row["after"] == 0, row
        if row["status"] == "none":
            assert row["world"] == {}
        else:
            assert (row["status"], row["world"]) == ("completed", row["finished"]), row


def test_killed_at_any_step_a_run_is_undone_to_its_start(tmp_path: Path) -> None:
    for row in rows(tmp_path, "undo"):
        assert row["after"] == 0, row
        assert row["is_over"]
        # One that was killed with its last write on disk had ended: it is not undone, but removed.
        assert row["world"] == (row["finished"] if row["status"] == "completed" else {}), row


CHILD = """
import os, sys
from pathlib import Path
from bedplate.setup.engine import lock
with lock.hold(Path(sys.argv[1]), lock.Holder(os.getpid(), "2026-01-01 00:00:00", "deploy of the cluster default")):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_lock_names_its_holder_and_goes_with_a_killed_one(tmp_path: Path) -> None:
    holder = lock.Holder(1, "now", "another run")
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with pytest.raises(errors.Unavailable) as refused, lock.hold(tmp_path, holder):
            pass
        assert f"deploy of the cluster default, process {child.pid}, since 2026-01-01" in str(refused.value)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    with lock.hold(tmp_path, holder):
        pass


SIGNALLED = """
import asyncio, sys
from pathlib import Path
from bedplate.core.clock import SystemClock
from bedplate.setup.engine import Stage
from bedplate.setup.engine.run import EXIT_CODES
from tests.setup.engine import fakes

async def wait(context):
    Path(sys.argv[1], "begun").touch()
    await asyncio.get_running_loop().create_future()

async def undo(context):
    pass

class Printing(fakes.Bench):
    def _write(self, text):
        sys.stdout.write(text)
        sys.stdout.flush()

async def main():
    run = Printing(Path(sys.argv[1], "state"), SystemClock()).run([Stage("Wait Long", "kubernetes", wait, undo)])
    run.handles_signals = True
    return EXIT_CODES[await run.execute()]

sys.exit(asyncio.run(main()))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_a_run_as_aborted_with_a_truthful_journal(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SIGNALLED, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as child:
        wait_until((tmp_path / "begun").exists)
        child.send_signal(number)
        printed, _ = child.communicate()
    assert child.returncode == 1
    assert "status: aborted" in printed
    assert "--resume" in printed
    journal = json.loads((tmp_path / "state/default/journal.json").read_text())
    assert (journal["status"], journal["phase"]) == ("aborted", "run")
    (stage,) = journal["stages"]
    assert (stage["state"], stage["error"]) == ("failed", f"interrupted by {number.name}")
    assert stage["began"] <= stage["ended"]
