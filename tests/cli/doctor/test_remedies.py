"""A command that `bedplate doctor` or `bedplate ipam` suggests can be pasted as it stands, remark included."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.test_pages import unknown_parts

CHECKOUT = Path(__file__).resolve().parents[3]
ROOT = CHECKOUT / "src/bedplate"
FILES = (*ROOT.glob("cli/doctor/*.py"), *ROOT.glob("cloud/**/doctor.py"), ROOT / "cli/ipam/survey.py")


def texts(node: ast.AST) -> Iterator[str]:
    """The strings of a module, with a word for every value that is filled in."""
    if isinstance(node, ast.JoinedStr):
        parts = [str(part.value) if isinstance(part, ast.Constant) else "value" for part in node.values]
        yield "".join(parts)
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for child in ast.iter_child_nodes(node):
        yield from texts(child)


TEXTS = {text for file in FILES for text in texts(ast.parse(file.read_text()))}
# A pattern that looks for such a command is none.
REMEDIES = sorted(text for text in TEXTS if re.match(r"(kubectl|bedplate) ", text) and "(?:" not in text)


def test_a_remark_behind_a_command_is_one_for_the_shell_too() -> None:
    assert not [text for text in TEXTS if re.search(r"\S   \(", text)]
    assert [text for text in TEXTS if re.search(r"^value   # ", text)]


def test_there_are_remedies_to_look_at() -> None:
    assert len(REMEDIES) > 15


@pytest.mark.parametrize("remedy", REMEDIES)
def test_a_remedy_can_be_pasted(remedy: str) -> None:
    command, _, remark = remedy.partition("   # ")
    assert not re.search(r", | \(|\bthen\b|\?|<|[A-Z]{4,}$", command), command
    assert remark or "#" not in command
    for each in re.split(r" \| |; ", command):
        if each.startswith("bedplate "):
            assert not unknown_parts(each.strip()), each


def test_the_files_that_the_doctor_names_exist_and_nothing_is_left_to_fill_in() -> None:
    for text in TEXTS:
        for place in re.findall(r"(?<![\w/])(?:deploy|manifests|docs)/[\w./-]+", text):
            assert list(CHECKOUT.glob(place.replace("/value", "/*").rstrip("."))), place
        assert not re.search(r"(?m)^(?!  )[^\n]*(?:kubectl|bedplate) [^#\n]*…", text), text
        # A value of which only the kind is told.
        assert not re.search(r"--[a-z-]+[ =](?:\w+://)?[A-Z]{4,}\b", text), text


def test_a_shell_reads_every_remedy() -> None:
    done = subprocess.run(["bash", "-n"], input="\n".join(REMEDIES), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
