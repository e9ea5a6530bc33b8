"""The tutorial's controller, exactly as printed, started by the page's own commands beside `make up`."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest
from tests import pages, servers
from tests.docs.conftest import Up
from tests.waiting import DEADLINE_S

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/tutorials/first-controller.md"


def at_a_terminal() -> None:
    """Where the tests run in the background, Ctrl-C is ignored in what they start."""
    servers._die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.external
def test_the_controller_of_the_tutorial_labels_nodes_and_ends_with_ctrl_c(up: Up) -> None:
    text = PAGE.read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (name,) = re.findall(r"Save it as `(\S+)` in the checkout", text)
    (up.folder / name).write_text(code)
    # The second terminal, and the third; neither has what was pasted elsewhere.
    second, *third = pages.console_lines(PAGE)
    environ = {key: value for key, value in up.environ.items() if key != "KUBECONFIG"}
    controller = subprocess.Popen(
        ["bash", "-c", f"exec env {second}"],
        cwd=up.folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=at_a_terminal,
    )
    try:
        printed = pages.run_lines(third, up.folder, environ, DEADLINE_S)
        controller.send_signal(signal.SIGINT)
        logged, _ = controller.communicate(timeout=DEADLINE_S)
        assert (controller.returncode, "Traceback" in logged) == (0, False), logged
        pages.hold(PAGE, [logged, *printed], up.folder)
    finally:
        controller.kill()
        controller.wait()
