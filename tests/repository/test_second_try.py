"""A whole run gives a handful of failures a second try, and says so; a fault of the code stays a failure."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
ACCIDENT = """
from pathlib import Path

def test_fails_the_first_time():
    seen = Path(__file__).with_name("seen")
    if not seen.exists():
        seen.touch()
        raise AssertionError("an accident")
"""
FAULT = """
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_fails_always(number):
    raise AssertionError("a fault")
"""


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("bedplate_tools_test", ROOT / "tools/test.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "PASSES", {"few": ["-q"]})
    monkeypatch.setenv("BEDPLATE_REPORTS", "reports")
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS", "BEDPLATE_SKIP_REPORT"):
        monkeypatch.delenv(name, raising=False)
    return module


def test_what_passes_the_second_time_is_named_in_the_last_lines(
    runner: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_some.py").write_text(ACCIDENT)
    assert runner.main([]) == 0
    assert "passed on the second try only: test_some.py::test_fails_the_first_time" in capfd.readouterr().out


def test_what_fails_twice_fails_the_run(runner: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_some.py").write_text(ACCIDENT + FAULT.format(count=1))
    assert runner.main([]) == 1
    assert "second try only" not in capfd.readouterr().out


def test_many_failures_get_no_second_try(runner: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_some.py").write_text(FAULT.format(count=runner.SECOND_TRIES + 1))
    assert runner.main([]) == 1
    assert "second try" not in capfd.readouterr().out
