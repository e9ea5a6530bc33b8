"""The report of cm-kube-diagnose: findings first, secrets as stars, exit codes that mean something."""

from __future__ import annotations

import json
import os
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from bedplate.core import errors
from bedplate.setup.diagnose.collecting import judged, waits_for
from bedplate.setup.diagnose.command import command
from bedplate.setup.diagnose.report import Report

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def report() -> Report:
    made = Report("default", "2026-01-01T00:00:00Z")
    made.add("Nodes", ["node001 UP", "log password=hunter22"])
    return made


def test_item_221_the_exit_code_says_whether_something_is_wrong_or_could_not_be_read() -> None:
    made = report()
    assert made.exit_code == 0 and "No findings." in made.text()
    made.miss("API server", "connection refused; token: abcdef0123")
    assert made.exit_code == 3 and "NOT READ API server: connection refused" in made.text()
    made.find("node001: secret=xyz is down")
    assert made.exit_code == 1 and made.text().index("FINDING") < made.text().index("== Nodes")
    told = json.loads(made.json())
    assert told["notRead"]["API server"].startswith("connection refused")
    for text in (made.text(), made.json()):
        assert "hunter22" not in text and "abcdef0123" not in text and "xyz" not in text


def test_item_221_an_archive_has_a_file_for_each_section_and_is_for_its_owner(tmp_path: Path) -> None:
    made, file = report(), tmp_path / "report.tar.gz"
    made.miss("../API server", "x")
    made.archive(file, NOW)
    assert file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as archive:
        names = archive.getnames()
        assert names == [
            f"cm-kube-diagnose-default/{name}" for name in ("report.txt", "report.json", "nodes.txt", "api-server.txt")
        ]
        content = archive.extractfile(names[2])
        assert content is not None and b"hunter22" not in content.read()
    with pytest.raises(errors.Invalid, match="cannot be written: its folder does not exist"):
        made.archive(tmp_path / "none" / "x.tar.gz", NOW)
    with pytest.raises(errors.Invalid, match="not a regular file"):
        made.archive(Path(os.devnull), NOW)
    assert Path(os.devnull).is_char_device(), "a device stays one"
    assert [path.name for path in tmp_path.iterdir()] == ["report.tar.gz"]


def test_item_221_certificates_and_services_of_a_node_are_judged() -> None:
    lines = [
        "certificate /a.crt 2026-01-02T00:00:00Z",
        "certificate /b.crt 2025-01-02T00:00:00Z",
        "certificate /c.crt 2030-01-02T00:00:00Z",
        "certificate /d.crt it is cut off",
        "service kubelet down",
        "service etcd up",
        "log etcd certificate service down",
    ]
    assert judged("node001", lines, NOW) == [
        "node001: /a.crt ends on 2026-01-02",
        "node001: /b.crt ended on 2025-01-02",
        "node001: /d.crt: it is cut off",
        "node001: the service kubelet is down",
    ]


def test_item_221_a_control_plane_node_without_a_manifest_is_told() -> None:
    lines = ["manifest kube-controller-manager.yaml", "manifest kube-scheduler.yaml"]
    (finding,) = judged("node001", lines, NOW, is_plane=True)
    assert finding == "node001: there is no manifest kube-apiserver.yaml: its static pod does not run"
    assert judged("node001", lines, NOW) == []


def test_item_221_pods_that_no_node_takes_or_that_do_not_start_are_told_and_those_that_begin_are_not() -> None:
    def pod(**status: object) -> dict[str, object]:
        return {"status": status}

    def waiting(reason: str) -> list[object]:
        return [{"state": {"waiting": {"reason": reason}}}]

    full = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are\navailable"}
    assert waits_for(pod(conditions=[full])) == "Unschedulable: 0/3 nodes are available"
    assert waits_for(pod(initContainerStatuses=waiting("CrashLoopBackOff"))) == "CrashLoopBackOff"
    assert waits_for(pod(containerStatuses=waiting("ImagePullBackOff"))) == "ImagePullBackOff"
    for reason in ("ContainerCreating", "PodInitializing"):
        assert waits_for(pod(containerStatuses=waiting(reason))) == ""
    assert waits_for(pod()) == ""


def test_item_221_a_place_that_cannot_be_written_is_told_before_anything_is_collected(tmp_path: Path) -> None:
    for file in (tmp_path / "none" / "x.tar.gz", Path(os.devnull)):
        result = CliRunner().invoke(command, ["--data", str(tmp_path / "none"), "--archive", str(file)])
        assert result.exit_code == 2 and f"{file} cannot be written" in result.output


def test_without_a_head_the_program_says_so_and_ends_with_2(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["--data", str(tmp_path / "none")])
    assert result.exit_code == 2 and "cm-kube-diagnose:" in result.output and "Traceback" not in result.output
