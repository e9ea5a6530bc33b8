"""The two API servers under test, as processes: ready times, memory, and a clean end.

In: a folder for their data (both on the same disk). Out: context managers that give a `Running`. Both sync every write
to disk before they acknowledge it.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from bedplate.core import errors
from bedplate.lab import controlplane, processes

__all__ = ["Running", "cpu_s", "embedded", "peak_mb", "real", "rss_mb"]

READY_DEADLINE_S = 120.0
STOP_DEADLINE_S = 30.0
SETTLE_S = 3.0


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers. `ready_s` is the time from the start of its process or processes to a ready `/readyz`."""

    kubeconfig: pathlib.Path
    pids: tuple[int, ...]
    ready_s: float
    version: str

    def rss_mb(self) -> float:
        """Resident memory of all its processes."""
        return sum(rss_mb(pid) for pid in self.pids)

    def cpu_s(self) -> float:
        """Processor time all its processes have used."""
        return sum(cpu_s(pid) for pid in self.pids)


@contextlib.contextmanager
def embedded(folder: pathlib.Path) -> Iterator[Running]:
    """`bedplate apiserver` with its SQLite store."""
    folder.mkdir(parents=True, exist_ok=True)
    kubeconfig = folder / "kubeconfig"
    kubeconfig.unlink(missing_ok=True)
    program = pathlib.Path(sys.executable).with_name("bedplate")
    command = [str(program), "apiserver", "--data", str(folder / "data"), "--port", "0"]
    begin = time.perf_counter()
    with open(folder / "log", "ab") as log:
        child = subprocess.Popen(
            [*command, "--kubeconfig-out", str(kubeconfig)],
            stdout=log,
            stderr=log,
            preexec_fn=processes.die_with_parent(os.getpid()),
        )
    try:
        _await_ready(child, kubeconfig, folder / "log", begin)
        yield Running(kubeconfig, (child.pid,), time.perf_counter() - begin, "bedplate, SQLite")
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _await_ready(child: subprocess.Popen[bytes], kubeconfig: pathlib.Path, log: pathlib.Path, begin: float) -> None:
    # Any client may ask for /readyz, so the address is all that is needed.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    while time.perf_counter() < begin + READY_DEADLINE_S:
        if child.poll() is not None:
            raise errors.Terminal(f"the embedded server ended: {processes.tail(log)}")
        if kubeconfig.exists() and (match := re.search(r"https://[^\s\"]+", kubeconfig.read_text())):
            with contextlib.suppress(OSError):
                if _answer(f"{match[0]}/readyz", context) == b"ok":
                    return
        time.sleep(0.005)
    raise errors.Unavailable(f"the embedded server was not ready in time: {processes.tail(log)}")


def _answer(url: str, context: ssl.SSLContext) -> bytes:
    with urllib.request.urlopen(url, timeout=5, context=context) as answer:
        return bytes(answer.read())


@contextlib.asynccontextmanager
async def real(folder: pathlib.Path, report: Callable[[str], None]) -> AsyncIterator[Running]:
    """kube-apiserver and etcd; like the embedded server they begin with no certificates where the folder is empty."""
    plane = controlplane.ControlPlane(directory=folder, is_durable=True, progress=report)
    begin = time.perf_counter()
    async with plane:
        ready_s = time.perf_counter() - begin
        pids = tuple(pid for name in ("etcd", "kube-apiserver") if (pid := plane.pid(name)) is not None)
        yield Running(plane.kubeconfig, pids, ready_s, f"kube-apiserver {plane.version} and etcd")


def rss_mb(pid: int) -> float:
    return _status_kb(pid, "VmRSS") / 1000


def peak_mb(pid: int) -> float:
    return _status_kb(pid, "VmHWM") / 1000


def _status_kb(pid: int, field: str) -> float:
    match = re.search(rf"^{field}:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return float(match[1]) * 1.024 if match else 0.0


def cpu_s(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
