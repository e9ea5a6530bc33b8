"""kill -9 at random moments: what was acknowledged is there, nothing twice, and nothing that nobody asked for."""

from __future__ import annotations

import json
import random
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from tests import forkserver
from tests.ipam.node.storekit import owner
from tests.waiting import wait_until

from bedplate.ipam.node import storefile
from bedplate.ipam.node.storeview import read_store

ROOT = Path(__file__).parents[3]


class Client:
    """What one who talks to the daemons knows, over all of them."""

    def __init__(self) -> None:
        self.held: dict[int, str] = {}
        self.asked: set[int] = set()
        """Calls without an answer: they may have been done."""

    def heard(self, output: str) -> int:
        """Take what a process said before it was killed; how many calls it acknowledged."""
        answers = 0
        for line in output.splitlines(keepends=True):
            if not line.endswith("\n"):
                continue  # It was killed while saying it: nobody heard.
            verb, *rest = line.split()
            if verb == "add":
                self.asked.add(int(rest[0]))
            elif verb == "got":
                self.asked.discard(int(rest[0]))
                self.held[int(rest[0])] = rest[1]
                answers += 1
            elif verb == "del":
                self.asked.add(int(rest[0]))
                del self.held[int(rest[0])]
            elif verb == "gone":
                self.asked.discard(int(rest[0]))
                answers += 1
        return answers

    def check(self, path: Path, *, in_file: bool) -> None:
        """Hold the store against it; learn what became of the unanswered calls."""
        view = read_store(path)
        assert not view.problem
        if in_file:
            # The original's daemon would find all of it without our journal.
            assert view.pending == 0 and not path.with_name("store.journal").exists()
        found = {one.container_id: one.address for one in view.reservations()}
        assert len(set(found.values())) == len(found)
        names = {owner(number).container_id: number for number in (*self.held, *self.asked)}
        for number, address in self.held.items():
            assert found.get(owner(number).container_id) == address
        assert set(found) <= set(names)
        self.held = {names[container]: address for container, address in found.items()}
        self.asked = set()


def has_begun(output: Path, process: forkserver.Process) -> bool:
    """It has acknowledged a call, or will never do so."""
    return b"got" in output.read_bytes() or process.poll() is not None


def kill_often(folder: Path, times: int, whole_below: int, rng: random.Random) -> int:
    """Start and kill a process that many times; how many calls were acknowledged."""
    path, output, client, answers = folder / "store", folder / "said", Client(), 0
    for _ in range(times):
        arguments = [str(path), str(whole_below), json.dumps(sorted(client.held)), str(rng.getrandbits(32))]
        with output.open("wb") as stream:
            process = forkserver.Process(
                [sys.executable, "-m", "tests.ipam.node.hammer", *arguments], stdout=stream, cwd=ROOT
            )
        try:
            wait_until(partial(has_begun, output, process), step_s=0.005)
            time.sleep(rng.expovariate(1 / 0.05))
            assert process.poll() is None, "it ended by itself"
        finally:
            process.kill()
            process.wait()
        answers += client.heard(output.read_text())
        client.check(path, in_file=whole_below > 1_000_000)
    return answers


@pytest.mark.parametrize("whole_below", [10_000_000, 0, 60_000], ids=["whole", "journal", "both"])
def test_a_killed_ledger_loses_nothing_that_it_acknowledged(
    tmp_path: Path, whole_below: int, rng: random.Random
) -> None:
    assert kill_often(tmp_path, 12, whole_below, rng) >= 12
    leftovers = [path.name for path in tmp_path.iterdir() if path.name.startswith(".store")]
    assert len(leftovers) <= 2  # Those of the last process alone.
    storefile.decode((tmp_path / "store").read_bytes())


@pytest.mark.soak
@pytest.mark.parametrize("whole_below", [10_000_000, 0, 60_000], ids=["whole", "journal", "both"])
def test_a_ledger_killed_a_thousand_times_loses_nothing(tmp_path: Path, whole_below: int, rng: random.Random) -> None:
    assert kill_often(tmp_path, 334, whole_below, rng) >= 334
