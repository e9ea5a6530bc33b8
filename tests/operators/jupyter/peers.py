"""Jupyter from PyPI, for tests that are marked `external`: ipykernel, jupyter_client, Jupyter Enterprise Gateway.

In: nothing. Out: the Python of a virtual environment in the user's cache folder that has them, made once. Where it
cannot be made (no network) the test is skipped with the reason.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests import tiers

from bedplate.lab import binaries

PACKAGES = ("jupyter_enterprise_gateway==3.3.0", "ipykernel==6.29.5", "setuptools<81")
INSTALL_S = 600


def python() -> Path:
    """The Python that has Jupyter's packages."""
    tiers.guard("Jupyter")
    folder = binaries.cache_folder(os.environ) / "peers" / PACKAGES[0].replace("==", "-")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "installed").exists():
            _install(folder)
    return folder / "bin" / "python"


def _install(folder: Path) -> None:
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in ([sys.executable, "-m", "venv", "--clear", str(folder)], [*pip, *PACKAGES]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as err:
            pytest.skip(f"{PACKAGES[0]} could not be installed: {err}")
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no output"]
            pytest.skip(f"{PACKAGES[0]} could not be installed: {lines[-1]}")
    (folder / "installed").touch()
