"""Runs the commands of a page of the documentation as a reader would: in their order, in one shell.

In: a page, the folder to be in, an environment. Out: what was printed. A command that fails ends it, and the test with
it; what the page started and did not stop is ended.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests import servers


def console_lines(page: Path) -> list[str]:
    """The commands of a page."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL)
    return [line.strip()[2:] for block in blocks for line in block.splitlines() if line.strip().startswith("$ ")]


def run(page: Path, folder: Path, environ: Mapping[str, str], ports: Iterable[str], deadline_s: float) -> str:
    """Run the page's commands, with free ports for those it names; what they printed."""
    text = "\n".join(console_lines(page))
    for port in ports:
        text = re.sub(rf"\b{port}\b", str(servers.free_port()), text)
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
        code = shell.wait(deadline_s)
    finally:
        # The shell's own session, nobody else's.
        try:
            os.killpg(shell.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        shell.wait()
    printed = out.read_text()
    logs = "\n".join(f"--- {log.name}\n{log.read_text()[-2000:]}" for log in folder.glob("*.log"))
    assert code == 0, f"{printed[-4000:]}\n{logs}"
    return printed
