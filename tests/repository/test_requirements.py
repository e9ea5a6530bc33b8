"""The pins are the same on every machine: versions and hashes, never an index or a folder that only one machine has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "requirements").glob("*.txt"))
PIN = re.compile(r"[a-z0-9][a-z0-9._-]*==\S+( ; [^\\]+)? \\\n(    --hash=sha256:[0-9a-f]{64}( \\)?\n)+( +#.*\n)*")


def problems(text: str) -> list[str]:
    """What is left of a file of pins without its pins and comments."""
    return [line for line in PIN.sub("", text).splitlines() if line.strip() and line[0] != "#"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_pins_are_versions_with_hashes_and_nothing_else(path: Path) -> None:
    assert problems(path.read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        "--find-links /opt/wheels",
        "--index-url https://index.example/simple",
        "--extra-index-url https://index.example/simple",
        "--trusted-host index.example",
        "/opt/wheels/aiohttp-3.14.5.whl",
        "aiohttp @ file:///opt/wheels/aiohttp-3.14.5.whl",
        "aiohttp==3.14.5",
    ],
)
def test_a_line_of_one_machine_or_without_a_hash_is_noticed(line: str) -> None:
    text = FILES[0].read_text()
    assert problems(f"{line}\n\n{text}") == [line]
