"""One word for each state: nothing that people read calls it by another, and one list spells the words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import bedplate.ui
from bedplate.api.states import RESULTS, STATES

UI = Path(bedplate.ui.__file__).parent
TEMPLATES = sorted((UI / "web/templates").glob("*.html"))
OTHERS = re.compile(
    r"\b(never reported|failing checks?|offline|online|unreachable|unhealthy|healthy|is (up|down)|are (up|down)"
    r"|passing|dead|not responding|out of contact)\b"
)
"""What the states of nodes could also be called."""


def _shown(template: Path) -> str:
    """What a template shows as it is: without what is computed, without tags."""
    text = re.sub(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}", " ", template.read_text(), flags=re.S)
    return re.sub(r"<[^>]*>", " ", text)


def _sentences() -> Iterator[tuple[str, str]]:
    """Every text of the front ends that is not a docstring."""
    for file in sorted(UI.rglob("*.py")):
        module = ast.parse(file.read_text())
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        told = {
            node.body[0].value
            for node in ast.walk(module)
            if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(module):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in told:
                yield file.relative_to(UI).as_posix(), node.value


def test_templates_call_states_by_no_other_word() -> None:
    found = {(file.name, match[0]) for file in TEMPLATES for match in OTHERS.finditer(_shown(file))}
    assert found == set()
    small = {file.name for file in TEMPLATES if re.search(r"\b(up|down|unknown|pass|fail)\b", _shown(file))}
    assert small == {"list.html"}, "the order of a list is up or down"


def test_the_shell_and_the_page_call_states_by_no_other_word() -> None:
    assert {(file, text) for file, text in _sentences() if OTHERS.search(text)} == set()


def test_colours_are_chosen_in_one_place() -> None:
    """A template that compares with a word would give it a colour of its own."""
    words = "|".join({*STATES, *RESULTS})
    for file in TEMPLATES:
        assert not re.search(rf"""(?:==|!=|in) *\(?["'](?:{words})["']""", file.read_text()), file.name
    for file in sorted(UI.rglob("*.py")):
        assert not re.search(r"\(\"UP\", \"DOWN\"|\(\"PASS\", \"FAIL\"", file.read_text()), file.name
