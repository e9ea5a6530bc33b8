"""Every command a newcomer is told to type works: those of the README and of the first tutorial.

The commands are read from the pages. Those of the second terminal are run in their order on one cluster, and must print
what the page shows; the others are in `TESTED`, with the test that runs each.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import pages
from tests.docs.conftest import Up
from tests.waiting import DEADLINE_S

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


@pytest.mark.external
@pytest.mark.parametrize("page", PAGES)
def test_the_second_terminals_commands_print_what_the_page_shows(page: str, up: Up) -> None:
    commands = [step.command for step in pages.steps(ROOT / page) if is_for_second_terminal(step)]
    assert len(commands) > 4
    printed = pages.run_lines(commands, up.folder, up.environ, DEADLINE_S)
    for command, text in zip(commands, printed, strict=True):
        assert text.strip() or command.startswith("export "), command
    pages.hold(ROOT / page, printed, up.folder, is_for_second_terminal)


@pytest.mark.external
def test_the_front_page_shows_what_make_up_prints(up: Up) -> None:
    (step,) = [step for step in pages.steps(ROOT / "README.md") if step.command == "make up"]
    printed = up.printed.replace(str(up.folder), "/home/you/bedplate").splitlines()
    assert [*map(pages.comparable, step.shown)] == [*map(pages.comparable, printed[: len(step.shown)])]
    assert "try: .venv/bin/cmsh" in step.shown[-1]
