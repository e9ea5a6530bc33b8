"""Every topic of the benchmarks runs in tiny sizes, gives all its figures, and leaves nothing behind."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest
from tests import programs, servers
from tests.waiting import wait_until

ROOT = pathlib.Path(__file__).parents[2]
NEEDS_GO = ("apiserver", "informer")
ROWS = {
    "store": {"1 writers", "16 writers", "64 writers", "fan-out"},
    "ready": {"first start", "second start"},
    "apiserver": {"creates", "updates", "gets", "lists of 500 pods", "events to 100 watchers", "memory, idle"},
    "informer": {"sync time, client-go lists JSON", "steady memory, client-go lists JSON"},
}


def measured(topic: str, folder: pathlib.Path) -> dict[str, Any]:
    output = folder / "figures.json"
    work = folder / "work"
    work.mkdir()
    command = [sys.executable, "-m", "bench", topic, "--quick", "--folder", str(work), "--output", str(output)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    if "is the Go module proxy reachable" in result.stdout:
        pytest.skip("needs the Go module proxy: the client-go modules are not in the cache")
    assert result.returncode == 0, result.stdout + result.stderr
    assert list(work.iterdir()) == [], "the benchmark left files behind"
    found: dict[str, Any] = json.loads(output.read_text())
    return found


def need_servers() -> None:
    for name, version in (("kube-apiserver", servers.KUBERNETES), ("etcd", servers.ETCD)):
        programs.built(name, version)


def processes_with(text: str) -> list[str]:
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # ended meanwhile
        if text in command:
            found.append(command)
    return found


@pytest.mark.real
@pytest.mark.parametrize(
    "topic",
    # The program of the informer's peer takes minutes to build.
    [pytest.param(topic, marks=pytest.mark.soak) if topic == "informer" else topic for topic in ROWS],
)
def test_topic_gives_its_figures_and_leaves_nothing(topic: str, tmp_path: pathlib.Path) -> None:
    need_servers()
    if topic in NEEDS_GO:
        programs.on_path("go")
    found = measured(topic, tmp_path)
    rows = {row["name"]: row for row in found[topic]["rows"]}
    assert rows.keys() >= ROWS[topic]
    assert all(row["bedplate"] > 0 and row["ratio"] > 0 for row in rows.values()), rows
    assert all(row["goal"] == "" for row in rows.values()), "tiny sizes must not be judged"
    assert "cores" in found["machine"]
    assert processes_with(str(tmp_path)) == []


@pytest.mark.real
def test_ended_run_leaves_nothing(tmp_path: pathlib.Path) -> None:
    need_servers()
    command = [sys.executable, "-m", "bench", "ready", "--folder", str(tmp_path)]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert child.stderr is not None
    child.stderr.readline()
    wait_until(
        lambda: any("kube-apiserver" in command for command in processes_with(str(tmp_path))),
        "a server is started",
        step_s=0.05,
    )
    child.terminate()
    child.communicate(timeout=120)
    assert processes_with(str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


def test_unknown_topic_is_refused_with_the_known_ones() -> None:
    command = [sys.executable, "-m", "bench", "nothing"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2
    assert "no topic is called nothing; there are store, ready, apiserver, informer" in result.stderr
