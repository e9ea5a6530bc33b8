"""What the tests of pages share: `make up` as a reader has it in the first terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests import programs, servers
from tests.waiting import DEADLINE_S, wait_until

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Up:
    """A running `bedplate up --calm`: what it printed, and what a second terminal has."""

    folder: Path
    printed: str
    environ: dict[str, str]


def furnish(folder: Path) -> None:
    """Put into a folder what readers use of a checkout."""
    original = Path(sys.executable).parent.parent
    (folder / ".venv").mkdir()
    for part in ("bin", "lib", "lib64", "pyvenv.cfg"):
        (folder / ".venv" / part).symlink_to(original / part)
    (folder / "deploy").symlink_to(ROOT / "deploy")


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """The line to paste was pasted into the second terminal."""
    kubectl = programs.built("kubectl")
    furnish(tmp_path)
    out = tmp_path / "up.out"
    with out.open("wb") as target:
        process = subprocess.Popen(
            [".venv/bin/bedplate", "up", "--plain", "--calm"],
            cwd=tmp_path,
            stdout=target,
            stderr=target,
            # No kubectl here: the page is for those who have none.
            env=os.environ | {"PATH": os.devnull},
            preexec_fn=servers._die_with_parent,
        )
    try:

        def is_ready() -> bool:
            assert process.poll() is None, out.read_text()
            return "try: .venv/bin/cmsh" in out.read_text()

        wait_until(is_ready, "nodes and head are ready", step_s=0.05, describe=out.read_text)
        printed = out.read_text()
        pasted = re.search(r"export KUBECONFIG=(\S+)", printed)
        assert pasted is not None
        environ = os.environ | {"KUBECONFIG": pasted[1], "PATH": f"{kubectl.parent}:{os.environ['PATH']}"}
        yield Up(tmp_path, printed, environ)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(DEADLINE_S)
