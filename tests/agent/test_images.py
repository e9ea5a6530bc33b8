"""What the agent does about an image: the call of rsync, what it reads out of it, and what it refuses."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.agent.machines import Machine, desired

from bedplate.agent import images
from bedplate.agent.files import Root
from bedplate.agent.images import Done, Output, Transfers, command
from bedplate.api.desired import Errand, File
from bedplate.core import errors
from bedplate.core.clock import ManualClock

UPDATE = Errand(id="1", kind="imageupdate", image="default-image", mode="update", write=True, delete=True)
GRAB = Errand(id="2", kind="grabimage", image="default-image", mode="grab", write=True, delete=True)
TRIAL = Errand(id="3", kind="imageupdate", image="default-image", mode="update", delete=True)


def call(errand: Errand, **more: Any) -> list[str]:
    return command(errand, "/root/", "/rules", 7, is_privileged=more.get("is_privileged", True))


def test_an_update_reads_and_a_grab_writes_and_a_trial_of_either_only_reads() -> None:
    assert call(UPDATE)[-2:] == ["head::image/", "/root/"]
    assert call(GRAB)[-2:] == ["/root/", "head::image/"]
    trial = call(Errand(id="4", kind="grabimage", mode="grab", delete=True))
    assert trial[-2:] == ["head::image/", "/root/"] and "--dry-run" in trial
    assert "--dry-run" in call(TRIAL) and "--dry-run" not in call(UPDATE)


def test_deletions_come_last_and_only_where_they_are_asked_for() -> None:
    assert "--delete-delay" in call(UPDATE)
    kept = call(Errand(id="5", kind="imageupdate", mode="update", write=True))
    assert not any(word.startswith("--delete") for word in kept)


def test_owners_are_set_by_who_may() -> None:
    assert "-aHAX" in call(UPDATE) and "-aHAX" not in call(UPDATE, is_privileged=False)


def test_rsync_is_given_the_agent_in_place_of_a_remote_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/with blank/python")
    words = call(UPDATE)
    assert words[words.index("-e") + 1].startswith('"/opt/with blank/python" -I -S ')
    assert words[words.index("-e") + 1].endswith("pipe.py 7")


def test_what_rsync_writes_is_read_whatever_way_it_is_cut() -> None:
    text = (
        b"@>f+++++++++ 12 usr/bin/new\n@>f.st...... 9 usr/bin/tool\n@.d..t...... 4096 usr/bin/\n"
        b"              2  11%    0.00kB/s    0:00:00\r          1,234  57%  1.00MB/s    0:00:00 (xfr#1)\r\n"
        b"@*deleting   0 old file\n@cL+++++++++ 7 bin -> usr/bin\nreceiving file list ... done\n"
    )
    for size in (1, 7, 1000):
        output = Output()
        for at in range(0, len(text), size):
            output.feed(text[at : at + size])
        assert output.percent == 57
        assert output.lines == [
            "create /usr/bin/new",
            "change /usr/bin/tool",
            "delete /old file",
            "create /bin -> usr/bin",
        ]
        assert output.summary(is_written=True) == "2 created, 1 changed, 1 deleted"
        assert output.summary(is_written=False) == "would be 2 created, 1 changed, 1 deleted"
    assert Output().summary(is_written=True) == "nothing to change"


def test_the_trial_of_a_grab_tells_what_the_image_would_become() -> None:
    output = Output(is_reversed=True)
    output.feed(b"@*deleting   0 only/here\n@>f+++++++++ 1 only/there\n")
    assert output.lines == ["create /only/here", "delete /only/there"]


class _NoHead:
    def image(self, id_: str) -> Any:
        raise errors.Unavailable("the head is away")


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "node")
    made.state.open()
    yield made
    made.state.close()


def transfers(machine: Machine, clock: ManualClock | None = None, **more: Any) -> Transfers:
    which = more.pop("which", lambda name: f"/usr/bin/{name}")
    return Transfers(machine.root, machine.state, _NoHead(), clock or ManualClock(), which=which)


async def _silent(text: str) -> None:
    return None


@pytest.mark.parametrize(
    ("errand", "more", "why"),
    [
        (Errand(id="1", kind="imageupdate", mode="full", write=True), {}, "nobody confirmed that by its name"),
        (UPDATE, {"data_node": True}, "this is a data node"),
    ],
)
async def test_what_cannot_be_undone_needs_the_name_of_the_node(
    machine: Machine, errand: Errand, more: dict[str, Any], why: str
) -> None:
    done = await transfers(machine).run(errand, desired(**more), _silent)
    assert why in done.why


async def test_without_knowing_the_exclude_lists_nothing_is_done(machine: Machine) -> None:
    assert "exclude lists are not known" in (await transfers(machine).run(UPDATE, None, _silent)).why


async def test_without_rsync_the_remedy_is_told(machine: Machine) -> None:
    done = await transfers(machine, which=lambda name: None).run(UPDATE, desired(), _silent)
    assert "apt-get install rsync" in done.why


async def test_files_that_the_head_manages_are_left_to_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "_TRIES", 1)
    monkeypatch.setattr(sys, "prefix", machine.root.folder + "/opt/agent")
    state = desired(
        File(path="/etc/app.conf", content="x"), excludes={"update": ("/var/lib/containerd",), "grab": ("/x",)}
    )
    done = await transfers(machine).run(UPDATE, state, _silent)
    assert done == Done("the head is away (1 tries)")
    rules = pathlib.Path(machine.state.folder) / "image.rules"
    assert rules.stat().st_mode & 0o777 == 0o600
    written = rules.read_text().splitlines()
    assert "- /etc/app.conf" in written and "- /var/lib/containerd" in written and "- /x" not in written
    assert "- /opt/agent" in written, "and so is the agent to itself"
    assert written.index("- /etc/app.conf") < written.index("- /var/lib/containerd")


@pytest.mark.parametrize(
    ("code", "said", "expected"),
    [
        (0, "", ""),
        (24, "file has vanished: x", "rsync ended with 24: file has vanished: x"),
        (
            23,
            "rsync: open x failed: Permission denied (13)\nrsync error: some files (code 23)",
            "rsync ended with 23: rsync: ",
        ),
        (11, "rsync: write failed on x: No space left on device (28)", "the disk is full"),
        (5, "@ERROR: Unknown module 'other'", "rsync ended with 5: @ERROR: Unknown module"),
    ],
)
def test_how_rsync_ended_is_told_with_its_reason(code: int, said: str, expected: str) -> None:
    assert images._judged(code, said, Output(), UPDATE).why.startswith(expected)
    assert bool(images._judged(code, said, Output(), UPDATE).why) == bool(expected)


def test_a_running_machine_may_lose_files_while_it_is_grabbed() -> None:
    assert not images._judged(24, "file has vanished: x", Output(), GRAB).why


def test_the_agents_own_program_is_left_alone_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "__file__", "/opt/tools/agent/lib/bedplate/agent/images.py")
    for prefix, folder, expected in (
        ("/opt/tools/agent", "/", {"/opt/tools/agent", "/opt/tools/agent/lib/bedplate"}),
        ("/usr", "/", {"/opt/tools/agent/lib/bedplate"}),
        ("/opt/tools/agent", "/opt/tools", {"/agent", "/agent/lib/bedplate"}),
        ("/opt/tools/agent", "/srv/node001", set()),
    ):
        monkeypatch.setattr(sys, "prefix", prefix)
        assert images._program(Root(folder)) == expected


def test_a_lost_connection_is_tried_again() -> None:
    with pytest.raises(errors.Unavailable):
        images._judged(12, "", Output(), UPDATE)
