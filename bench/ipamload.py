"""CNI calls in numbers: the driver of `peers/cniload`, what it is told, and what it found.

In: a plugin, its configuration, calls and how many of them at once. Out: an `Outcome` a call. The driver is a small C
program, built once per state of its source into the user's cache folder.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bedplate.core import errors
from bedplate.lab import binaries, processes

__all__ = ["Call", "Outcome", "build", "drive", "percentile", "rate"]

SOURCE = pathlib.Path(__file__).parent / "peers" / "cniload" / "main.c"
BUILD_TIMEOUT_S = 120
DRIVE_TIMEOUT_S = 900


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the plugin; `at_s` is when it is made, from the beginning of the run (0: when its turn comes)."""

    command: str
    container: str
    interface: str
    pod: str
    namespace: str
    uid: str = ""
    at_s: float = 0.0

    def line(self) -> str:
        arguments = f"IgnoreUnknown=1;K8S_POD_NAMESPACE={self.namespace};K8S_POD_NAME={self.pod}"
        if self.uid:
            arguments += f";K8S_POD_UID={self.uid}"
        return f"{int(self.at_s * 1e6)}\t{self.command}\t{self.container}\t{self.interface}\t{arguments}\n"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a call. Times are the plugin's, from its start to its end."""

    call: Call
    start_s: float
    wall_s: float
    cpu_s: float
    code: int
    printed: str

    @property
    def is_ok(self) -> bool:
        return self.code == 0

    def addresses(self) -> list[str]:
        """The addresses of a successful ADD, without their lengths."""
        document: Any = json.loads(self.printed)
        return [item["address"].partition("/")[0] for item in document["ips"]]


def build() -> pathlib.Path:
    """The driver."""
    source = SOURCE.read_bytes()
    target = binaries.cache_folder(os.environ) / "peers" / hashlib.sha256(source).hexdigest()[:16] / "cniload"
    if os.access(target, os.X_OK):
        return target
    compiler = shutil.which("cc")
    if compiler is None:
        raise errors.Unavailable("no C compiler (cc) was found: the load driver cannot be built")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(f".{os.getpid()}")
    command = [compiler, "-O2", "-pthread", "-o", str(partial), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    if done.returncode:
        raise errors.Unavailable(f"the load driver cannot be built: {done.stderr.strip()}")
    partial.rename(target)
    return target


async def drive(
    plugin: pathlib.Path, config: pathlib.Path, calls: Sequence[Call], at_once: int, folder: pathlib.Path
) -> list[Outcome]:
    """Make the calls; they are begun in their order."""
    told = folder / "calls"
    told.write_text("".join(call.line() for call in calls))
    with told.open("rb") as given:
        child = await asyncio.create_subprocess_exec(
            str(build()), str(plugin), str(config), str(at_once), str(plugin.parent),
            stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            preexec_fn=processes.die_with_parent(os.getpid()),
        )  # fmt: skip
    try:
        async with asyncio.timeout(DRIVE_TIMEOUT_S):
            printed, complaint = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        raise errors.Terminal(f"the load driver failed: {complaint.decode(errors='replace').strip()}")
    return [_outcome(calls, line) for line in printed.decode(errors="replace").splitlines()]


def _outcome(calls: Sequence[Call], line: str) -> Outcome:
    number, start, wall, cpu, code, printed = line.split("\t", 5)
    return Outcome(calls[int(number)], int(start) / 1e6, int(wall) / 1e6, int(cpu) / 1e6, int(code), printed.strip())


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that this share of all does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def rate(outcomes: Sequence[Outcome]) -> float:
    """Calls per second, from the first start to the last end."""
    ends = [outcome.start_s + outcome.wall_s for outcome in outcomes]
    return len(outcomes) / (max(ends) - min(outcome.start_s for outcome in outcomes))
