"""The topic `agents` runs in tiny sizes, gives its figures for both sizes and leaves nothing behind."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import sys

import pytest

from bedplate.core import errors
from bench import agents

ROOT = pathlib.Path(__file__).parents[2]


# ansible-playbook takes part where it is in the cache folder.
@pytest.mark.external
def test_topic_gives_its_figures_and_leaves_nothing(tmp_path: pathlib.Path) -> None:
    output, work = tmp_path / "figures.json", tmp_path / "work"
    work.mkdir()
    command = [sys.executable, "-m", "bench", "agents", "--quick", "--folder", str(work), "--output", str(output)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert list(work.iterdir()) == [], "the benchmark left files behind"
    commands = [entry.read_bytes() for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline") if entry.exists()]
    assert not any(str(work).encode() in command for command in commands), "the benchmark left processes behind"
    found = json.loads(output.read_text())["agents"]
    rows = {row["name"]: row for row in found["rows"]}
    assert rows.keys() >= {
        "processor time of the head at rest, % of a core, 6 agents",
        "processor time of the head at rest, % of a core, 12 agents",
        "memory of the head",
        "a changed file on 6 nodes",
        "a changed file on 12 nodes",
        "a changed file in 2 sandboxes, beside ansible-playbook",
    }
    assert all(row["goal"] == "" for row in rows.values()), "tiny sizes must not be judged"
    assert any("ansible" in note for note in found["notes"])


def test_no_more_agents_are_started_than_a_head_may_have_connections() -> None:
    sizes = agents.Sizes()
    assert agents.within(sizes, 20_000) == sizes
    assert agents.within(sizes, 4096) == dataclasses.replace(sizes, many=2397)
    with pytest.raises(errors.Unavailable, match=r"1,000 agents need 2,000 open files .* limit is 1,024"):
        agents.within(sizes, 1024)
