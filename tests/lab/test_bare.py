"""Bare nodes, as far as they can be judged without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bedplate.lab import bare


def test_the_script_hides_what_packages_bring_and_is_a_script(tmp_path: Path) -> None:
    package = tmp_path / "packages/x"
    for path in ("usr/bin/env", "usr/bin/never-there"):
        place = package / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("")
    text = bare.script("node001", tmp_path, tmp_path / "nodes/node001")
    assert "rm -rf etc/bedplate usr/bin/env)" in text
    assert f"exec {sys.executable} -m bedplate.apps.agent" in text
    assert subprocess.run(["sh", "-n", "-c", text], capture_output=True, check=True).stderr == b""


def test_a_first_process_is_one_in_a_namespace_of_its_own() -> None:
    assert not bare.is_init(os.getpid())
    assert not bare.is_init(2**22 + 1)


def test_the_interpreter_is_shown_once() -> None:
    shown = bare._interpreter()
    assert len(shown) == len(set(shown))
    assert not any(other != path and path.startswith(f"{other}/") for path in shown for other in shown)
    assert not any(path.startswith(("/usr/", "/opt/")) for path in shown)
