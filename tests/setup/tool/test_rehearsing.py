"""`--rehearse`: what is refused before a lab is started, and that a lab is taken down whatever happens in it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tests.setup.tool.driving import Tool

from bedplate.core import errors
from bedplate.lab import cluster as labs
from bedplate.setup.engine.journal import Journal, Record, StageRecord
from bedplate.setup.rehearsal import casting
from bedplate.setup.rehearsal.casting import Original, Traits
from bedplate.setup.rehearsal.outcome import Writes
from bedplate.setup.tool import operations, rehearsing, upgrading
from bedplate.setup.tool.flags import FLAGS

_TRAITS = Traits("default", "1.34.4", 10443, 24, has_bridge=True, has_flags=False, proxy_mode="nftables")
_CAST = casting.cast([Original("cp1", True, False, True), Original("w1", is_worker=True)], _TRAITS)


class Stage:
    """A machine with a lab that is not one: what was done with it, in order."""

    def __init__(self, tool: Tool, folder: Path) -> None:
        self.tool = tool
        self.folder = folder
        self.done: list[str] = []
        self.fails: dict[str, Any] = {}
        self.stage = StageRecord("Upgrade node001", "kubernetes", "done")

    def _do(self, what: str) -> Any:
        self.done.append(what)
        result = self.fails.get(what)
        if isinstance(result, BaseException):
            raise result
        return result

    def gather(self, options: Any, report: Any) -> dict[str, Path]:
        self._do(f"gather {options.kubernetes} {options.next_kubernetes} {options.nodes}")
        return {}

    async def up(self, options: Any, programs: Any, report: Any, shelf: Any) -> None:
        self._do("up")
        shelf.folder(options.name).mkdir(parents=True)

    def down(self, name: str, shelf: Any) -> bool:
        return bool(self._do(f"down {name}"))

    async def operate(self, operation: Any, action: str) -> int:
        """In the place of an operation on the lab's head."""
        values = operation._values
        assert self.folder in values["data"].parents, "never on the head of the cluster"
        assert self.folder in operation._state.parents
        if action == "upgrade":
            record = Record("t", "upgrade", "default", "", 1, [self.stage], {})
            Journal.begin(operation._state, record)
            self.done.append(f"batch {values['batch']}, emptydir {values['delete_emptydir_data']}")
        return self._do(action) or 0

    def rehearse(self, *words: str) -> Result:
        return self.tool("--upgrade", "1.35", "--rehearse", *words)


@pytest.fixture
def stage(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    made = Stage(tool, tmp_path / "state")
    monkeypatch.setenv("XDG_STATE_HOME", str(made.folder))

    async def look(*_: Any) -> Any:
        return _CAST

    async def upgrade(self: Any) -> Writes:
        values = rehearsing.of_lab(self._values, self._folder, *rehearsing._ALSO)
        await operations.Operation(values).perform("upgrade")
        return Writes(3, (), (), 0.1)

    async def nothing(self: Any) -> None: ...

    monkeypatch.setattr(labs, "check_machine", lambda *, is_managed: None)
    monkeypatch.setattr(labs, "gather", made.gather)
    monkeypatch.setattr(labs, "up", made.up)
    monkeypatch.setattr(labs, "down", made.down)
    monkeypatch.setattr(rehearsing, "_look", look)
    monkeypatch.setattr(rehearsing, "missing", lambda *releases: {})
    monkeypatch.setattr(rehearsing._Rehearsal, "_upgrade", upgrade)
    monkeypatch.setattr(rehearsing._Rehearsal, "_take_over_proxy_mode", nothing)
    monkeypatch.setattr(operations.Operation, "perform", lambda self, action: made.operate(self, action))
    yield made


def _content(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--rehearse",), "--rehearse does not apply to a deployment; it is for --upgrade"),
        (("--remove", "--rehearse"), "--rehearse does not apply to --remove"),
        (("--resume", "--rehearse"), "--rehearse does not apply to --resume"),
        (("--upgrade", "1.35", "--rehearse-workers", "1"), "--rehearse-workers is about the lab of --rehearse"),
        (("--upgrade", "1.35", "--rehearse", "--rehearse-workers", "-1"), "--rehearse-workers"),
        (("--upgrade", "1.19", "--rehearse"), "Kubernetes 1.19 is not supported"),
    ],
)
def test_what_makes_no_sense_is_refused_as_wrong_usage(tool: Tool, words: tuple[str, ...], told: str) -> None:
    result = tool(*words)
    assert result.exit_code == 2
    assert told in result.output and "Traceback" not in result.output


def test_without_root_it_is_refused_before_the_head_is_asked(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = tool("--upgrade", "1.35", "--rehearse")
    assert result.exit_code == 1
    assert "a lab needs root" in result.output and "Connecting" not in result.output


def test_a_cluster_that_is_not_there_is_refused(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labs, "check_machine", lambda *, is_managed: None)
    assert "there is no cluster to rehearse" in tool("--upgrade", "1.35", "--rehearse").output


@pytest.mark.parametrize(
    ("has_work", "code", "told"),
    [
        (
            True,
            1,
            "In the way: a finding\ncm-kubernetes-setup: the cluster default is not fit to be upgraded to 1.35.4",
        ),
        (False, 0, "In the way: a finding\n"),
    ],
)
def test_what_is_in_the_way_of_the_upgrade_ends_the_rehearsal_and_so_does_nothing_to_do(
    tool: Tool, monkeypatch: pytest.MonkeyPatch, has_work: bool, code: int, told: str
) -> None:
    async def look(*_: Any) -> upgrading.Seen:
        return upgrading.Seen({}, ("In the way: a finding",), has_work, is_blocked=True)

    tool.cluster("default")
    monkeypatch.setattr(labs, "check_machine", lambda *, is_managed: None)
    monkeypatch.setattr(upgrading, "look", look)
    result = tool("--upgrade", "1.35", "--rehearse")
    assert result.exit_code == code, result.output
    assert told in result.output and "stands for" not in result.output


def test_versions_that_the_cache_does_not_have_are_refused_with_the_command_that_builds_them(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("BEDPLATE_CACHE", str(tmp_path / "cache"))
    lacking = rehearsing.missing("1.34.4", "1.35.4")
    assert list(lacking) == ["1.34.4", "1.35.4"] and {"kubelet", "kubeadm", "kube-apiserver"} <= set(lacking["1.34.4"])
    with pytest.raises(errors.NotFound, match=r"Kubernetes 1\.34\.4: kubelet, .*nothing was started") as refused:
        rehearsing._refuse_missing("1.34.4", "1.35.4")
    assert "bedplate binaries get kubelet kubeadm" in refused.value.hint
    assert "--kubernetes 1.35.4" in refused.value.hint
    assert stage.done == []


def test_the_plan_of_a_rehearsal_says_who_stands_for_whom_and_starts_nothing(stage: Stage) -> None:
    result = stage.rehearse("--plan")
    assert result.exit_code == 0
    assert "node001 stands for cp1: control plane, etcd" in result.output
    assert stage.done == []


def test_a_rehearsal_that_succeeds_is_the_only_one_with_exit_code_0_and_leaves_the_head_as_it_is(stage: Stage) -> None:
    before = _content(stage.tool.data)
    result = stage.rehearse("--batch", "3", "--delete-emptydir-data", "--log-file", str(stage.tool.log))
    assert result.exit_code == 0, result.output
    assert stage.done == [
        "gather 1.34.4 1.35.4 2", "up", "deploy", "batch 3, emptydir True", "upgrade", "down rehearsal-default",
    ]  # fmt: skip
    assert "should this be killed: bedplate lab down --name rehearsal-default" in result.output
    assert (
        "Upgrade node001 (for cp1)" in result.output
        and "The rehearsal of the upgrade to 1.35.4 succeeded." in result.output
    )
    assert _content(stage.tool.data) == before


def test_a_stage_that_fails_in_the_lab_fails_the_rehearsal_and_the_lab_goes(stage: Stage) -> None:
    stage.stage = StageRecord("Upgrade node001", "kubernetes", "failed", "no such package")
    stage.fails = {"upgrade": 1}
    result = stage.rehearse()
    assert result.exit_code == 1
    assert "no such package" in result.output and "failed." in result.output
    assert stage.done[-1] == "down rehearsal-default"


def test_a_deployment_that_fails_in_the_lab_ends_the_rehearsal(stage: Stage) -> None:
    stage.fails = {"deploy": 1}
    result = stage.rehearse()
    assert result.exit_code == 1
    assert stage.done[-2:] == ["deploy", "down rehearsal-default"]


@pytest.mark.parametrize("where", ["deploy", "upgrade"])
@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (errors.Unavailable("no answer"), 1)])
def test_ctrl_c_and_errors_take_the_lab_down(stage: Stage, where: str, error: BaseException, code: int) -> None:
    stage.fails = {where: error}
    result = stage.rehearse()
    assert result.exit_code == code, result.output
    assert stage.done[-1] == "down rehearsal-default"


def test_a_lab_of_that_name_that_is_up_is_refused_and_stays(stage: Stage) -> None:
    stage.fails = {"up": errors.AlreadyExists("lab 'rehearsal-default' is up")}
    result = stage.rehearse()
    assert result.exit_code == 1
    assert not any(what.startswith("down") for what in stage.done)


def test_a_run_on_the_lab_has_no_flag_that_names_the_head_of_the_cluster(tmp_path: Path) -> None:
    given = {flag.attribute: "given" for flag in FLAGS}
    values = rehearsing.of_lab(given, tmp_path, *rehearsing._ALSO)
    assert set(values) == set(given)
    kept = {name for name, value in values.items() if value == "given"}
    assert kept == {*rehearsing._KEPT, *rehearsing._ALSO, "on_error_action"}
    assert rehearsing.of_lab({**given, "on_error_action": None}, tmp_path)["on_error_action"] == "abort"
    assert values["url"] == () and values["data"] == tmp_path / "head" and not values["rehearse"]
