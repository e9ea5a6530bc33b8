"""Real etcd for tests: one member or several, plain or with TLS, that can be killed and started again.

In: the etcd program of the cache folder, of `KUBEBUILDER_ASSETS`, or of the path. Out: endpoints. Members die with the
test process.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

from tests import servers, tiers

from bedplate.lab import binaries

START_DEADLINE_S = 90.0
VERSION = "v3.6.6"


class Missing(Exception):
    """No etcd program was found; the text says where it was looked for."""


@dataclasses.dataclass(frozen=True)
class Tls:
    """Files for mutual TLS between clients and members."""

    ca: pathlib.Path
    server_cert: pathlib.Path
    server_key: pathlib.Path
    client_cert: pathlib.Path
    client_key: pathlib.Path


def program() -> pathlib.Path:
    tiers.guard("etcd")
    places = [binaries.cache_folder() / "etcd" / VERSION / "bin" / "etcd"]
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        places.append(pathlib.Path(assets) / "etcd")
    if found := shutil.which("etcd"):
        places.append(pathlib.Path(found))
    for place in places:
        if place.exists():
            return place
    raise Missing(f"no etcd {VERSION} in the cache folder, KUBEBUILDER_ASSETS or the path (make setup builds it)")


def free_ports(count: int) -> list[int]:
    found: set[int] = set()
    while len(found) < count:
        found.add(servers.free_port())
    return list(found)


# Set in a process of its own and not between fork and exec: gRPC's threads do not survive a fork of this process.
_DIE_WITH_PARENT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.argv[1], sys.argv[1:])"


class Cluster:
    """Members numbered from 0. `with` starts all of them and in the end leaves no process and no folder."""

    def __init__(
        self, folder: pathlib.Path, *, members: int = 1, tls: Tls | None = None, arguments: tuple[str, ...] = ()
    ) -> None:
        self._folder = folder
        self._tls = tls
        self._arguments = arguments
        self._program = program()
        ports = free_ports(2 * members)
        self._clients, self._peers = ports[:members], ports[members:]
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def endpoints(self) -> list[str]:
        scheme = "https" if self._tls else "http"
        return [f"{scheme}://127.0.0.1:{port}" for port in self._clients]

    def __enter__(self) -> Cluster:
        try:
            for index in range(len(self._clients)):
                self._launch(index)
            for index in range(len(self._clients)):
                self.wait(index)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        for index in list(self._running):
            self.kill(index)
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self, index: int) -> None:
        """Start a member that was killed, and wait until it listens."""
        self._launch(index)
        self.wait(index)

    def kill(self, index: int) -> None:
        """End a member at once, as a crash would."""
        process = self._running.pop(index)
        process.kill()
        process.wait()

    def signal(self, index: int, number: signal.Signals) -> None:
        """Stop or continue a member: a stopped one keeps its connections and answers nothing."""
        self._running[index].send_signal(number)

    def wait(self, index: int) -> None:
        """Until the member takes connections on its client port, which it does only after it has joined."""
        deadline = time.monotonic() + START_DEADLINE_S
        while True:
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", self._clients[index])) == 0:
                    return
            if self._running[index].poll() is not None or time.monotonic() > deadline:
                log = self._log(index).read_text(errors="replace")[-3000:]
                raise RuntimeError(f"etcd did not start ({self._running[index].poll()}):\n{log}")
            time.sleep(0.05)

    def _launch(self, index: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        names = [f"m{number}=http://127.0.0.1:{port}" for number, port in enumerate(self._peers)]
        peer = f"http://127.0.0.1:{self._peers[index]}"
        command = [
            sys.executable,
            "-c",
            _DIE_WITH_PARENT,
            str(self._program),
            f"--name=m{index}",
            f"--data-dir={self._folder / f'm{index}'}",
            f"--listen-client-urls={self.endpoints[index]}",
            f"--advertise-client-urls={self.endpoints[index]}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster={','.join(names)}",
            "--log-level=warn",
            *self._arguments,
        ]
        if self._tls:
            command += [
                f"--cert-file={self._tls.server_cert}",
                f"--key-file={self._tls.server_key}",
                f"--trusted-ca-file={self._tls.ca}",
                "--client-cert-auth",
            ]
        with self._log(index).open("ab") as log:
            self._running[index] = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )

    def _log(self, index: int) -> pathlib.Path:
        return self._folder / f"m{index}.log"
