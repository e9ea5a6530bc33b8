"""The tutorial's controller, exactly as printed, against the embedded API server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests import programs, servers

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 120


@pytest.mark.external
def test_the_controller_of_the_tutorial_labels_nodes(tmp_path: Path) -> None:
    kubectl = str(programs.built("kubectl"))
    text = (ROOT / "docs/tutorials/first-controller.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    program = tmp_path / "gpus.py"
    program.write_text(code)
    with servers.embedded() as server:
        environ = os.environ | {"KUBECONFIG": str(server.kubeconfig)}
        sim = subprocess.Popen(
            [str(servers.bedplate_program()), "sim", "nodes", "--count", "2", "--gpus", "4"],
            env=environ,
            stderr=subprocess.DEVNULL,
            preexec_fn=servers._die_with_parent,
        )
        controller = subprocess.Popen([sys.executable, str(program)], env=environ, preexec_fn=servers._die_with_parent)
        try:
            wanted = "jsonpath={.items[*].metadata.labels['example\\.com/gpus']}"
            deadline = time.monotonic() + DEADLINE_S
            while True:
                command = [kubectl, "get", "nodes", "-o", wanted]
                found = subprocess.run(command, env=environ, capture_output=True, text=True, check=False).stdout
                if found == "4 4":
                    break
                assert time.monotonic() < deadline, found
                assert controller.poll() is None
                time.sleep(0.2)
        finally:
            for process in (sim, controller):
                process.terminate()
                process.wait(60)
