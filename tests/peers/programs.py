"""Start other people's long-running programs, read their logs, run kubectl; everything ends with the test."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

from tests import servers

__all__ = ["DEADLINE_S", "Kubectl", "background", "until"]

DEADLINE_S = 60.0


class Kubectl:
    """kubectl with one kubeconfig."""

    def __init__(self, kubeconfig: pathlib.Path, home: pathlib.Path, version: str = servers.KUBERNETES) -> None:
        self.path = servers.binary("kubectl", version)
        self.env = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(home), "KUBECACHEDIR": str(home / "kube")}

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.path), *arguments], env=self.env, input=stdin, capture_output=True, text=True, check=False,
            timeout=DEADLINE_S,
        )  # fmt: skip

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))


@contextlib.contextmanager
def background(
    log: pathlib.Path, *command: str, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs until the block is left."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})},
            preexec_fn=servers._die_with_parent,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def until(condition: Callable[[], bool], what: str, log: pathlib.Path | None = None) -> None:
    """Poll until something holds; fails with the end of a log."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        tail = log.read_text(errors="replace")[-4000:] if log is not None and log.exists() else ""
        assert time.monotonic() < deadline, f"never: {what}\n{tail}"
        time.sleep(0.2)
