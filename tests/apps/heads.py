"""Head daemons as child processes, for tests of programs that talk to them.

In: a folder. Out: a data folder, and a daemon that serves it on a port of its own until it is stopped or killed.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

from tests import servers

from bedplate.apps.headfolder import Folder

DEADLINE_S = 120.0


class Served:
    """A daemon on a folder; it comes back at the same address after `stop` or `kill`."""

    def __init__(self, data: pathlib.Path, log: pathlib.Path) -> None:
        self.data = data
        self.port = servers.free_port()
        self._log = log
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns once the daemon says where it serves."""
        command = [sys.executable, "-m", "bedplate.apps.bedplate", "head", "serve", "--data", str(self.data)]
        command += ["--bind", "127.0.0.1", "--port", str(self.port)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BEDPLATE_")}
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        until = time.monotonic() + DEADLINE_S
        while not Folder(self.data).daemon_url():
            assert self._child.poll() is None, self._log.read_text()
            assert time.monotonic() < until, self._log.read_text()
            time.sleep(0.1)

    def kill(self) -> None:
        """As a power cut would."""
        assert self._child is not None
        self._child.send_signal(signal.SIGKILL)
        self._child.wait(DEADLINE_S)
        self._child = None

    def stop(self) -> None:
        if self._child is not None:
            self._child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(30)
            self._child.kill()
            self._child.wait(DEADLINE_S)
            self._child = None


@contextlib.contextmanager
def serving(data: pathlib.Path, log: pathlib.Path) -> Iterator[Served]:
    served = Served(data, log)
    try:
        served.start()
        yield served
    finally:
        served.stop()
