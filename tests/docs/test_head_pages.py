"""The pages about the head work as written: their commands, in their order, in one shell."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests import servers

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 600
PORT = "8081"


def console_lines(page: str) -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    return [line.strip()[2:] for block in blocks for line in block.splitlines() if line.strip().startswith("$ ")]


def run_page(page: str, folder: Path) -> str:
    """Run a page's commands; one that fails ends it, and the test with what was printed."""
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    text = "\n".join(console_lines(page))
    text = re.sub(rf"\b{PORT}\b", str(servers.free_port()), text)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BEDPLATE_")}
    environ |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(folder)}
    out = folder / "out"
    with out.open("wb") as target:
        shell = subprocess.Popen(
            ["bash", "-c", f"set -x -o pipefail -e\n{text}\n"],
            cwd=folder,
            stdout=target,
            stderr=subprocess.STDOUT,
            env=environ,
            start_new_session=True,
            preexec_fn=servers._die_with_parent,
        )
    try:
        code = shell.wait(DEADLINE_S)
    finally:
        # What the page started and did not stop: the shell's own session, nobody else's.
        try:
            os.killpg(shell.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        shell.wait()
    printed = out.read_text()
    logs = "\n".join(f"--- {log.name}\n{log.read_text()[-1500:]}" for log in folder.glob("*.log"))
    assert code == 0, f"{printed[-4000:]}\n{logs}"
    return printed


def test_the_tutorial_of_the_head(tmp_path: Path) -> None:
    printed = run_page("tutorials/head.md", tmp_path)
    assert "node003: Service shorewall was restarted" in printed
    assert re.search(r"12 to add, 0 to change, 0 to remove on 3 nodes", printed)
    # The file with both rules, and after the undo with one.
    rules = [text for text in printed.split("+ ") if text.startswith("cmsh") and "explain -v /etc/shorewall" in text]
    assert [("443" in text.replace("10443", ""), "10443" in text) for text in rules] == [(True, True), (False, True)]
    assert '"key":"node001"' in printed.replace(" ", "")


def test_the_guide_of_the_head(tmp_path: Path) -> None:
    printed = run_page("guides/head.md", tmp_path)
    assert "rack 3" in printed
    assert re.search(r"error: .*bob.*auditor|error: .*auditor", printed), "bob may not write"
    assert '"user":"alice"' in printed.replace(" ", "")
    assert "revisions 1 to" in printed
