"""The native programs' own tests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests import programs

ROOT = Path(__file__).parents[2]


@pytest.mark.external
def test_the_crates_pass_their_own_tests() -> None:
    command = [programs.on_path("cargo"), "test", "--quiet", "--offline", "--locked", "--workspace"]
    env = os.environ | {"RUST_BACKTRACE": "0"}
    ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=1800, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("test result: ok") >= 2
