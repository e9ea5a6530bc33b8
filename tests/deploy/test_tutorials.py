"""The tutorials of the providers work as written: their commands, in their order, in one shell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests import pages, programs
from tests.deploy.conftest import ROOT

DEADLINE_S = 1200
PORTS = ("8900", "8901", "6443")


def run_page(name: str, folder: Path) -> str:
    folders = f"{Path(sys.executable).parent}:{programs.built('kubectl').parent}"
    environ = {**os.environ, "PATH": f"{folders}:{os.environ['PATH']}", "HOME": str(folder)}
    return pages.run(ROOT / "docs" / "tutorials" / name, folder, environ, PORTS, DEADLINE_S)


@pytest.mark.external
def test_the_tutorial_of_nvidia_bmm(tmp_path: Path) -> None:
    printed = run_page("nvidia-bmm.md", tmp_path)
    assert "nvidia-bmm://acme/" in printed
    assert "nvidia-bmm-zone-" in printed
    assert re.search(r"node/bmm-004.*(deleted|condition met)", printed)
    assert 'deployment "web" successfully rolled out' in printed


@pytest.mark.external
def test_the_tutorial_of_oxide(tmp_path: Path) -> None:
    printed = run_page("oxide.md", tmp_path)
    assert "oxide://" in printed
    assert re.search(r'"ip":"\d+\.\d+\.\d+\.\d+"', printed)
    assert "DeletedLoadBalancer" in printed


@pytest.mark.external
def test_the_tutorial_of_address_management(tmp_path: Path, nv_ipam: Path) -> None:
    printed = run_page("ipam.md", tmp_path)
    assert "host-001 => Start IP: 192.168.0.1 End IP: 192.168.0.24" in printed
    # The first address, and after it was given back the next one.
    assert re.findall(r'"address": ?"([^"]+)"', printed) == ["192.168.0.2/16", "192.168.0.3/16"]
    assert "rack Exists fails: the node has no label rack" in printed
    assert re.search(r"spec +invalid +spec.perNodeBlockSize", printed)
    # Programs that are being stopped may still say something after it.
    assert any(line.startswith("+ kill") for line in printed.splitlines())


@pytest.mark.parametrize("page", ["nvidia-bmm.md", "oxide.md"])
def test_a_tutorial_uses_only_flags_that_its_manager_has(page: str) -> None:
    manager = page.removesuffix(".md") + "-cloud-controller-manager"
    known = subprocess.run(
        [str(Path(sys.executable).with_name(manager)), "--help"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    (line,) = [each for each in pages.console_lines(ROOT / "docs" / "tutorials" / page) if each.startswith(manager)]
    for flag in re.findall(r"--([a-z-]+)", line):
        assert f"--{flag}" in known, flag
