"""Changes on a machine: what is written, what was there before, what happens when the agent is killed in between."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.agent.machines import Machine, Packages, desired

from bedplate.agent.commands import Ended
from bedplate.agent.observe import Edits
from bedplate.agent.state import Held
from bedplate.api.desired import BEGIN, END, Desired, File

CONF = File(path="/etc/app/app.conf", content="one\n", mode="0640", services=("app",), action="RESTART")
BLOCK = File(path="/etc/hosts", content="10.0.0.1 a\n", block=True)
NOTHING = Desired(node="node001")


def with_content(file: File, content: str) -> File:
    return msgspec.structs.replace(file, content=content)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "node")


async def test_a_node_gets_files_packages_and_services(machine: Machine) -> None:
    outcome = await machine.apply(None, desired(CONF, services=["app"], packages=("p",)))
    assert outcome.failed == ()
    assert machine.at("/etc/app/app.conf").read_text() == "one\n"
    assert machine.at("/etc/app/app.conf").stat().st_mode & 0o777 == 0o640
    assert machine.packages.did == ["install p"]
    assert machine.services.did == ["start app"]
    assert machine.services.enabled == {"app"}


async def test_unassigning_leaves_the_node_byte_for_byte_as_it_was(machine: Machine) -> None:
    machine.put("/etc/hosts", "127.0.0.1 localhost", 0o664)
    machine.put("/etc/other.conf", "theirs\r\n", 0o600)
    machine.at("/etc/link.conf").symlink_to("other.conf")
    before = machine.tree()
    first = desired(
        CONF,
        BLOCK,
        File(path="/etc/other.conf", content="ours"),
        File(path="/etc/link.conf", content="ours"),
        File(path="/opt/a/b/c", content="", folder_mode="0700"),
        services=["app"],
        packages=("p",),
    )
    await machine.apply(None, first)
    second = desired(with_content(CONF, "two"), with_content(BLOCK, "x\n"), File(path="/etc/other.conf", content="2"))
    await machine.apply(first, second)
    outcome = await machine.apply(second, NOTHING)
    assert outcome.failed == ()
    assert machine.tree() == before
    assert machine.services.running == {}
    assert machine.services.enabled == set()
    assert machine.packages.present == set()
    assert machine.state.records() == []


async def test_a_folder_that_was_made_for_several_files_goes_with_the_last(machine: Machine) -> None:
    before = machine.tree()
    names = ("certs/ca.crt", "certs/member.crt", "a.conf", "z.conf")
    state = desired(*(File(path=f"/cm/local/app/{name}", content=name) for name in names))
    await machine.apply(None, state)
    fewer = msgspec.structs.replace(state, files=state.files[2:])
    await machine.apply(state, fewer)
    await machine.apply(fewer, NOTHING)
    assert machine.tree() == before


async def test_packages_that_were_there_stay(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "node", packages=Packages("p"))
    await machine.apply(None, desired(packages=("p", "q")))
    await machine.apply(desired(packages=("p", "q")), NOTHING)
    assert machine.packages.did == ["install q", "remove q"]


async def test_a_service_that_was_enabled_before_stays_so(machine: Machine) -> None:
    machine.services.enabled.add("app")
    await machine.apply(None, desired(services=["app"]))
    await machine.apply(desired(services=["app"]), NOTHING)
    assert machine.services.enabled == {"app"}


async def test_item_218_what_others_wrote_around_a_block_stays(machine: Machine) -> None:
    place = machine.put("/etc/hosts", "mine\r\n", 0o664)
    await machine.apply(None, desired(BLOCK))
    assert place.read_bytes() == f"mine\r\n{BEGIN}\n10.0.0.1 a\n{END}\n".encode()
    assert place.stat().st_mode & 0o777 == 0o664
    place.write_bytes(place.read_bytes() + b"later\n")
    await machine.apply(desired(BLOCK), NOTHING)
    assert place.read_bytes() == b"mine\r\nlater\n"


async def test_a_block_alone_in_its_file_takes_the_file_with_it(machine: Machine) -> None:
    await machine.apply(None, desired(BLOCK))
    await machine.apply(desired(BLOCK), NOTHING)
    assert not machine.at("/etc/hosts").exists()


async def test_a_released_file_stays_as_it_is(machine: Machine) -> None:
    await machine.apply(None, desired(CONF))
    await machine.apply(desired(CONF), Desired(node="node001", unmanaged=(CONF.path,)))
    assert machine.at(CONF.path).read_text() == "one\n"
    assert machine.state.record(CONF.path) is None


async def test_item_124_folders_of_a_file_that_was_left_to_people_for_a_while_go_with_it_in_the_end(
    machine: Machine,
) -> None:
    before = machine.tree()
    main, dropin = File(path="/cm/app/main.conf", content=""), File(path="/cm/app/conf.d/a.conf", content="a")
    both, one = desired(main, dropin), Desired(node="node001", files=(main,), unmanaged=(dropin.path,))
    await machine.apply(None, both)
    await machine.apply(both, one)
    machine.at(dropin.path).write_text("by hand")
    await machine.apply(one, desired(main))
    assert machine.at(dropin.path).read_text() == "by hand"
    machine.at(dropin.path).unlink()
    await machine.apply(desired(main), both)
    await machine.apply(both, NOTHING)
    assert machine.tree() == before


async def test_item_131_a_file_that_its_test_refuses_is_never_in_place(machine: Machine) -> None:
    tested = msgspec.structs.replace(CONF, test=("cat", "-t", "{}"))
    await machine.apply(None, desired(tested, services=["app"]))
    assert machine.commands.contents == ["one\n"]
    machine.commands.answers["cat"] = Ended(1, "", "cat: [emerg] unknown directive\n")
    wrong = with_content(tested, "bad")
    outcome = await machine.apply(desired(tested, services=["app"]), desired(wrong, services=["app"]))
    assert [failed.why for failed in outcome.failed] == ["cat refuses it: exit code 1: cat: [emerg] unknown directive"]
    assert machine.at(CONF.path).read_text() == "one\n"
    assert machine.services.did == ["start app"]
    assert os.listdir(machine.at("/etc/app")) == ["app.conf"]


async def test_a_failed_test_of_a_new_file_leaves_no_folder(machine: Machine) -> None:
    machine.commands.answers["cat"] = Ended(1)
    await machine.apply(None, desired(msgspec.structs.replace(CONF, test=("cat", "{}"))))
    assert not machine.at("/etc").exists()


async def test_a_full_disk_is_a_failure_with_a_remedy_and_nothing_is_lost(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await machine.apply(None, desired(CONF))
    rename = os.rename

    def full(source: Any, target: Any, **more: Any) -> None:
        if str(target).endswith("app.conf"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rename(source, target, **more)

    monkeypatch.setattr(os, "rename", full)
    outcome = await machine.apply(desired(CONF), desired(with_content(CONF, "two")))
    assert [failed.why for failed in outcome.failed] == [
        f"cannot write {CONF.path}: no space left on device; free space on that file system"
    ]
    record = machine.state.record(CONF.path)
    assert record is not None
    assert record.digest == CONF.digest
    monkeypatch.undo()
    await machine.apply(desired(CONF), NOTHING)
    assert not machine.at("/etc").exists()


async def test_what_the_agent_wrote_is_never_taken_for_the_original(machine: Machine) -> None:
    """Killed between the file and the end of its step, it does the step again."""
    machine.put(CONF.path, "theirs")
    machine.state.open()
    await machine.applier.apply(None, desired(CONF), "etag")
    again = Machine(machine.folder)
    change = await again.applier.resume()
    assert change is not None
    again.state.end()
    await again.apply(desired(CONF), NOTHING)
    assert machine.at(CONF.path).read_text() == "theirs"


async def test_an_interrupted_change_is_finished_without_doing_a_restart_twice(machine: Machine) -> None:
    first, second = desired(CONF, services=["app"]), desired(with_content(CONF, "two"), services=["app"])
    await machine.apply(None, first)
    ended = machine.state.ended
    machine.state.ended = lambda step, why: None if step.verb == "restart" else ended(step, why)  # type: ignore[method-assign]
    await machine.applier.apply(first, second, "etag")
    assert machine.services.did == ["start app", "restart app"]
    machine.state.close()
    machine.state.ended = ended  # type: ignore[method-assign]
    resumed = await machine.applier.resume()
    assert resumed is not None
    assert machine.services.did == ["start app", "restart app"]
    assert [step.verb for step in resumed[1].done] == ["write", "restart"]


async def test_steps_that_were_done_are_not_done_again(machine: Machine) -> None:
    first, second = desired(CONF, services=["app"]), desired(with_content(CONF, "two"), services=["app"])
    await machine.apply(None, first)
    await machine.applier.apply(first, second, "etag")
    machine.state.close()
    place = machine.at(CONF.path)
    before = place.stat().st_ino
    assert await machine.applier.resume() is not None
    assert machine.services.did == ["start app", "restart app"]
    assert place.stat().st_ino == before


async def test_a_restart_that_was_only_begun_is_done(machine: Machine) -> None:
    first, second = desired(CONF, services=["app"]), desired(with_content(CONF, "two"), services=["app"])
    await machine.apply(None, first)

    async def killed(name: str, timeout_s: float = 90.0) -> str | None:
        raise KeyboardInterrupt

    restart, machine.services.restart = machine.services.restart, killed  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        await machine.applier.apply(first, second, "etag")
    machine.services.restart = restart  # type: ignore[method-assign]
    machine.state.close()
    assert await machine.applier.resume() is not None
    assert machine.services.did == ["start app", "restart app"]


async def test_a_journal_of_a_change_that_ended_is_not_gone_on_with(machine: Machine) -> None:
    machine.state.open()
    await machine.applier.apply(None, desired(CONF), "etag")
    machine.state.close()
    machine.state.save_held(Held(state=desired(CONF)))
    assert await machine.applier.resume() is None
    assert not (Path(machine.state.folder) / "journal").exists()


async def test_a_file_changed_by_hand_is_kept_where_the_site_says_so(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "node", edits=Edits("restore", (("/etc/app/*", "keep"),)))
    await machine.apply(None, desired(CONF))
    machine.put(CONF.path, "by hand")
    await machine.apply(desired(CONF), desired(with_content(CONF, "two")))
    assert machine.at(CONF.path).read_text() == "by hand"
    assert machine.applier.kept == {CONF.path}


async def test_item_218_what_people_wrote_is_kept_aside_when_it_is_written_over(machine: Machine) -> None:
    await machine.apply(None, desired(CONF))
    machine.put(CONF.path, "by hand")
    await machine.apply(desired(CONF), desired(with_content(CONF, "two")))
    assert machine.at(CONF.path).read_text() == "two"
    kept = list((Path(machine.state.folder) / "edited").iterdir())
    assert [place.read_text() for place in kept] == ["by hand"]


async def test_a_failed_package_is_not_counted_as_ours(machine: Machine) -> None:
    machine.packages.broken["p"] = "E: Unable to locate package p"
    outcome = await machine.apply(None, desired(packages=("p",)))
    assert [failed.why for failed in outcome.failed] == ["E: Unable to locate package p"]
    assert machine.state.installed() == set()


async def test_a_service_that_fails_with_its_new_file_is_told_with_what_to_do_and_both_are_tried_again(
    machine: Machine,
) -> None:
    """The file is not put back by itself: it is what the head says."""
    before, after = desired(CONF, services=["app"]), desired(with_content(CONF, "two"), services=["app"])
    await machine.apply(None, before)
    machine.services.broken["app"] = "exit code 1; bad option"
    outcome = await machine.apply(before, after)
    assert [failed.why for failed in outcome.failed] == [
        "exit code 1; bad option; /etc/app/app.conf stays as the head says: commit a correction, or rollout undo"
    ]
    assert machine.at(CONF.path).read_text() == "two"
    assert outcome.held.files == (CONF,), "it counts as not written"
    machine.services.broken.clear()
    outcome = await machine.apply(outcome.held, after)
    assert outcome.failed == () and machine.services.did[-1] == "restart app"


async def test_nobody_else_reads_the_state(machine: Machine) -> None:
    await machine.apply(None, desired(msgspec.structs.replace(CONF, secret=True)))
    folder = Path(machine.state.folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {place.stat().st_mode & 0o077 for place in folder.rglob("*") if place.is_file()} == {0}
