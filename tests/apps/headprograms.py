"""Heads as processes, for tests: made and served as a user does it, over TLS, on free ports.

In: the program beside the running Python. Out: `Served` values and finished commands. A daemon dies with the test
process, even after `kill -9` of that.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests import forkserver, servers
from tests.waiting import DEADLINE_S, wait_until

from bedplate.client import HeadClient


def bedplate(*words: str | Path, code: int = 0, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command to its end; its exit code must be the one expected."""
    command = [str(servers.bedplate_program()), *map(str, words)]
    done = forkserver.run(command, capture_output=True, text=True, timeout=DEADLINE_S, input=text, env=environment())
    assert done.returncode == code, f"{words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done


def environment() -> dict[str, str]:
    """Without what a developer's own shell may say of heads."""
    return {name: value for name, value in os.environ.items() if not name.startswith("BEDPLATE_")}


def trust(data: Path, certificate: Path | None = None) -> ssl.SSLContext:
    """TLS that believes in the site's authority alone, with a client certificate where one is named."""
    made = ssl.create_default_context(cafile=str(data / "ca.crt"))
    if certificate is not None:
        made.load_cert_chain(certificate, certificate.with_suffix(".key"))
    return made


def init(data: Path, *words: str) -> Path:
    bedplate("head", "init", "--data", data, *words)
    return data


class Served:
    """A daemon as a process; `url` once it serves."""

    def __init__(self, data: Path, *words: str) -> None:
        self.data = data
        self._log = data.parent / f"{data.name}.log"
        self._said = data.parent / f"{data.name}.out"
        command = [str(servers.bedplate_program()), "head", "serve", "--data", str(data), "--bind", "127.0.0.1", *words]
        if "--port" not in words:
            command += ["--port", "0"]
        with self._log.open("ab") as log, self._said.open("wb") as said:
            self.process = forkserver.Process(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=log, env=environment()
            )

    @property
    def url(self) -> str:
        """Where it serves; waits until it says so."""

        def address() -> str:
            if found := re.search(r"serves at (\S+) ", self._said.read_text()):
                return found[1]
            assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.log()[-3000:]}"
            return ""

        return wait_until(address, "the head says where it serves", describe=lambda: self.log()[-3000:])

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def client(self, *more: str, attempts: int = 6) -> HeadClient:
        """A client with the administrator's token; `more` are URLs of other heads of the site."""
        token = (self.data / "admin.token").read_text().strip()
        return HeadClient([self.url, *more], token=token, ca_file=str(self.data / "ca.crt"), attempts=attempts)

    def kill(self) -> None:
        """As a crash: no clean-up of any kind."""
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ask it to end; its exit code."""
        self.process.terminate()
        return self.process.wait(DEADLINE_S)


@contextlib.contextmanager
def served(data: Path, *words: str) -> Iterator[Served]:
    """A daemon that is gone in the end, whatever happens."""
    daemon = Served(data, *words)
    try:
        assert daemon.url
        yield daemon
    finally:
        if daemon.process.poll() is None:
            daemon.kill()
