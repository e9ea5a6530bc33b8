"""The tutorial's controller, exactly as printed, against the embedded API server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests import programs, servers
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]


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
        controller = subprocess.Popen(
            [sys.executable, str(program)],
            env=environ,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=servers._die_with_parent,
        )
        try:
            wanted = "jsonpath={.items[*].metadata.labels['example\\.com/gpus']}"
            command = [kubectl, "get", "nodes", "-o", wanted]

            def labels() -> str:
                assert controller.poll() is None
                return subprocess.run(command, env=environ, capture_output=True, text=True, check=False).stdout

            wait_until(lambda: labels() == "4 4", "both nodes have their label", step_s=0.2, describe=labels)
            # Ctrl-C at a terminal ends it without a traceback.
            controller.send_signal(signal.SIGINT)
            _, complaints = controller.communicate(timeout=60)
            assert (controller.returncode, "Traceback" in complaints) == (0, False), complaints
        finally:
            for process in (sim, controller):
                process.terminate()
                process.wait(60)
