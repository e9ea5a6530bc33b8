"""Runs that the daemon starts: real processes of the tool, with stages that need no nodes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import types
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.setup.places import MINIMAL
from tests.setup.serving import faking
from tests.setup.serving.faking import Fake
from tests.waiting import until

from bedplate.api.setups import SetupRun
from bedplate.core import errors
from bedplate.head.folder import datafolder
from bedplate.head.setups import Busy
from bedplate.setup.engine import lock
from bedplate.setup.engine.said import Said, last_lines
from bedplate.setup.serving import KubernetesSetups, runs

NAMED = MINIMAL.replace("kubernetes:\n", "kubernetes:\n  name: {name}\n", 1)


class Daemons:
    """Setups of one head after the other, as a daemon that starts again has them."""

    def __init__(self, fake: Fake, head: Any) -> None:
        self.fake = fake
        self._head = head
        self.setups = self.fresh()

    def fresh(self) -> KubernetesSetups:
        program = faking.program(self.fake.folder)
        self.setups = KubernetesSetups(self._head, self.fake.data, "basecm10", program=program)
        return self.setups

    async def deploy(self, by: str = "ann", name: str = "default") -> SetupRun:
        form = self.setups.check(NAMED.format(name=name).encode())
        assert not form.problems
        return await self.setups.deploy(form, by)

    async def ends(self, status: str, cluster: str = "default") -> SetupRun:
        await until(lambda: self.setups.run(cluster).status == status, f"{status}: {self.setups.run(cluster)}")
        return self.setups.run(cluster)

    async def holds(self, cluster: str = "default") -> SetupRun:
        """Return once the second stage waits."""

        def is_there() -> bool:
            if cluster not in runs.clusters(self.fake.state):
                return False
            run = self.setups.run(cluster)
            return run.status == "running" and len(run.stages) > 1 and bool(run.stages[1].lines)

        await until(is_there, "the second stage waits")
        return self.setups.run(cluster)


@pytest.fixture
async def daemons(tmp_path: Path) -> AsyncIterator[Daemons]:
    fake = await Fake(tmp_path).make()
    async with datafolder.open_head(fake.data) as opened:
        head = types.SimpleNamespace(tree=opened.head.tree)  # closed again: the tool opens the folder itself
    yield Daemons(fake, head)
    fake.end()


async def test_a_deployment_runs_to_its_end_with_stages_times_lines_and_who_started_it(daemons: Daemons) -> None:
    first = await daemons.deploy()
    assert first.status in ("starting", "running")
    run = await daemons.ends("completed")
    assert (run.by, run.percent, run.operation, run.actions) == ("ann", 100, "deploy", [])
    assert [stage.state for stage in run.stages] == ["done"] * 4
    assert all(stage.took is not None and stage.began and stage.ended for stage in run.stages)
    assert run.stages[0].lines == ["Looked around"]
    assert run.stages[1].lines[0] == "Pulling from https://robot:********@mirror.example.com/"
    assert daemons.fake.leaks() == []
    answers = daemons.fake.state / "default" / "answers.yaml"
    await until(lambda: bool(daemons.setups.runs()) and not answers.exists(), "the answers are forgotten")
    assert [each.cluster for each in daemons.setups.runs()] == ["default"]


async def test_the_command_line_has_no_answers_and_the_process_a_session_of_its_own(daemons: Daemons) -> None:
    daemons.fake.will("hold")
    await daemons.deploy()
    run = await daemons.holds()
    words = Path(f"/proc/{run.process}/cmdline").read_text().split("\0")
    assert "node001" not in " ".join(words) and "--json" in words
    assert os.getsid(run.process) == run.process != os.getsid(0)
    file = Path(words[words.index("-c") + 1])
    assert file.stat().st_mode & 0o777 == 0o600
    daemons.fake.will_not("hold")
    await daemons.ends("completed")


async def test_of_two_who_deploy_at_once_one_does_and_the_other_is_told_who(daemons: Daemons) -> None:
    daemons.fake.will("hold")
    results = await asyncio.gather(
        daemons.deploy("ann", "first"), daemons.deploy("bob", "second"), return_exceptions=True
    )
    refused = [result for result in results if isinstance(result, Busy)]
    started = [result for result in results if isinstance(result, SetupRun)]
    assert len(refused) == len(started) == 1
    assert "started by ann" in str(refused[0]) and refused[0].cluster == "first"
    await daemons.holds("first")
    with pytest.raises(Busy, match="deploy of the cluster first, started by ann, process"):
        await daemons.deploy("bob", "second")
    daemons.fake.will_not("hold")
    await daemons.ends("completed", "first")


async def test_item_216_a_daemon_that_starts_again_finds_the_run_that_goes_on(daemons: Daemons) -> None:
    daemons.fake.will("slow")
    daemons.fake.will("hold")
    await daemons.deploy()
    setups = daemons.fresh()
    assert (setups.run("default").status, setups.run("default").by) == ("starting", "ann")
    with pytest.raises(Busy):
        await daemons.deploy("bob")
    daemons.fake.will_not("slow")
    run = await daemons.holds()
    assert (run.by, run.actions) == ("ann", ["abort"])
    daemons.fresh()
    daemons.fake.will_not("hold")
    assert (await daemons.ends("completed")).by == "ann"


@pytest.mark.parametrize("action", ["resume", "undo"])
async def test_items_216_217_a_killed_run_is_told_as_interrupted_and_can_go_on(daemons: Daemons, action: str) -> None:
    daemons.fake.will("hold")
    await daemons.deploy()
    os.kill((await daemons.holds()).process, signal.SIGKILL)
    run = await daemons.ends("interrupted")
    assert run.actions == ["resume", "undo"] and "killed" in run.trouble
    assert lock.holder(daemons.fake.state) is None
    daemons.fake.will_not("hold")
    await daemons.setups.act("default", action, "bob")  # type: ignore[arg-type]
    run = await daemons.ends("completed" if action == "resume" else "undone")
    assert run.by == "bob"
    left = sorted(file.name for file in daemons.fake.world.iterdir())
    assert bool(left) == (action == "resume")


async def test_a_failed_run_is_told_with_its_reason_and_what_can_be_done(daemons: Daemons) -> None:
    daemons.fake.will("fail")
    await daemons.deploy()
    run = await daemons.ends("failed")
    assert run.actions == ["resume", "undo"]
    assert run.trouble == "Make Etcd: https://robot:********@mirror.example.com/ answered 500"
    assert run.stages[1].lines[-1] == "  next: look at the mirror"
    assert daemons.fake.leaks() == []
    with pytest.raises(errors.Conflict, match="no run for the cluster default is under way"):
        await daemons.setups.act("default", "abort", "ann")
    await daemons.setups.act("default", "undo", "ann")
    run = await daemons.ends("undone")
    with pytest.raises(errors.Conflict, match="it cannot be resumed"):
        await daemons.setups.act("default", "resume", "ann")


async def test_a_run_that_is_aborted_can_be_resumed(daemons: Daemons) -> None:
    daemons.fake.will("hold")
    await daemons.deploy()
    await daemons.holds()
    await daemons.setups.act("default", "abort", "ann")
    run = await daemons.ends("aborted")
    assert run.actions == ["resume", "undo"] and run.stages[1].error == "interrupted by SIGTERM"
    daemons.fake.will_not("hold")
    await daemons.setups.act("default", "resume", "ann")
    await daemons.ends("completed")


async def test_a_tool_that_ends_before_its_first_stage_says_why(daemons: Daemons) -> None:
    await daemons.setups.act("nowhere", "remove", "ann")
    run = await daemons.ends("refused", "nowhere")
    assert run.trouble.startswith("there is no cluster 'nowhere' to remove")
    assert (run.operation, run.by, run.stages) == ("remove", "ann", [])


async def test_a_run_of_a_terminal_is_shown_and_keeps_others_out(daemons: Daemons) -> None:
    fake = daemons.fake
    fake.will("hold")
    answers = fake.folder / "answers.yaml"
    answers.write_text(MINIMAL)
    words = [*faking.program(fake.folder), "-c", str(answers), "--data", str(fake.data)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as terminal:
        try:
            run = await daemons.holds()
            assert (run.by, run.process, run.actions) == ("", terminal.pid, ["abort"])
            with pytest.raises(Busy, match=f"deploy of the cluster default, process {terminal.pid}, since"):
                await daemons.deploy("bob", "second")
            fake.will_not("hold")
            await daemons.ends("completed")
        finally:
            terminal.kill()


async def test_whoever_listens_is_told_when_a_run_moves_on(daemons: Daemons) -> None:
    changes = daemons.setups.changes()
    first = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0)
    await daemons.deploy()
    assert await first == "default"
    await daemons.ends("completed")
    await changes.aclose()


async def test_asking_who_runs_keeps_no_run_from_beginning(tmp_path: Path) -> None:
    me = lock.Holder(os.getpid(), "now", "a test", "default")
    with lock.hold(tmp_path, me):
        assert lock.holder(tmp_path) == me
    assert lock.holder(tmp_path) is None


@pytest.mark.parametrize("name", ["..", "a/b", ".hidden", ""])
async def test_a_name_that_is_none_has_no_run(daemons: Daemons, name: str) -> None:
    with pytest.raises(errors.NotFound):
        daemons.setups.run(name)
    with pytest.raises(errors.Invalid):
        await daemons.setups.act(name, "remove", "ann")


async def test_a_journal_that_cannot_be_read_is_told_and_hides_no_other(daemons: Daemons) -> None:
    await daemons.deploy()
    await daemons.ends("completed")
    broken = daemons.fake.state / "broken"
    broken.mkdir()
    (broken / "journal.json").write_text("{")
    listed = {run.cluster: run for run in daemons.setups.runs()}
    assert listed["default"].status == "completed"
    assert "is damaged" in listed["broken"].trouble


async def test_links_in_the_state_folder_lead_nowhere(daemons: Daemons, tmp_path: Path) -> None:
    """Whoever could write there must not choose which files the tool replaces, maybe as root."""
    precious, elsewhere = tmp_path / "precious", tmp_path / "elsewhere"
    precious.write_text("kept")
    elsewhere.mkdir()
    folder = daemons.fake.state / "default"
    folder.mkdir(parents=True)
    for name in ("answers.yaml", ".answers.yaml.new", "start.json", ".start.json.new", "output", "said.jsonl"):
        (folder / name).symlink_to(precious)
    (folder / ".journal.json.new").symlink_to(precious)
    await daemons.deploy()
    run = await daemons.ends("completed")
    assert (precious.read_text(), run.by) == ("kept", "ann")
    (daemons.fake.state / "other").symlink_to(elsewhere)
    with pytest.raises(errors.Invalid, match="is a symbolic link"):
        await daemons.deploy(name="other")
    (daemons.fake.state / "lock").unlink()
    (daemons.fake.state / "lock").symlink_to(precious)
    with pytest.raises(errors.Invalid, match="lock"):
        await daemons.deploy(name="third")
    assert (precious.read_text(), list(elsewhere.iterdir())) == ("kept", [])


async def test_damaged_files_of_one_run_keep_no_other_from_being_listed_or_started(daemons: Daemons) -> None:
    for name, content in (("a", "{"), ("b", ""), ("c", "null")):
        (daemons.fake.state / name).mkdir(parents=True)
        (daemons.fake.state / name / "start.json").write_text(content)
    await daemons.deploy()
    await daemons.ends("completed")
    (daemons.fake.state / "a" / "journal.json").write_text('{"title": 1}')
    listed = {run.cluster: run.status for run in daemons.setups.runs()}
    assert listed == {"default": "completed", "a": "failed"}
    await daemons.deploy(name="other")
    await daemons.ends("completed", "other")


async def test_a_cluster_cannot_be_called_like_a_file_of_the_tool(daemons: Daemons) -> None:
    form = daemons.setups.check(NAMED.format(name="lock").encode())
    assert [(each.path, each.text) for each in form.problems] == [
        ("kubernetes.name", "lock is a file of the tool; choose another name")
    ]


def test_what_stages_say_without_end_is_kept_short_and_the_last_lines_are_shown(tmp_path: Path) -> None:
    said = Said.fresh(tmp_path)
    for number in range(2000):
        said.add("Noisy", f"{number}\n" + "x" * 400 + "\n" + "\n".join(["y" * 400] * 20))
    said.add("Noisy", "the end")
    assert (tmp_path / "said.jsonl").stat().st_size < 9 << 20
    assert last_lines(tmp_path)["Noisy"][-1] == "the end"
