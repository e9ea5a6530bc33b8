"""What a run prints, in which order stages run, and how it ends."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
from pathlib import Path

import pytest
from tests.setup.engine import fakes

from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.setup.engine import Context, Journal, Stage, formats, order
from bedplate.setup.engine.choices import Chooser
from bedplate.setup.engine.logfile import LogFile


@pytest.fixture
def world(tmp_path: Path) -> Path:
    folder = tmp_path / "world"
    folder.mkdir()
    return folder


@pytest.fixture
def bench(tmp_path: Path) -> fakes.Bench:
    return fakes.Bench(tmp_path / "state")


async def test_a_run_prints_exactly_the_documented_lines(bench: fakes.Bench, world: Path) -> None:
    assert await bench.run(fakes.stages(world)).execute() == "completed"
    assert (
        bench.printed
        == """\
Executing 4 stages
##### Starting execution for 'Kubernetes Setup'
- kubernetes
- docker
## Progress: 0
#### stage: kubernetes: Get Kube Cluster
Looked around
## Progress: 25
#### stage: kubernetes: Make Etcd
## Progress: 50
#### stage: docker: Make Docker
## Progress: 75
#### stage: kubernetes: Make Cluster
## Progress: 100

Took:      00:00 min.
Progress: 100/100
##### Finished execution for 'Kubernetes Setup', status: completed

Kubernetes Setup finished!
"""
    )


@pytest.mark.parametrize(("count", "percents"), [(3, [0, 33, 66, 100]), (5, [0, 20, 40, 60, 80, 100])])
async def test_progress_is_rounded_down(bench: fakes.Bench, count: int, percents: list[int]) -> None:
    stages = [Stage(f"Stage {number}", "kubernetes", fakes.look) for number in range(count)]
    await bench.run(stages).execute()
    assert [int(line.split()[-1]) for line in bench.lines if line.startswith("## ")] == percents


async def test_the_time_is_in_minutes_and_seconds(bench: fakes.Bench) -> None:
    async def last(context: Context) -> None:
        assert isinstance(bench.clock, ManualClock)
        await asyncio.gather(context.clock.sleep(128), bench.clock.advance(128))

    await bench.run([Stage("Sleep", "kubernetes", last)]).execute()
    assert "Took:      02:08 min." in bench.lines


async def test_independent_stages_run_at_the_same_time_and_are_printed_in_order(bench: fakes.Bench) -> None:
    met = asyncio.Barrier(2)

    async def first(context: Context) -> None:
        await met.wait()
        await met.wait()
        context.say("first")

    async def second(context: Context) -> None:
        context.say("second")
        await met.wait()
        await met.wait()

    stages = [Stage("First", "kubernetes", first, needs=()), Stage("Second", "kubernetes", second, needs=())]
    assert await bench.run(stages).execute() == "completed"
    said = [line for line in bench.lines if line.startswith("####") or line in ("first", "second")]
    assert said[1:5] == ["#### stage: kubernetes: First", "first", "#### stage: kubernetes: Second", "second"]


async def test_a_failing_stage_ends_the_run_and_lets_those_beside_it_finish(bench: fakes.Bench, world: Path) -> None:
    stages = fakes.stages(world)
    stages[1] = dataclasses.replace(stages[1], run=fakes.refuse)
    assert await bench.run(stages).execute() == "failed"
    assert "Error: stage 'kubernetes: Make Etcd' failed: the disk is full" in bench.lines
    assert "  next: free some space" in bench.lines
    assert "##### Finished execution for 'Kubernetes Setup', status: failed" in bench.lines
    assert "Progress: 25/100" in bench.lines
    assert sorted(fakes.content(world)) == ["Make Docker.1", "Make Docker.2"]


async def test_abort_stops_without_reverting(bench: fakes.Bench, world: Path) -> None:
    stages = fakes.stages(world)
    stages[3] = dataclasses.replace(stages[3], run=fakes.refuse)
    assert await bench.run(stages, on_error="abort").execute() == "aborted"
    assert len(fakes.content(world)) == 4
    journal = Journal.load(bench.state, "default")
    assert journal is not None
    assert not journal.is_over
    assert [stage.state for stage in journal.record.stages] == ["done", "done", "done", "failed"]


async def test_undo_reverts_in_reverse_order_to_the_start(bench: fakes.Bench, world: Path) -> None:
    stages = fakes.stages(world)
    stages[3] = dataclasses.replace(stages[3], run=fakes.refuse)
    assert await bench.run(stages, on_error="undo").execute() == "undone"
    assert fakes.content(world) == {}
    undone = [line.removeprefix("#### undo: ") for line in bench.lines if line.startswith("#### undo: ")]
    assert undone == [
        "kubernetes: Make Cluster",
        "docker: Make Docker",
        "kubernetes: Make Etcd",
        "kubernetes: Get Kube Cluster",
    ]
    assert bench.lines[-1] == "Kubernetes Setup undone!"


async def test_a_stage_without_undo_is_reported(bench: fakes.Bench, world: Path) -> None:
    stages = fakes.stages(world)
    stages[1] = dataclasses.replace(stages[1], undo=None)
    stages[3] = dataclasses.replace(stages[3], run=fakes.refuse)
    await bench.run(stages, on_error="undo").execute()
    assert "Warning: this stage has no undo; this stays: two files" in bench.lines


async def test_what_cannot_be_taken_back_is_not_called_undone_and_goes_on(bench: fakes.Bench, world: Path) -> None:
    stages = [dataclasses.replace(stage, undo=None) for stage in fakes.stages(world)]
    broken = [*stages[:3], dataclasses.replace(stages[3], run=fakes.refuse)]
    assert await bench.run(broken, on_error="undo").execute() == "aborted"
    assert "Nothing of this can be taken back" in bench.lines and "Continue with --resume" in bench.lines
    journal = Journal.load(bench.state, "default")
    assert journal is not None and not journal.is_over
    with pytest.raises(errors.Invalid, match="cannot be taken back"):
        await bench.run(stages, journal=journal).undo()
    asked: list[str] = []
    chooser = Chooser(None, io.StringIO("undo\nabort\n"), asked.append)
    assert await bench.run(broken, journal=journal, chooser=chooser).execute() == "aborted"
    assert len(asked) == 2
    assert await bench.run(stages, journal=journal).execute() == "completed"


async def test_what_only_looked_is_taken_back_without_an_undo(bench: fakes.Bench, world: Path) -> None:
    stages = [dataclasses.replace(stage, undo=None) for stage in fakes.stages(world)]
    journal = Journal.begin(bench.state, fakes.record(stages))
    journal.mark("Get Kube Cluster", "running")
    assert await bench.run(stages, journal=journal).undo() == "undone"


async def test_a_failing_undo_is_told_and_can_be_repeated(bench: fakes.Bench, world: Path) -> None:
    stages = fakes.stages(world)
    broken = [*stages[:1], dataclasses.replace(stages[1], undo=fakes.refuse), stages[2]]
    broken.append(dataclasses.replace(stages[3], run=fakes.refuse))
    assert await bench.run(broken, on_error="undo").execute() == "failed"
    assert "Error: undo of stage 'kubernetes: Make Etcd' failed: the disk is full" in bench.lines
    journal = Journal.load(bench.state, "default")
    assert journal is not None
    assert await bench.run(stages, journal=journal).undo() == "undone"
    assert fakes.content(world) == {}


async def test_a_resumed_run_runs_only_what_is_not_done(bench: fakes.Bench, world: Path) -> None:
    stages = fakes.stages(world)
    broken = [*stages[:3], dataclasses.replace(stages[3], run=fakes.refuse)]
    await bench.run(broken).execute()
    (world / "Make Etcd.1").write_text("changed since")
    journal = Journal.load(bench.state, "default")
    assert journal is not None
    bench.printed = ""
    assert await bench.run(stages, journal=journal).execute() == "completed"
    assert fakes.content(world)["Make Etcd.1"] == "changed since"
    assert bench.lines.count("Done by the run that was interrupted") == 3


async def test_a_run_with_other_stages_is_not_resumed(bench: fakes.Bench, world: Path) -> None:
    stages = fakes.stages(world)
    await bench.run([*stages[:3], dataclasses.replace(stages[3], run=fakes.refuse)]).execute()
    journal = Journal.load(bench.state, "default")
    with pytest.raises(errors.Invalid, match="other stages"):
        await bench.run(stages[:3], journal=journal).execute()


async def test_a_run_that_changed_nothing_leaves_nothing_to_resume(bench: fakes.Bench) -> None:
    assert await bench.run([Stage("Check", "kubernetes", fakes.refuse)]).execute() == "failed"
    journal = Journal.load(bench.state, "default")
    assert journal is not None
    assert journal.is_over
    assert "Nothing was changed." in bench.lines


async def test_the_question_is_asked_until_it_is_answered(bench: fakes.Bench, world: Path) -> None:
    stages = fakes.stages(world)
    stages[3] = dataclasses.replace(stages[3], run=fakes.refuse)
    asked: list[str] = []
    chooser = Chooser(None, io.StringIO("what\n\nundo\n"), asked.append)
    assert await bench.run(stages, chooser=chooser).execute() == "undone"
    assert len(asked) == 3


async def test_without_an_answer_the_run_has_failed(bench: fakes.Bench) -> None:
    chooser = Chooser(None, io.StringIO(""), lambda text: None)
    assert await bench.run([Stage("A", "b", fakes.refuse)], chooser=chooser).execute() == "failed"


async def test_debug_shows_where_the_error_was_raised(bench: fakes.Bench) -> None:
    assert await bench.run([Stage("A", "b", fakes.refuse)], on_error="debug").execute() == "failed"
    assert any("in refuse" in line for line in bench.lines)


async def test_remote_debug_is_a_session_on_a_socket(bench: fakes.Bench) -> None:
    running = asyncio.create_task(bench.run([Stage("A", "b", fakes.refuse)], on_error="remotedebug").execute())
    path = bench.state / "default" / "debug.sock"
    while not any("UNIX-CONNECT" in line for line in bench.lines):
        assert not running.done()
        await asyncio.sleep(0)
    assert path.stat().st_mode & 0o777 == 0o600
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(b"where\nq\n")
    writer.write_eof()
    session = await reader.read()
    assert b"the disk is full" in session
    assert await running == "failed"
    writer.close()
    assert not path.exists()


async def test_json_has_one_object_in_each_line(bench: fakes.Bench, world: Path) -> None:
    stages = [*fakes.stages(world)[:3], Stage("Fail", "kubernetes", fakes.refuse)]
    await bench.run(stages, format_=formats.as_json, on_error="undo").execute()
    rows = [json.loads(line) for line in bench.lines]
    assert all({"time", "level", "event"} <= set(row) for row in rows)
    assert rows[0]["event"] == "began"
    assert rows[-1] | {"time": ""} == {
        "time": "",
        "level": "info",
        "event": "finished",
        "title": fakes.TITLE,
        "status": "undone",
        "percent": 100,
        "took_s": 0.0,
    }


async def test_the_runner_gets_five_fields_in_each_line(bench: fakes.Bench, world: Path) -> None:
    await bench.run(fakes.stages(world), format_=formats.as_runner).execute()
    assert {line.count("\t") for line in bench.lines} == {4}
    assert "stage\t\tdocker\tMake Docker\t" in bench.lines
    assert bench.lines[-1] == "finished\t100\t\t\tcompleted 0 Kubernetes Setup"


async def test_secrets_are_stars_on_the_console_in_the_log_and_in_the_journal_of_a_run_that_is_over(
    bench: fakes.Bench, tmp_path: Path
) -> None:
    async def leak(context: Context) -> None:
        assert context.answers["password"] == "hunter2"
        context.mask("made-later")
        context.notes["password"] = "hunter2"
        context.say("the password is hunter2, the token made-later and abcdef.0123456789abcdef")
        context.log.warning("hunter2 Authorization: Bearer abcdefghij.klm")
        raise errors.Invalid("hunter2 is wrong", hint="not hunter2")

    log, _ = LogFile.open(tmp_path / "log", tmp_path / "other", bench.clock)
    run = bench.run([Stage("Leak", "b", leak)], secrets=["hunter2"], answers={"password": "hunter2"}, log=log)
    await run.execute()
    log.close()
    file = run.journal.file
    texts = [bench.printed, (tmp_path / "log").read_text(), file.read_text()]
    for text in texts:
        for secret in ("hunter2", "made-later", "abcdef.0123456789abcdef", "abcdefghij"):
            assert secret not in text
        assert "********" in text


async def test_the_journal_of_a_run_is_for_its_owner_alone(bench: fakes.Bench, world: Path) -> None:
    run = bench.run(fakes.stages(world))
    assert run.journal.file.stat().st_mode & 0o777 == 0o600
    assert run.journal.file.parent.stat().st_mode & 0o777 == 0o700


async def test_notes_are_on_disk_when_they_are_assigned(bench: fakes.Bench) -> None:
    async def note(context: Context) -> None:
        context.notes["cluster"] = {"members": ("a", "b")}
        journal = Journal.load(bench.state, "default")
        assert journal is not None
        assert journal.notes["cluster"] == context.notes["cluster"] == {"members": ["a", "b"]}
        context.notes["cluster"]["members"].append("c")
        assert context.notes["cluster"] == {"members": ["a", "b"]}

    assert await bench.run([Stage("Note", "b", note)]).execute() == "completed"


def test_log_lines_have_the_documented_shape(tmp_path: Path) -> None:
    import re

    log, sentence = LogFile.open(tmp_path / "absent" / "log", tmp_path / "log", ManualClock())
    log.write("info", "bedplate.setup", "one\ntwo")
    log.write("debug", "bedplate.setup", "only with --verbose")
    log.close()
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == 2
    assert re.fullmatch(r"I \d\d-\d\d-\d\d \d\d:\d\d:\d\d \| bedplate\.setup \| one", lines[0])
    assert "cannot be written (No such file or directory); logging to" in sentence


def test_a_damaged_journal_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "default").mkdir()
    (tmp_path / "default" / "journal.json").write_text('{"title": 1')
    with pytest.raises(errors.Invalid, match="is damaged") as told:
        Journal.load(tmp_path, "default")
    assert told.value.hint


@pytest.mark.parametrize("name", ["", "..", ".", "a/b", ".hidden"])
def test_a_name_that_is_no_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(errors.Invalid):
        Journal.load(tmp_path, name)


def test_skipped_stages_go_and_the_others_keep_their_order(world: Path) -> None:
    stages = fakes.stages(world)
    stages[1] = dataclasses.replace(stages[1], tags=frozenset({"packages"}))
    stages.append(Stage("Last", "kubernetes", fakes.look, needs=("Make Etcd",)))
    kept = order.without(stages, {"packages"})
    assert [stage.name for stage in kept] == ["Get Kube Cluster", "Make Docker", "Make Cluster", "Last"]
    assert kept[-1].needs == ("Get Kube Cluster",)
    order.check(kept)


def test_stages_that_could_never_run_are_refused() -> None:
    with pytest.raises(errors.Invalid, match="which is not declared before it"):
        order.check([Stage("A", "b", fakes.look, needs=("B",)), Stage("B", "b", fakes.look)])
    with pytest.raises(errors.Invalid, match="two stages"):
        order.check([Stage("A", "b", fakes.look), Stage("A", "b", fakes.look)])


def test_the_plan_says_what_each_stage_reads_and_changes(world: Path) -> None:
    lines = order.described(fakes.stages(world))
    assert lines[:4] == [
        "1. kubernetes: Get Kube Cluster",
        "   changes: nothing",
        "2. kubernetes: Make Etcd",
        "   after:   Get Kube Cluster",
    ]
    assert "   undo:    yes" in lines
