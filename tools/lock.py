"""Writes requirements/*.txt: every package that pyproject.toml and requirements/dev.in lead to, with its hashes.

    python tools/lock.py [--upgrade]     needs `pip-compile` on the PATH: pip install pip-tools

Versions that still fit stay as they are; `--upgrade` takes the newest. The files name neither an index nor a folder of
packages, whatever this machine's pip is configured with, so that every machine uses the ones it is configured for.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
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
# file of pins -> what it is made from; a file may build on the pins of those before it
FILES = {
    "base.txt": ("pyproject.toml",),
    "dev.txt": ("--constraint=requirements/base.txt", "requirements/dev.in"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Pin every Python package with its hashes.")
    parser.add_argument("--upgrade", action="store_true", help="take the newest version of every package")
    upgrade = ["--upgrade"] if parser.parse_args().upgrade else []
    if shutil.which("pip-compile") is None:
        sys.exit("lock: pip-compile not found: pip install pip-tools")
    for name, sources in FILES.items():
        command = ["pip-compile", *OPTIONS, *upgrade, f"--output-file=requirements/{name}", *sources]
        subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
