"""What was skipped is listed last with its reason, and CI refuses a reason that is not on its list."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUITE = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_skips(number):
    pytest.skip("no flux capacitor here")

@pytest.mark.skipif(True, reason="the moon is not full")
def test_skips_too():
    pass

@pytest.mark.soak
def test_takes_long():
    raise AssertionError("only make soak runs this")

def test_runs():
    pass
"""


def run_suite(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_suite.py").write_text(SUITE)
    (folder / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text())
    outside = ("PYTEST_", "BEDPLATE_")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(outside)}
    environ["BEDPLATE_REPORTS"] = str(folder / "reports")
    command = [sys.executable, str(ROOT / "tools/test.py"), *arguments, str(folder), "-q", "-p", "no:cacheprovider"]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)


def check(folder: Path, *patterns: str) -> subprocess.CompletedProcess[str]:
    allowed = folder / "allowed.txt"
    allowed.write_text("# reasons\n" + "".join(f"{pattern}\n" for pattern in patterns))
    command = [sys.executable, str(ROOT / ".ci/check_skips.py"), str(folder / "reports"), str(allowed)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_last_lines_list_every_skip_with_its_reason(tmp_path: Path) -> None:
    done = run_suite(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-3:] == [
        "skipped: 4 tests",
        "     3  no flux capacitor here",
        "     1  the moon is not full",
    ]


def test_the_list_is_complete_when_tests_run_side_by_side(tmp_path: Path) -> None:
    assert "skipped: 4 tests" in run_suite(tmp_path, "-n", "2").stdout


def test_long_tests_run_in_soak_only(tmp_path: Path) -> None:
    done = run_suite(tmp_path, "--soak")
    assert done.returncode == 1
    assert "only make soak runs this" in done.stdout


def test_ci_fails_on_a_reason_that_is_not_on_its_list(tmp_path: Path) -> None:
    run_suite(tmp_path)
    refused = check(tmp_path, "flux capacitor")
    assert refused.returncode == 1
    assert "the moon is not full" in refused.stdout
    assert "flux" not in refused.stdout.replace("not on", "")
    assert check(tmp_path, "flux capacitor", "moon").returncode == 0


def test_ci_fails_when_there_is_no_report_to_look_at(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    assert check(tmp_path).returncode == 1
