"""Writes requirements/*.txt: every package that pyproject.toml and requirements/dev.in lead to, with its hashes.

    python tools/lock.py [--upgrade]     needs `pip-compile` on the PATH: pip install pip-tools

    base.txt                      what every installation needs; the image of the managers holds this and nothing else
    head.txt, apiserver.txt, …    what each extra of pyproject.toml adds to that
    dev.txt                       what tests, lint and docs add

Versions that still fit stay as they are; `--upgrade` takes the newest. The files name neither an index nor a folder of
packages, whatever this machine's pip is configured with, so that every machine uses the ones it is configured for.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"
OPTIONS = (
    "--quiet",
    "--generate-hashes",
    "--strip-extras",
    "--allow-unsafe",
    "--no-header",
    "--no-emit-options",
    "--no-emit-index-url",
    "--no-emit-trusted-host",
    "--no-emit-find-links",
)
# A pin with its hashes and the comment that says who needs it.
PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==.*\n(?:[ ]{4}.*\n)*", re.MULTILINE)


def extras() -> list[str]:
    """The extras of pyproject.toml but the one that names all others."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [name for name in project["optional-dependencies"] if name != "all"]


def names(text: str) -> set[str]:
    """The packages that a file of pins holds."""
    return {pin[1] for pin in PIN.finditer(text)}


def without(text: str, others: Iterable[str]) -> str:
    """The pins of a file that are not among these packages."""
    return PIN.sub(lambda pin: "" if pin[1] in others else pin[0], text)


def compile_pins(name: str, *arguments: str) -> str:
    """Have pip-compile write a file of pins; its text."""
    target = FOLDER / name
    command = ["pip-compile", *OPTIONS, f"--output-file={target.relative_to(ROOT)}", *arguments]
    subprocess.run(command, cwd=ROOT, check=True)
    return target.read_text()


def main() -> None:
    parser = argparse.ArgumentParser(description="Pin every Python package with its hashes.")
    parser.add_argument("--upgrade", action="store_true", help="take the newest version of every package")
    upgrade = ["--upgrade"] if parser.parse_args().upgrade else []
    if shutil.which("pip-compile") is None:
        sys.exit("lock: pip-compile not found: pip install pip-tools")
    base = compile_pins("base.txt", *upgrade, "pyproject.toml")
    constraints = ["--constraint=requirements/base.txt"]
    for extra in extras():
        text = compile_pins(f"{extra}.txt", *upgrade, *constraints, f"--extra={extra}", "pyproject.toml")
        (FOLDER / f"{extra}.txt").write_text(without(text, names(base)))
        constraints.append(f"--constraint=requirements/{extra}.txt")
    compile_pins("dev.txt", *upgrade, *constraints, "requirements/dev.in")


if __name__ == "__main__":
    main()
