"""The topic `people` runs in tiny sizes, gives its figures and leaves nothing behind."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.real
def test_topic_gives_its_figures_and_leaves_nothing(tmp_path: pathlib.Path) -> None:
    output, work = tmp_path / "figures.json", tmp_path / "work"
    work.mkdir()
    command = [sys.executable, "-m", "bench", "people", "--quick", "--folder", str(work), "--output", str(output)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert list(work.iterdir()) == [], "the benchmark left files behind"
    rows = {row["name"]: row for row in json.loads(output.read_text())["people"]["rows"]}
    assert "added by the rules, median" in rows
    assert rows["memory of the manager"]["bedplate"] > 0
