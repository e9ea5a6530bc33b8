"""Every command a newcomer is told to type works: those of the README and of the first tutorial.

The commands are read from the pages. Those of the second terminal are run in their order on one cluster, and must print
what the page shows; the others are in `TESTED`, with the test that runs each.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import pages, programs, servers
from tests.waiting import DEADLINE_S, wait_until

ROOT = Path(__file__).resolve().parents[2]
# command of a page -> the test that runs it, or why it needs none
TESTED = {
    "git clone REPOSITORY bedplate && cd bedplate": "tests/apps/test_up.py",
    "make up": "tests/apps/test_up.py",
}
PAGES = ("README.md", "docs/tutorials/first-steps.md")


def is_for_second_terminal(step: pages.Step) -> bool:
    return step.command not in TESTED


def test_every_other_command_of_the_pages_has_its_test() -> None:
    for page in PAGES:
        assert any(map(is_for_second_terminal, pages.steps(ROOT / page)))
    assert all((ROOT / place).exists() for place in TESTED.values())


@pytest.fixture
def environ(tmp_path: Path) -> Iterator[dict[str, str]]:
    """What the second terminal of the tutorial has: the pasted KUBECONFIG, and a kubectl."""
    kubectl = programs.built("kubectl")
    # As in a checkout.
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/bin").symlink_to(servers.bedplate_program().parent)
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    out = tmp_path / "up.out"
    with out.open("wb") as target:
        up = subprocess.Popen(
            [str(servers.bedplate_program()), "up", "--plain", "--calm"],
            cwd=tmp_path,
            stdout=target,
            stderr=target,
            preexec_fn=servers._die_with_parent,
        )
    try:

        def is_ready() -> bool:
            assert up.poll() is None, out.read_text()
            return "the head: " in out.read_text()

        wait_until(is_ready, "nodes and head are ready", step_s=0.05, describe=out.read_text)
        pasted = re.search(r"export KUBECONFIG=(\S+)", out.read_text())
        assert pasted is not None
        yield os.environ | {"KUBECONFIG": pasted[1], "PATH": f"{kubectl.parent}:{os.environ['PATH']}"}
    finally:
        up.send_signal(signal.SIGINT)
        up.wait(DEADLINE_S)


@pytest.mark.external
@pytest.mark.parametrize("page", PAGES)
def test_the_second_terminals_commands_print_what_the_page_shows(
    page: str, environ: dict[str, str], tmp_path: Path
) -> None:
    commands = [step.command for step in pages.steps(ROOT / page) if is_for_second_terminal(step)]
    assert len(commands) > 4
    printed = pages.run_lines(commands, tmp_path, environ, DEADLINE_S)
    for command, text in zip(commands, printed, strict=True):
        assert text.strip() or command.startswith("export "), command
    pages.hold(ROOT / page, printed, tmp_path, is_for_second_terminal)
