"""`bedplate sim nvidia-bmm` and `bedplate sim oxide`, as a person runs them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from tests import forkserver

from bedplate.cli.sim.command import sim


@contextmanager
def running(*arguments: str) -> Iterator[tuple[dict[str, str], list[str]]]:
    """The command in a process of its own: the variables it exports and its other lines."""
    command = [sys.executable, "-m", "bedplate.apps.bedplate", "sim", *arguments]
    process = forkserver.Process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stderr is not None
        # "serving" comes last, on standard error: then all the rest has been written.
        line = process.stderr.readline()
        assert "serving" in line, line + process.stderr.read()
        variables, others = {}, []
        while True:
            text = process.stdout.readline().strip()
            if text.startswith("export "):
                name, _, value = text.removeprefix("export ").partition("=")
                variables[name] = value
            else:
                others.append(text)
            if text.startswith(("export OXIDE_PROJECT", "export NVIDIA_BMM_TENANT_ID")):
                break
        yield variables, others
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


def get(url: str, token: str) -> tuple[int, object]:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as err:
        return err.code, None


def test_bmm_serves_what_it_prints_and_writes(tmp_path: Path) -> None:
    script = tmp_path / "faults.yaml"
    script.write_text("rules:\n- match: {operation: get-all-instance, nth: 1}\n  fault: 500\n")
    config = tmp_path / "cloud-config"
    with running("nvidia-bmm", "--machines", "7", "--faults", str(script), "--write-config", str(config)) as (
        found,
        notes,
    ):
        base = f"{found['NVIDIA_BMM_ENDPOINT']}/v2/org/{found['NVIDIA_BMM_ORG_NAME']}/carbide"
        url = f"{base}/instance?siteId={found['NVIDIA_BMM_SITE_ID']}"
        assert get(url, found["NVIDIA_BMM_TOKEN"])[0] == 500
        status, data = get(url, found["NVIDIA_BMM_TOKEN"])
        assert (status, len(data)) == (200, 7)  # type: ignore[arg-type]
        assert yaml.safe_load(config.read_text()) == {
            "endpoint": found["NVIDIA_BMM_ENDPOINT"],
            "orgName": found["NVIDIA_BMM_ORG_NAME"],
            "token": found["NVIDIA_BMM_TOKEN"],
            "siteId": found["NVIDIA_BMM_SITE_ID"],
            "tenantId": found["NVIDIA_BMM_TENANT_ID"],
        }
        assert config.stat().st_mode & 0o077 == 0
        assert any("/__sim" in note for note in notes) and any("/oauth2/token" in note for note in notes)


def test_oxide_serves_what_it_prints() -> None:
    with running("oxide", "--instances", "4", "--project", "mine", "--stop-every", "1h") as (found, _):
        url = f"{found['OXIDE_HOST']}/v1/instances?project={found['OXIDE_PROJECT']}"
        status, data = get(url, found["OXIDE_TOKEN"])
        assert (status, len(data["items"])) == (200, 4)  # type: ignore[index]


@pytest.mark.parametrize("command", ["nvidia-bmm", "oxide"])
def test_help_describes_the_fault_script(command: str) -> None:
    text = CliRunner().invoke(sim, [command, "--help"]).output
    for word in ("truncated-json", "drop-from-list", "retry_after", "probability", "--list-lag"):
        assert word in text


def test_problems_of_options_are_told_before_anything_starts(tmp_path: Path) -> None:
    script = tmp_path / "faults.yaml"
    script.write_text("rules:\n- fault: storm\n- fault: flood\n")
    result = CliRunner().invoke(sim, ["oxide", "--faults", str(script)])
    assert result.exit_code == 2
    assert "storm" in result.output and "flood" in result.output
    assert CliRunner().invoke(sim, ["oxide", "--faults", str(tmp_path / "none")]).exit_code == 2
    assert CliRunner().invoke(sim, ["oxide", "--latency", "soon"]).exit_code == 2
    assert CliRunner().invoke(sim, ["nvidia-bmm", "--latency", "-1s"]).exit_code == 2
