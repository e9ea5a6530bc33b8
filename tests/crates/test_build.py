"""Building the native parts: once for all checkouts, where they are looked for, and not at all without a cargo."""

from __future__ import annotations

import importlib.util
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CARGO = """#!/bin/sh
echo "$@" >> "$LOG"
mkdir -p target/release
[ -z "$FAILS" ] || { echo "error: linker cc not found" >&2; exit 101; }
echo program > target/release/nv-ipam
echo library > target/release/libstoresum.so
"""
RUSTC = """#!/bin/sh
[ -z "$MUTE" ] || { echo "error: no default is configured" >&2; exit 1; }
echo "rustc 9.9.9 $FLAVOUR"
"""


class Checkout:
    """A copy of what the tool looks at, a cargo that only pretends, and a cache."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self.cache = folder, cache
        for part in ("crates", "tools"):
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        for part in ("Cargo.toml", "Cargo.lock", "VERSION"):
            shutil.copy(ROOT / part, folder)
        for part in (".venv/bin", "src/bedplate/ipam/node", "fake"):
            (folder / part).mkdir(parents=True)
        for name, text in (("cargo", CARGO), ("rustc", RUSTC)):
            (folder / "fake" / name).write_text(text)
            (folder / "fake" / name).chmod(0o755)

    def run(self, what: str = "install", *, has_cargo: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.folder}/fake:/usr/bin:/bin" if has_cargo else "/nowhere"
        given = {"PATH": path, "BEDPLATE_CACHE": str(self.cache), "LOG": str(self.folder / "log"), **env}
        command = [sys.executable, str(self.folder / "tools" / "crates.py"), what]
        return subprocess.run(command, env=given, capture_output=True, text=True, timeout=120, check=False)

    def builds(self) -> list[str]:
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []

    def is_installed(self) -> bool:
        plugin, library = self.folder / ".venv/bin/nv-ipam", self.folder / "src/bedplate/ipam/node/libstoresum.so"
        return plugin.exists() and os.access(plugin, os.X_OK) and library.read_text() == "library\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Callable[[str], Checkout]:
    return lambda name: Checkout(tmp_path / name, tmp_path / "cache")


def test_a_second_checkout_builds_nothing(checkout: Callable[[str], Checkout]) -> None:
    first, second = checkout("one"), checkout("two")
    assert first.run().returncode == 0
    assert len(first.builds()) == 2 and first.is_installed()
    assert "+crt-static" in first.builds()[0]
    assert first.run().returncode == second.run().returncode == 0
    assert len(first.builds()) == 2 and second.builds() == []
    assert second.is_installed()


def test_a_change_of_sources_or_compiler_builds_again(checkout: Callable[[str], Checkout]) -> None:
    one = checkout("one")
    one.run()
    one.run(FLAVOUR="nightly")
    assert len(one.builds()) == 4
    main = one.folder / "crates/nv-ipam/src/main.rs"
    main.write_text(main.read_text() + "// another line\n")
    one.run()
    (one.folder / "VERSION").write_text("v99.0.0\n")
    one.run()
    assert len(one.builds()) == 8


def test_without_a_cargo_the_cache_is_enough(checkout: Callable[[str], Checkout]) -> None:
    one, two = checkout("one"), checkout("two")
    one.run()
    assert two.run(has_cargo=False).returncode == 0
    assert two.is_installed()


def test_without_a_compiler_that_answers_the_cache_is_enough(checkout: Callable[[str], Checkout]) -> None:
    """As with a rustup of another user's home."""
    one, two = checkout("one"), checkout("two")
    one.run()
    assert two.run(MUTE="1").returncode == 0
    assert two.is_installed() and two.builds() == []


def test_what_cannot_be_built_is_one_line(checkout: Callable[[str], Checkout]) -> None:
    one = checkout("one")
    for answer in (one.run(has_cargo=False), one.run(FAILS="1"), one.run(MUTE="1")):
        assert answer.returncode == 1
        assert answer.stderr.splitlines()[-1].startswith("error: ") and "Debian" in answer.stderr
    assert not one.is_installed()


def test_a_program_that_runs_is_replaced_not_written_over(checkout: Callable[[str], Checkout]) -> None:
    one = checkout("one")
    plugin = one.folder / ".venv/bin/nv-ipam"
    plugin.write_text("older")
    with plugin.open() as held:
        one.run()
        assert held.read() == "older"
    assert plugin.read_text() == "program\n"
    before = plugin.stat().st_ino
    one.run()
    assert plugin.stat().st_ino == before


def test_the_wheel_holds_the_plugin_and_the_library(tmp_path: Path, nv_ipam: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=600)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stem.split("-")[2:4] == ["py3", "none"] and "linux" in wheel.stem
    with zipfile.ZipFile(wheel) as archive:
        (plugin,) = [each for each in archive.infolist() if each.filename.endswith(".data/scripts/nv-ipam")]
        assert archive.read(plugin) == nv_ipam.read_bytes()
        assert "bedplate/ipam/node/libstoresum.so" in archive.namelist()


def test_the_image_holds_the_originals_three_programs(tmp_path: Path, nv_ipam: Path) -> None:
    command = [sys.executable, str(ROOT / "tools/rootfs.py"), "--output", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=1200)
    with tarfile.open(tmp_path / "app.tar") as layer:
        for name in ("ipam-controller", "ipam-node", "nv-ipam"):
            link, program = layer.getmember(name), layer.getmember(f"usr/bin/{name}")
            assert link.issym() and link.linkname == f"usr/bin/{name}"
            assert stat.S_IMODE(program.mode) == 0o755
        content = layer.extractfile("usr/bin/nv-ipam")
        assert content is not None and content.read() == nv_ipam.read_bytes()
        assert "usr/lib/bedplate/bedplate/ipam/node/libstoresum.so" in layer.getnames()


def test_set_up_goes_on_without_the_native_parts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location("bedplate_setup", ROOT / "tools/setup.py")
    assert spec is not None and spec.loader is not None
    setup = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(setup)
    monkeypatch.setattr(setup, "run", lambda *_command, **_more: (False, "error: no cargo; on Debian: …\n"))
    setup.build_crates()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("setup: left out: nv-ipam") and "no cargo; on Debian: …" in line
