"""The topic `images` runs in tiny sizes, gives its figures and leaves nothing behind."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.external
def test_topic_gives_its_figures_and_leaves_nothing(tmp_path: pathlib.Path) -> None:
    output, work = tmp_path / "figures.json", tmp_path / "work"
    work.mkdir()
    command = [sys.executable, "-m", "bench", "images", "--quick", "--folder", str(work), "--output", str(output)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert list(work.iterdir()) == [], "the benchmark left files behind"
    commands = [entry.read_bytes() for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline") if entry.exists()]
    assert not any(str(work).encode() in command for command in commands), "the benchmark left processes behind"
    rows = {row["name"]: row for row in json.loads(output.read_text())["images"]["rows"]}
    assert rows.keys() == {
        "one changed file",
        "processor time for one changed file, all processes",
        "the first copy",
    }
    assert rows["one changed file"]["rsync"] > 0 and rows["one changed file"]["goal"] == ""
