"""Every behaviour that the head promises has a test with its number, and every number of a test is explained.

The behaviours are listed in `docs/reference/head-behaviours.md`.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs/reference/head-behaviours.md"
NAME = re.compile(r"test_items?_((?:\d+_)+)")
ROW = re.compile(r"^\| (\d+) \| \S", re.MULTILINE)


def numbered() -> dict[int, list[str]]:
    """Tests by the numbers in their names."""
    tests: dict[int, list[str]] = {}
    for folder in ("agent", "head", "ui", "apps", "cli", "client", "checklist", "lab", "setup", "sim"):
        for file in sorted((TESTS / folder).rglob("test_*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (match := NAME.match(node.name)):
                    for number in match[1].split("_")[:-1]:
                        tests.setdefault(int(number), []).append(f"{file.relative_to(TESTS)}::{node.name}")
    return tests


def promised() -> list[int]:
    """The numbers of the page, in its order."""
    return [int(number) for number in ROW.findall(PAGE.read_text())]


def test_every_promised_behaviour_has_a_test_with_its_number() -> None:
    missing = sorted(set(promised()) - set(numbered()))
    assert not missing, f"no test is called test_item_NNN_... for {missing}"


def test_every_number_of_a_test_is_explained_once() -> None:
    assert promised() == sorted(set(promised()))
    unknown = {number: tests for number, tests in numbered().items() if number not in promised()}
    assert not unknown, f"{PAGE.name} does not explain {unknown}"
