"""The shipped API server has no hidden switches: all it reads of its environment is a list of two names."""

from __future__ import annotations

import ast
import pathlib
import re

import bedplate.apiserver

ROOT = pathlib.Path(bedplate.apiserver.__file__).parent
ALLOWED = {("cli.py", "BEDPLATE_CACHE"), ("cli.py", "XDG_CACHE_HOME")}
"""Both say where to look for the texts of `kubectl explain`, and nothing else."""


def variables(source: str) -> set[str]:
    """The environment variables a module reads; `?` for a use of the environment whose variable is not a literal."""
    tree = ast.parse(source)
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            reader, arguments = ast.unparse(node.func), node.args
        elif isinstance(node, ast.Subscript):
            reader, arguments = ast.unparse(node.value), [node.slice]
        else:
            continue
        if reader in ("os.environ", "os.environ.get", "os.getenv") and isinstance(arguments[0], ast.Constant):
            names.append(str(arguments[0].value))
    uses = len(re.findall(r"\b(?:environb?|getenvb?)\b", ast.unparse(tree)))
    return {*names} if uses == len(names) else {*names, "?"}


def test_the_search_sees_every_way_to_read_the_environment() -> None:
    assert variables('import os\nos.environ.get("A")\nos.environ["B"]\nos.getenv("C")') == {"A", "B", "C"}
    assert "?" in variables("import os\nos.environ.get(name)")
    assert "?" in variables("from os import environ as e\ne['A']")
    assert "?" in variables("import os\nf(os.environ)")


def test_the_environment_has_no_say_in_what_is_allowed() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), name) for path in ROOT.rglob("*.py") for name in variables(path.read_text())
    }
    assert found == ALLOWED


def test_no_fault_can_be_switched_on_in_the_product() -> None:
    source = ROOT.parents[1]
    named = [
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if re.search(r"planted|PLANT_FAULT|faulty_server", path.read_text())
    ]
    assert named == []
