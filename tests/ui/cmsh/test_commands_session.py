"""version, whoami, alias, run, time, watch, jobs, ?, and output into files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.ui.transcripts.driving import Desk

import bedplate
from bedplate.core.clock import ManualClock
from bedplate.head.service import Head


async def test_version_and_whoami(desk: Desk, site_head: Head) -> None:
    assert bedplate.__version__ in await desk.do("version")
    who = {row["Parameter"]: row["Value"] for row in json.loads(await desk.do("whoami -d {}"))}
    assert (who["User"], who["Role"], who["Head node"], who["Active"]) == ("alice", "admin", "basecm10", True)
    assert who["Revision"] == site_head.revision


async def test_a_question_mark_is_help(desk: Desk) -> None:
    assert await desk.do("?") == await desk.do("help")
    assert await desk.do("? set") == await desk.do("help set")


async def test_an_alias_stands_for_commands(desk: Desk) -> None:
    await desk.do("alias names 'device list -f hostname'", "alias both 'category list; names'")
    assert await desk.do("names node00[1-2]") == await desk.do("device list -f hostname node00[1-2]")
    assert "node001" in await desk.do("both")
    assert await desk.do("names | grep -c node001") == "1\n"
    assert await desk.do("alias names") == "device list -f hostname\n"
    assert [row[0] for row in (await desk.table("alias")).rows] == ["both", "names"]
    assert "names" in desk.completes("nam")
    await desk.do("unalias both")
    assert "both" in (await desk.fails("both")).err
    assert "both" in (await desk.fails("unalias both")).err


async def test_an_alias_may_go_somewhere_and_never_runs_itself(desk: Desk) -> None:
    await desk.do("alias first 'device use node001'", "first")
    assert desk.prompt == "[basecm10->device[node001]]% "
    await desk.do("alias loop 'loop'")
    assert "loop" in (await desk.fails("loop")).err


@pytest.mark.parametrize("name", ["list", "device", "a;b", "9", "-x"])
async def test_an_alias_is_no_command_and_no_mode(desk: Desk, name: str) -> None:
    await desk.fails(f"alias '{name}' 'device list'")


async def test_a_file_runs_in_this_shell(desk: Desk, tmp_path: Path) -> None:
    script = tmp_path / "a.cmsh"
    script.write_text("category use default\nset notes good # why\nget notes\n")
    assert await desk.do(f"run {script}") == "good\n"
    assert desk.prompt == "[basecm10->category*[default*]]% "
    script.write_text("get nothing\nget notes\n")
    said = await desk.fails(f"run {script}")
    assert (said.out, "line 1 of" in said.err) == ("good\n", True)
    assert (await desk.fails(f"run -q {script}")).out == ""
    said = await desk.fails(f"run {script}; commit")
    assert "1 command has failed" in said.err
    script.write_text(f"run {script}\n")
    assert "run each other" in (await desk.fails(f"run {script}")).err
    assert "cannot be read" in (await desk.fails(f"run {tmp_path}/none")).err


async def test_time_tells_how_long_a_command_took(desk: Desk) -> None:
    said = await desk.type("time category foreach * (get name)")
    assert (said.code, said.err.startswith("time: "), "default" in said.out) == (0, True, True)
    assert (await desk.type("time category use nothing")).code == 1
    await desk.type("time category use default")
    assert desk.prompt == "[basecm10->category[default]]% "


class Patient(ManualClock):
    """A clock that says how long somebody would have slept."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_watch_runs_a_command_again(desk: Desk) -> None:
    clock = Patient()
    desk.shell.desk.clock = clock
    assert (await desk.fails("watch category list")).code == 2
    once = await desk.do("category list")
    assert await desk.do("watch -n 5 --count 3 category list") == once * 3
    assert clock.slept == [5, 5]
    assert (await desk.fails("watch --count 3 category get nothing x")).code == 1


async def test_output_goes_to_a_file(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    expected = await desk.do("category list")
    assert await desk.do(f"category list > {file}") == ""
    assert file.read_text() == expected
    await desk.do(f"category list >>{file}")
    assert file.read_text() == expected * 2
    await desk.do(f"category list >{file}; category get default name >> '{file}'")
    assert file.read_text() == expected + "default\n"
    await desk.fails(f"category get nothing name > {file}")
    assert file.read_text() == expected + "default\n", "a refused command writes nothing"
    assert "cannot be written" in (await desk.fails(f"category list > {tmp_path}/none/x")).err
    for line in ("category list >", f"category list > {file} more", f"category list > {file} | cat"):
        assert (await desk.fails(line)).code == 2
    await desk.do("category set default notes 'a > b'", "category set default notes a->b")
    assert f"{file}" in desk.completes(f"category list > {tmp_path}/ou")


async def test_what_was_not_reported_is_no_job(desk: Desk) -> None:
    assert (await desk.table("jobs")).rows == []
