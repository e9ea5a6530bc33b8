"""Start other people's long-running programs, read their logs, run kubectl; everything ends with the test."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

from tests import servers
from tests.waiting import DEADLINE_S, wait_until

__all__ = ["DEADLINE_S", "Kubectl", "background", "until"]


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
    """Wait for a condition; a failure shows the end of a log."""

    def tail() -> str:
        return log.read_text(errors="replace")[-4000:] if log is not None and log.exists() else "no log"

    wait_until(condition, what, deadline_s=DEADLINE_S, step_s=0.2, describe=tail)
