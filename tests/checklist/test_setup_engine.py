"""The setup engine by its numbers: what cm-kubernetes-setup prints, and how a run ends."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.setup.conftest import tool
from tests.setup.engine import fakes
from tests.setup.engine.test_kills import CHILD
from tests.setup.tool.driving import Tool

from bedplate.api.headapi import Whoami
from bedplate.core import errors
from bedplate.setup.engine import Context, Stage
from bedplate.setup.engine.choices import Chooser
from bedplate.setup.tool import heads, operations

__all__ = ["tool"]


def failing(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the last stage fail."""
    stages = tool.stages()
    stages[3] = dataclasses.replace(stages[3], run=fakes.refuse)
    monkeypatch.setattr(operations, "deployment", lambda answers, site: stages)


def test_item_40_a_run_prints_header_plugins_progress_time_and_status_in_order(tool: Tool) -> None:
    done = tool.deploy()
    assert done.exit_code == 0, done.output
    shapes = [
        "Connecting to CMDaemon",
        "Executing 4 stages",
        "##### Starting execution for 'Kubernetes Setup'",
        "- kubernetes",
        "- docker",
        "## Progress: 0",
        "#### stage: kubernetes: Get Kube Cluster",
        "## Progress: 100",
        "Took:      00:0",
        "Progress: 100/100",
        "##### Finished execution for 'Kubernetes Setup', status: completed",
        "Kubernetes Setup finished!",
    ]
    places = [done.stdout.index(shape) for shape in shapes]
    assert places == sorted(places)


@pytest.mark.parametrize("count", [1, 3, 7, 20])
def test_item_41_progress_is_the_share_of_stages_rounded_down(
    tool: Tool, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    stages = [Stage(f"Stage {number}", "kubernetes", fakes.look) for number in range(count)]
    monkeypatch.setattr(operations, "deployment", lambda answers, site: stages)
    percents = [int(text) for text in re.findall(r"^## Progress: (\d+)$", tool.deploy().stdout, re.MULTILINE)]
    assert percents == [100 * index // count for index in range(count)] + [100]


def test_item_42_a_failing_stage_gives_another_status_and_exit_code(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(tool, monkeypatch)
    done = tool.deploy()
    assert done.exit_code == 1
    assert "status: failed" in done.stdout
    assert "the disk is full" in done.stdout
    assert "Traceback" not in done.output


def test_item_43_undo_reverts_done_stages_in_reverse_order(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(tool, monkeypatch)
    done = tool.deploy("--on-error-action", "undo")
    assert done.exit_code == 1
    assert "status: undone" in done.stdout
    undone = re.findall(r"^#### undo: \w+: (.*)$", done.stdout, re.MULTILINE)
    assert undone == ["Make Cluster", "Make Docker", "Make Etcd", "Get Kube Cluster"]
    assert fakes.content(tool.world) == {}


def test_item_44_abort_stops_without_revert(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(tool, monkeypatch)
    done = tool.deploy("--on-error-action", "abort")
    assert done.exit_code == 1
    assert "status: aborted" in done.stdout
    assert len(fakes.content(tool.world)) == 4


async def test_item_45_a_failure_at_a_terminal_asks_and_debug_shows_the_traceback(tmp_path: Path) -> None:
    bench = fakes.Bench(tmp_path)
    asked: list[str] = []
    typed = io.StringIO("abort\n")
    run = bench.run([Stage("Fail", "kubernetes", fakes.refuse)], chooser=Chooser(None, typed, asked.append))
    assert await run.execute() == "aborted"
    assert asked == ["What should be done? [d]ebug, [r]emote debug, [u]ndo, [a]bort: "]
    bench = fakes.Bench(tmp_path / "second")
    await bench.run([Stage("Fail", "kubernetes", fakes.refuse)], on_error="debug").execute()
    assert "Traceback (most recent call last):" in bench.lines


def test_item_46_every_line_of_json_is_an_object(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(tool, monkeypatch)
    done = tool.deploy("--json", "--on-error-action", "undo")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(isinstance(row, dict) for row in rows)
    assert rows[-1]["status"] == "undone"


def test_item_47_the_log_has_lines_with_level_time_module_and_message(tool: Tool) -> None:
    tool.deploy()
    lines = tool.log.read_text().splitlines()
    assert len(lines) > 5
    for line in lines:
        assert re.fullmatch(r"[DIWE] \d\d-\d\d-\d\d \d\d:\d\d:\d\d \| [a-z_.]+ \| .*", line), line


def test_item_49_a_bad_file_is_refused_before_any_change_with_key_path(tool: Tool) -> None:
    for text, expected in (
        ("kubernetes: [\n", "is not valid YAML: line 2"),
        ("kubernetes: {nodes: {masters: {nodes: [node001]}}, nmae: x}\n", "kubernetes.nmae (line 1): unknown key"),
        ("kubernetes: {name: x}\n", "kubernetes.nodes.masters: this key is missing"),
    ):
        tool.answers.write_text(text)
        done = tool.deploy()
        assert done.exit_code == 2
        assert expected in done.stderr
        assert "Traceback" not in done.output
    assert not (tool.data / "setup").exists()
    assert fakes.content(tool.world) == {}


async def test_item_51_a_head_that_is_not_active_is_refused_without_the_flag() -> None:
    class Passive:
        async def whoami(self) -> Whoami:
            return Whoami(
                user="a", role="admin", head="basecm11", revision=1, is_active=False, active="https://basecm10:8081"
            )

    backend: object = Passive()
    with pytest.raises(errors.Denied, match="basecm11 is not the active head node") as refused:
        await heads.check_standing(backend, is_allowed=False)  # type: ignore[arg-type]
    assert "--allow-running-from-secondary" in refused.value.hint
    await heads.check_standing(backend, is_allowed=True)  # type: ignore[arg-type]


def test_item_53_a_second_run_is_refused_with_the_holder_named(tool: Tool) -> None:
    state = tool.data / "setup"
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(state)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        done = tool.deploy()
        child.kill()
        child.communicate()
    assert done.exit_code == 1
    assert f"deploy of the cluster default, process {child.pid}, since 2026-01-01 00:00:00" in done.stderr
    assert fakes.content(tool.world) == {}


def test_item_54_a_deployed_cluster_is_not_deployed_again(tool: Tool) -> None:
    tool.cluster("default")
    done = tool.deploy()
    assert done.exit_code == 2
    assert "kubernetes.name: the cluster default already exists" in done.stderr
    assert fakes.content(tool.world) == {}


def test_item_55_secrets_are_masked_on_the_console_in_the_log_and_in_the_journal(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def leak(context: Context) -> None:
        context.mask("0123-made-in-this-run")
        context.notes["key"] = "0123-made-in-this-run"
        context.say("the key is 0123-made-in-this-run")
        context.log.info("the key is 0123-made-in-this-run")

    monkeypatch.setattr(operations, "deployment", lambda answers, site: [Stage("Make Key", "kubernetes", leak)])
    done = tool.deploy("--verbose")
    assert done.exit_code == 0
    for text in (done.output, tool.log.read_text(), json.dumps(tool.journal())):
        assert "0123-made" not in text
        assert "********" in text


def test_item_55_a_password_among_the_answers_is_masked_in_every_run(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def leak(context: Context) -> None:
        context.say(f"the login is {context.answers['kubernetes']['registry_mirror']}")

    monkeypatch.setattr(operations, "deployment", lambda answers, site: [Stage("Leak", "kubernetes", leak)])
    login = "  registry_mirror: {url: mirror, username: robot, password: hunter2}\n"
    tool.answers.write_text(tool.answers.read_text() + login)
    done = tool.deploy("--verbose")
    assert done.exit_code == 0
    for text in (done.output, tool.log.read_text(), json.dumps(tool.journal())):
        assert "hunter2" not in text
        assert "********" in text


def test_item_217_a_killed_run_leaves_no_lock_and_a_truthful_journal(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = f"""
import os, signal, sys
from pathlib import Path
from bedplate.setup.tool import operations
from bedplate.setup.tool.command import command
from tests.setup.engine import fakes

operations.deployment = lambda answers, site: fakes.stages(
    Path({str(tool.world)!r}), lambda: os.kill(os.getpid(), signal.SIGKILL)
)
command(["-c", {str(tool.answers)!r}, "--data", {str(tool.data)!r}, "--log-file", {str(tool.log)!r}])
"""
    root = Path(__file__).resolve().parents[2]
    killed = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, check=False)
    assert killed.returncode == -9, killed.stderr
    assert {stage["name"]: stage["state"] for stage in tool.journal()["stages"]} == {
        "Get Kube Cluster": "done",
        "Make Etcd": "running",
        "Make Docker": "running",
        "Make Cluster": "pending",
    }
    refused = tool.deploy()
    assert refused.exit_code == 1
    assert "did not finish (at the stage Make Etcd)" in refused.stderr
    assert "--resume --cluster default" in refused.stderr
    resumed = tool("--resume", "--log-file", tool.log)
    assert resumed.exit_code == 0, resumed.output
    assert len(fakes.content(tool.world)) == 6
    assert yaml.safe_load(json.dumps(tool.journal()))["status"] == "completed"
