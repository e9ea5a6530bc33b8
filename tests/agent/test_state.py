"""What the agent must not forget, over restarts, cut lines and full disks."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from bedplate.agent.state import Change, Held, Outbox, State, StateProblem
from bedplate.api import headapi
from bedplate.api.desired import Desired, File
from bedplate.api.steps import Step

BEFORE, AFTER = Desired(node="n"), Desired(node="n", files=(File(path="/a", content="x"),))
WRITE, START = Step("file", "/a", "write"), Step("service", "s", "start", ("/a",))


@pytest.fixture
def state(tmp_path: Path) -> State:
    made = State(str(tmp_path / "state"))
    made.open()
    return made


def test_what_is_written_is_read_back(state: State) -> None:
    held = Held(state=AFTER, wanted=AFTER, etag="e", applied=3, is_whole=True)
    state.save_held(held)
    assert State(state.folder).held() == held
    outbox = Outbox(results=[(1.5, headapi.Result(check="load", status="PASS"))])
    state.save_outbox(outbox)
    assert State(state.folder).outbox() == outbox


def test_what_is_written_outlives_a_power_cut(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes are on the disk before the name is, and the name before anything else happens."""
    done: list[str] = []
    fsync, rename = os.fsync, os.rename

    def seen_fsync(handle: int) -> None:
        done.append(f"fsync {os.path.basename(os.readlink(f'/proc/self/fd/{handle}'))}")
        fsync(handle)

    def seen_rename(old: str, new: str) -> None:
        done.append(f"rename {os.path.basename(new)}")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(os, "rename", seen_rename)
    state.save_held(Held(applied=1))
    assert done == ["fsync held.json.new", "rename held.json", "fsync state"]


def test_nothing_is_known_at_first(state: State) -> None:
    assert (state.held(), state.outbox(), state.resume(), state.records()) == (Held(), Outbox(), None, [])


def test_a_change_under_way_is_known_with_its_steps(state: State) -> None:
    state.begin(Change(BEFORE, AFTER, "e"))
    state.started(WRITE)
    state.ended(WRITE, None)
    state.started(START, "run 1")
    change = State(state.folder).resume()
    assert change == Change(BEFORE, AFTER, "e", (WRITE,), START, "run 1")
    state.ended(START, "exit code 1")
    assert State(state.folder).resume() == Change(BEFORE, AFTER, "e", (WRITE,))


def test_a_line_that_was_cut_off_is_not_counted_and_the_next_one_is(state: State) -> None:
    state.begin(Change(BEFORE, AFTER, "e"))
    state.started(WRITE)
    state.ended(WRITE, None)
    state.close()
    place = Path(state.folder) / "journal"
    place.write_bytes(place.read_bytes()[:-5])
    again = State(state.folder)
    assert again.resume() == Change(BEFORE, AFTER, "e", (), WRITE)
    again.ended(WRITE, None)
    assert State(state.folder).resume() == Change(BEFORE, AFTER, "e", (WRITE,))


def test_a_change_whose_end_was_written_down_is_over(state: State) -> None:
    state.begin(Change(BEFORE, AFTER, "e"))
    state.save_held(Held(state=AFTER))
    assert State(state.folder).resume() is None
    assert not (Path(state.folder) / "journal").exists()


def test_a_full_disk_leaves_what_was_there(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    state.save_held(Held(state=AFTER, applied=1))

    def full(*args: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StateProblem, match="no space left") as failure:
        state.save_held(Held(state=BEFORE, applied=2))
    assert failure.value.hint == "free space on its file system"
    assert state.held().applied == 1
    assert sorted(os.listdir(state.folder)) == ["edited", "files", "held.json"]


def test_a_file_that_cannot_be_understood_is_named(state: State) -> None:
    (Path(state.folder) / "held.json").write_text("{")
    with pytest.raises(StateProblem, match=r"held\.json cannot be read"):
        state.held()


def test_copies_of_changes_by_hand_are_few_and_not_large(state: State) -> None:
    for number in range(30):
        assert state.keep_edited("/etc/a", str(number).encode())
    assert len(os.listdir(Path(state.folder) / "edited")) == 20
    assert state.keep_edited("/etc/a", b"x" * (2 << 20)) == ""
