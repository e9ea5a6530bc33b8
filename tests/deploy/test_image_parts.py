"""Which modules the managers' image leaves out: none that another one of it imports, as far as the source shows."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.deploy.conftest import ROOT

SOURCE = ROOT / "src" / "bedplate"


def imported(tree: ast.Module) -> Iterator[str]:
    """The modules that are loaded with this one: imports at the top, not those in functions or for types."""
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            yield from (name.name for name in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            yield statement.module
            yield from (f"{statement.module}.{name.name}" for name in statement.names)


def files_of(module: str) -> list[Path]:
    place = SOURCE.parent.joinpath(*module.split("."))
    return [path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()]


@pytest.fixture(scope="module")
def is_left_out() -> Callable[[Path], bool]:
    spec = importlib.util.spec_from_file_location("bedplate_rootfs", ROOT / "tools" / "rootfs.py")
    assert spec is not None and spec.loader is not None
    tool = sys.modules["bedplate_rootfs"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return lambda path: tool.NO_PARTS.match(path.relative_to(SOURCE).as_posix()) is not None


def test_no_module_of_the_image_loads_one_that_is_left_out(is_left_out: Callable[[Path], bool]) -> None:
    modules = [path for path in SOURCE.rglob("*.py") if not is_left_out(path)]
    assert len(modules) > 100
    missing = {
        f"{path.relative_to(SOURCE)} loads {module}"
        for path in modules
        for module in imported(ast.parse(path.read_text()))
        if module.startswith("bedplate.") and any(is_left_out(file) for file in files_of(module))
    }
    assert not missing, sorted(missing)
