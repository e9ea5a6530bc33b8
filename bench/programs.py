"""The Go programs of `peers/`, built once per state of their sources into the user's cache folder.

In: a program's name. Out: its path. Raises `Unavailable` where no Go or no module proxy is available.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import subprocess
from collections.abc import Callable
from typing import Any

from bedplate.core import errors
from bedplate.lab import binaries, building, processes

__all__ = ["build", "call"]

PEERS = pathlib.Path(__file__).parent / "peers"
CALL_TIMEOUT_S = 900


def sources(name: str) -> dict[str, str]:
    """The texts a program is made of; all programs share one list of modules."""
    files = [PEERS / "go.mod", PEERS / "go.sum", *sorted((PEERS / name).glob("*.go"))]
    return {path.name: path.read_text() for path in files}


def build(name: str, report: Callable[[str], None]) -> pathlib.Path:
    texts = sources(name)
    key = hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:16]
    cache = binaries.cache_folder(os.environ)
    target = cache / "peers" / key / f"bench-{name}"
    if not os.access(target, os.X_OK):
        building.Builder(cache, dict(os.environ), report).build_folder(texts, target)
    return target


def call(command: list[str]) -> Any:
    """Run a program that prints its findings as JSON."""
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=CALL_TIMEOUT_S,
        check=False,
        preexec_fn=processes.die_with_parent(os.getpid()),
    )
    if result.returncode:
        last = "\n".join(result.stderr.strip().splitlines()[-5:])
        raise errors.Terminal(f"{pathlib.Path(command[0]).name} failed: {last}")
    return json.loads(result.stdout)
