"""Every item of the checklist that the head promises has a test that carries its number."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PROMISED = {*range(1, 40), *range(56, 64), *range(118, 121), *range(122, 127), 128, 131, 132, 219, 220, 222}
NAME = re.compile(r"test_(?:items?_)?((?:\d+_)+)")


def numbered() -> dict[int, list[str]]:
    """Tests by the numbers in their names."""
    found: dict[int, list[str]] = {}
    for folder in ("head", "ui", "apps", "client", "checklist", "sim"):
        for file in sorted((TESTS / folder).rglob("test_*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (match := NAME.match(node.name)):
                    for number in match[1].split("_")[:-1]:
                        found.setdefault(int(number), []).append(f"{file.relative_to(TESTS)}::{node.name}")
    return found


def test_every_promised_item_has_a_test_with_its_number() -> None:
    missing = sorted(PROMISED - set(numbered()))
    assert not missing, f"no test is called test_item_NNN_... for {missing}"
