"""What is there, compared with what was put there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.agent.machines import Machine, desired

from bedplate.agent.observe import Difference, Edits, Look, compare, remaining, with_failed
from bedplate.agent.services import Status
from bedplate.agent.state import Record
from bedplate.api.desired import File

RECORD = Record(path="/etc/a", digest="d", mode=0o644, owner="root", group="root")
STATE = desired(File(path="/etc/a", content=""), services=["app"], packages=("p",))
FINE = Look("d", 0o644, 0, 0, "2026-01-02T03:04:05Z", "root")


def differences(look: Look, status: Status | None = None, packages: set[str] | None = None) -> list[Difference]:
    services = {"app": status or Status("app", "running")}
    return compare([RECORD], {"/etc/a": look}, STATE, services, packages, {"/etc/a": (0, 0)})


def test_nothing_is_said_of_what_is_as_it_was_put() -> None:
    assert differences(FINE, packages={"p"}) == []


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"digest": "e"}, "was changed by hand (2026-01-02T03:04:05Z by root)"),
        ({"digest": ""}, "was removed"),
        ({"mode": 0o600}, "has mode 0600 instead of 0644"),
        ({"uid": 7}, "belongs to 7:0 instead of root:root"),
        ({"why": "cannot be read: x"}, "cannot be read: x"),
    ],
)
def test_each_change_of_a_file_is_named(change: dict[str, Any], what: str) -> None:
    assert differences(FINE._replace(**change)) == [Difference("file", "/etc/a", what)]


def test_services_that_do_not_run_and_packages_that_are_gone_are_found() -> None:
    found = differences(FINE, Status("app", "failed", why="exit code 1"), set())
    assert found == [
        Difference("service", "app", "is failed: exit code 1"),
        Difference("package", "p", "is not installed"),
    ]
    assert differences(FINE, Status("app", "unknown")) == []


def test_the_repair_is_what_is_left_out_of_the_held_state() -> None:
    lost = [Difference("file", "/etc/a", "x"), Difference("service", "app", "x"), Difference("package", "p", "x")]
    left = remaining(STATE, lost, Edits())
    assert (left.files, left.services, left.packages) == ((), (), ())
    assert remaining(STATE, lost, Edits("report")).files == STATE.files
    assert remaining(STATE, lost, Edits("keep", (("/etc/*", "restore"),))).files == ()


def test_what_the_head_says_of_changes_by_hand_comes_before_the_machines_own_settings() -> None:
    own = Edits("restore", (("/etc/motd", "keep"), ("/etc/hosts", "report")))
    assert own.under({}) == own
    both = own.under({"hand_edits": "REPORT", "hand_edit_paths": "/etc/motd=RESTORE,/srv/*=KEEP,/x=LATER"})
    said = {path: both.of(path) for path in ("/etc/motd", "/etc/hosts", "/srv/a/b", "/x", "/etc/other")}
    assert said == {
        "/etc/motd": "restore",
        "/etc/hosts": "report",
        "/srv/a/b": "keep",
        "/x": "report",
        "/etc/other": "report",
    }
    # A word of a newer head says nothing to this agent.
    assert own.under({"hand_edits": "SOMETHING"}) == own


async def test_a_file_is_read_only_when_its_times_or_size_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path / "node")
    await machine.apply(None, desired(File(path="/etc/a", content="one"), File(path="/etc/b", content="two")))
    records = machine.state.records()
    first = machine.watch.look(records)
    reads: list[str] = []
    read = machine.root.read
    monkeypatch.setattr(machine.root, "read", lambda path, **more: reads.append(path) or read(path, **more))
    assert machine.watch.look(records) == first
    assert reads == []
    machine.put("/etc/b", "six")
    assert machine.watch.look(records)["/etc/b"] != first["/etc/b"]
    assert reads == ["/etc/b"]


async def test_a_file_that_was_replaced_by_a_link_has_changed(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "node")
    await machine.apply(None, desired(File(path="/etc/a", content="one")))
    machine.put("/etc/other", "one")
    machine.at("/etc/a").unlink()
    machine.at("/etc/a").symlink_to("other")
    assert machine.watch.look(machine.state.records())["/etc/a"].digest == "link:other"


@pytest.mark.parametrize("time_s", [-(1 << 40), 1 << 40, 1 << 62])
async def test_a_file_may_claim_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time_s: int) -> None:
    machine = Machine(tmp_path / "node")
    await machine.apply(None, desired(File(path="/etc/a", content="one")))
    machine.put("/etc/a", "two")
    read = machine.root.read
    # Not every file system of a test takes such a time.
    monkeypatch.setattr(machine.root, "read", lambda path, **more: read(path, **more)._replace(mtime_ns=time_s * 10**9))
    assert machine.watch.look(machine.state.records())["/etc/a"].at == "an impossible time"


async def test_what_stands_around_a_block_may_change(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "node")
    file = File(path="/etc/hosts", content="one\n", block=True)
    await machine.apply(None, desired(file))
    records = machine.state.records()
    place = machine.at("/etc/hosts")
    place.write_text("before\n" + place.read_text() + "after\n")
    os.chmod(place, 0o600)

    def found() -> list[Difference]:
        return compare(records, machine.watch.look(records), desired(file), {}, None, {})

    assert found() == []
    place.write_text(place.read_text().replace("one", "two"))
    assert [difference.name for difference in found()] == ["/etc/hosts"]
    place.write_text("only theirs\n")
    assert [difference.what for difference in found()] == ["was removed"]


def test_a_service_that_could_not_start_and_is_no_longer_needed_is_still_stopped() -> None:
    held = desired(services=[])
    assert [service.name for service in with_failed(held, STATE, desired(services=[])).services] == ["app"]
    assert with_failed(held, STATE, STATE).services == ()
    assert with_failed(held, None, desired(services=[])) == held
