"""The cloud controller managers under test, as processes: how they are started, and what they have used.

In: a kubeconfig and the simulated cloud's address and token. Out: `Contender`s with their command lines at three
settings, and a context manager that runs one. The original Oxide manager is found in the folder BEDPLATE_PEERS names.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from bedplate.core import errors
from bedplate.lab import processes
from bench import programs, servers

__all__ = ["Contender", "Usage", "contenders", "running"]

STOP_DEADLINE_S = 30.0
ORIGINAL = "oxide-cloud-controller-manager"
# No election and no port: the same for all, so that they can take turns without waiting for each other's lease.
COMMON = ("--leader-elect=false", "--secure-port=0")
DEFAULTS = "defaults"
SETTINGS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    DEFAULTS: ((), ()),
    "16 workers, 500 QPS": (
        ("--concurrent-node-syncs=16", "--kube-api-qps=500", "--kube-api-burst=500"),
        ("--event-qps=500",),
    ),
    "16 workers, 5,000 QPS": (
        ("--concurrent-node-syncs=16", "--kube-api-qps=5000", "--kube-api-burst=5000"),
        ("--event-qps=5000",),
    ),
}


@dataclass(frozen=True, slots=True)
class Contender:
    """A manager to measure."""

    name: str
    program: pathlib.Path
    provider: str
    is_ours: bool = False

    def command(self, kubeconfig: pathlib.Path, setting: str, *more: str) -> list[str]:
        both, own = SETTINGS[setting]
        flags = [f"--cloud-provider={self.provider}", f"--kubeconfig={kubeconfig}", *COMMON, *both]
        return [str(self.program), *flags, *(own if self.is_ours else ()), *more]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a running manager has used so far."""

    pid: int

    def cpu_s(self) -> float:
        return servers.cpu_s(self.pid)

    def rss_mb(self) -> float:
        return servers.rss_mb(self.pid)

    def peak_mb(self) -> float:
        return servers.peak_mb(self.pid)


def contenders(tell: Callable[[str], None]) -> list[Contender]:
    """Ours, a manager on the Go framework (built from `peers/ccm`), and the original where it is available."""
    ours = Contender("ours", pathlib.Path(sys.executable).with_name(ORIGINAL), "oxide", is_ours=True)
    known = [ours, Contender("framework", programs.build("ccm", tell), "peer")]
    folder = os.environ.get("BEDPLATE_PEERS", "")
    original = pathlib.Path(folder, ORIGINAL) if folder else None
    if original is not None and os.access(original, os.X_OK):
        known.append(Contender("original", original, "oxide"))
    return known


@contextlib.contextmanager
def running(command: list[str], environ: Mapping[str, str], log: pathlib.Path) -> Iterator[Usage]:
    """Run a manager; it must still be there at the end. Ours keeps its bytecode, as where it is installed."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with open(log, "ab") as output:
        child = subprocess.Popen(
            command,
            env={**inherited, **environ},
            stdout=output,
            stderr=output,
            preexec_fn=processes.die_with_parent(os.getpid()),
        )
    try:
        yield Usage(child.pid)
        if child.poll() is not None:
            raise errors.Terminal(f"{command[0]} ended by itself: {processes.tail(log)}")
    finally:
        child.terminate()
        try:
            child.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
