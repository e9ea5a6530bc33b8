"""The tutorials of the providers work as written: their commands, in their order, in one shell."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests import pages, programs
from tests.deploy.conftest import ROOT, VERSION, checkout

from bedplate.lab import binaries

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


CLOUDLYCKE = ROOT / "docs" / "tutorials" / "cloudlycke.md"
in_a_lab = (
    *(pytest.mark.external, pytest.mark.root, pytest.mark.lab, pytest.mark.xdist_group("lab")),
    pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root"),
)


@pytest.mark.parametrize(
    "is_whole", [pytest.param(False, marks=in_a_lab), pytest.param(True, marks=(*in_a_lab, pytest.mark.soak))]
)
def test_the_tutorial_of_cloudlycke(tmp_path: Path, is_whole: bool) -> None:
    """In a checkout of its own, as `make image` writes into it, with the PATH that the page asks for. In short without
    the node that is switched off, which takes its time and is in tests/lab/test_lab_cloud.py, too."""
    (tmp_path / "checkout").mkdir()
    folder = checkout(tmp_path / "checkout")
    environ = {
        **os.environ,
        "PATH": f"{folder / '.venv' / 'bin'}:{os.environ['PATH']}",
        "XDG_STATE_HOME": str(tmp_path),
        "BEDPLATE_CACHE": str(binaries.cache_folder()),
    }
    lines = pages.console_lines(CLOUDLYCKE)
    if not is_whole:
        # Up to where the carrier's addresses are shown.
        lines = lines[: next(number for number, line in enumerate(lines) if "$CARRIER" in line) + 1]
    try:
        printed = pages.run_lines(lines, folder, environ, 2 * DEADLINE_S)
    finally:
        for name in ("c1", "c2"):
            command = [str(folder / ".venv/bin/bedplate"), "lab", "down", "--name", name]
            subprocess.run(command, env=environ, capture_output=True, timeout=300, check=False)
    numbers = itertools.count()
    pages.hold(CLOUDLYCKE, printed, folder, lambda _step: next(numbers) < len(lines))
    whole = "\n".join(printed)
    assert "untolerated taint" in whole, "pods of cluster 2 wait"
    assert "topology.kubernetes.io/zone=virtualbox" in whole
    assert "method=instance_metadata" in whole and "node.initialised" in whole
    given = re.search(r"LoadBalancer +\S+ +(192\.168\.20\.20[0-7]) ", whole)
    assert given is not None
    # The machine that the Lease names carries the address; in the end that is the other one.
    carrying = [line for line, text in zip(lines, printed, strict=True) if f"inet {given[1]}/" in text]
    assert len(carrying) == (3 if is_whole else 1), carrying


def test_the_tutorial_of_cloudlycke_can_be_followed_without_an_editor_or_an_end_by_hand() -> None:
    """Nothing waits for a person, and nothing is named that only one machine has."""
    lines = pages.console_lines(CLOUDLYCKE)
    assert lines[0].startswith("bedplate lab up") and lines[-1].startswith("bedplate lab down")
    for line in lines:
        assert not line.endswith("\\"), "a command is one line"
        assert not re.search(r" edit | -f$|^sudo ", line), line
    started = [line for line in lines if re.match(r"curl ", line)]
    assert started and all("$ADDRESS" in line for line in started), "the address is the one that was given"
    assert f"bedplate lab load-image --name c2 build/image/bedplate-{VERSION}.tar" in lines
    assert lines.index("make image") < lines.index(
        "bedplate lab kubectl --name c2 -- apply -f manifests/cloudlycke-ccm.yaml"
    )
    assert "sudo --shell" in CLOUDLYCKE.read_text() and "export PATH=$PWD/.venv/bin:$PATH" in CLOUDLYCKE.read_text()


@pytest.mark.parametrize("page", ["nvidia-bmm.md", "oxide.md"])
def test_a_tutorial_uses_only_flags_that_its_manager_has(page: str) -> None:
    manager = page.removesuffix(".md") + "-cloud-controller-manager"
    known = subprocess.run(
        [str(Path(sys.executable).with_name(manager)), "--help"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    (line,) = [each for each in pages.console_lines(ROOT / "docs" / "tutorials" / page) if each.startswith(manager)]
    for flag in re.findall(r"--([a-z-]+)", line):
        assert f"--{flag}" in known, flag
