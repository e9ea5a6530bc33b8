"""The topic `head` runs in tiny sizes, gives its figures for both sizes and leaves nothing behind."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
ALWAYS = {
    "device list",
    "device list, 60",
    "resolution of all nodes",
    "set and commit of one node",
    "plan of a role on 5 nodes, 60",
    "explain of one node",
    "REST list of all nodes",
    "cold cmsh -c, device list, processor time",
    "48 events delivered",
    "commit of all nodes, 60",
    "plan of a role on all nodes, 60",
    "start with many revisions, 60",
}


def test_topic_gives_its_figures_and_leaves_nothing(tmp_path: pathlib.Path) -> None:
    output, work = tmp_path / "figures.json", tmp_path / "work"
    work.mkdir()
    command = [sys.executable, "-m", "bench", "head", "--quick", "--folder", str(work), "--output", str(output)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert list(work.iterdir()) == [], "the benchmark left files behind"
    found = json.loads(output.read_text())["head"]
    rows = {row["name"]: row for row in found["rows"]}
    assert rows.keys() >= ALWAYS
    assert all(row["goal"] == "" for row in rows.values()), "tiny sizes must not be judged"
    assert rows["48 events delivered"]["bedplate"] > 0
    assert any("commercial" in note for note in found["notes"])
