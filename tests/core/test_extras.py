"""Extras: a program whose optional packages are missing names the extra that brings them, and exits with code 1."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from bedplate.core import extras

ROOT = Path(__file__).resolve().parents[2]
# Runs a program as if these modules were not installed.
BLOCKED = """
import sys
from importlib.abc import MetaPathFinder

class Blocker(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
from {module} import main
main({arguments!r})
"""


def run_without(extra: str, folder: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = BLOCKED.format(blocked=extras.MODULES[extra], module=module, arguments=list(arguments))
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("extra", "module", "arguments", "message"),
    [
        ("head", "cmsh", ["-c", "device list"], "cmsh needs the extra 'head': pip install '.[head]' in the checkout"),
        ("head", "bedplate", ["cmsh"], "bedplate: cmsh needs the extra 'head': pip install '.[head]' in the checkout"),
        (
            "head",
            "bedplate",
            ["head", "status"],
            "bedplate: head needs the extra 'head': pip install '.[head]' in the checkout",
        ),
        ("head", "bedplate", ["up"], "bedplate: up needs the extra 'head': pip install '.[head]' in the checkout"),
        (
            "apiserver",
            "bedplate",
            ["apiserver"],
            "bedplate: apiserver needs the extra 'apiserver': pip install '.[apiserver]' in the checkout",
        ),
        (
            "etcd",
            "bedplate",
            ["apiserver", "--data", "data", "--store", "etcd", "--etcd-endpoints", "http://127.0.0.1:1"],
            "bedplate: --store etcd needs the extra 'etcd': pip install '.[etcd]' in the checkout",
        ),
    ],
)
def test_a_program_names_the_extra_that_is_missing(
    tmp_path: Path, extra: str, module: str, arguments: list[str], message: str
) -> None:
    done = run_without(extra, tmp_path, f"bedplate.apps.{module}", *arguments)
    assert (done.returncode, done.stderr.splitlines()[-1:]) == (1, [message]), done.stderr


@pytest.mark.parametrize("extra", extras.MODULES)
def test_a_manager_needs_no_extra(tmp_path: Path, extra: str) -> None:
    done = run_without(extra, tmp_path, "bedplate.apps.bedplate", "ccm", "run", "--version")
    assert done.returncode == 0, done.stderr


def test_several_missing_extras_are_named_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(extras.MissingExtra) as refused:
        extras.require("up", "apiserver", "head")
    assert str(refused.value) == (
        "up needs the extras 'apiserver' and 'head': pip install '.[apiserver,head]' in the checkout"
    )


def test_the_modules_of_each_extra_are_those_of_its_packages_in_pyproject() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    everything = declared.pop("all")
    assert everything == [f"bedplate[{','.join(declared)}]"]
    distributions = importlib.metadata.packages_distributions()
    brought = {
        extra: {re.sub(r"[-_.]+", "-", distributions[module][0]).lower() for module in modules}
        for extra, modules in extras.MODULES.items()
    }
    assert brought == {
        extra: {re.split(r"[<>=]", package)[0].lower() for package in packages} for extra, packages in declared.items()
    }
