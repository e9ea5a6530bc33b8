"""The native programs' own tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_crates_pass_their_own_tests() -> None:
    cargo = shutil.which("cargo")
    if cargo is None:
        pytest.skip("no cargo here")
    command = [cargo, "test", "--quiet", "--offline", "--locked", "--workspace"]
    env = os.environ | {"RUST_BACKTRACE": "0"}
    ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=1800, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("test result: ok") >= 2
