"""Run a command line program against a server, record what it prints, and compare two records.

What differs between any two runs (ages, uids, versions, addresses, times) is replaced by words before comparing;
everything else must be the same to the letter.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import pathlib
import re
import shlex
import subprocess
import uuid
from collections.abc import Callable

from tests import servers
from tests.waiting import wait_until

COMMAND_TIMEOUT_S = 90


def unique(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:6]}"


@dataclasses.dataclass(frozen=True)
class Step:
    command: str
    code: int
    output: str
    errors: str


Transcript = list[Step]


class Shell:
    """kubectl (or helm) with one server, one namespace and a home folder of its own."""

    def __init__(self, program: pathlib.Path, server: servers.Server, home: pathlib.Path, namespace: str) -> None:
        self.program = program
        self.server = server
        self.home = home
        self.namespace = namespace
        self.transcript: Transcript = []
        self.environment = {
            **os.environ,
            "HOME": str(home),
            "KUBECONFIG": str(server.kubeconfig),
            "KUBECACHEDIR": str(home / "cache"),
            "HELM_CACHE_HOME": str(home / "helm-cache"),
            "HELM_CONFIG_HOME": str(home / "helm-config"),
            "HELM_DATA_HOME": str(home / "helm-data"),
        }

    def start(self) -> None:
        """Make the namespace and wait until pods may be created in it."""
        kubectl = servers.binary("kubectl")
        subprocess.run(
            [str(kubectl), "create", "ns", self.namespace], env=self.environment, check=True, capture_output=True
        )
        account = ("get", "sa", "default", "-n", self.namespace)
        wait_until(lambda: self._quiet(*account).returncode == 0, "there is a default service account", step_s=0.1)

    def _quiet(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(servers.binary("kubectl")), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def _run(self, command: str, stdin: str, editor: str) -> Step:
        arguments = [str(self.program), *shlex.split(command), "-n", self.namespace]
        done = subprocess.run(
            arguments,
            env={**self.environment, "KUBE_EDITOR": editor},
            input=stdin,
            capture_output=True,
            text=True,
            cwd=self.home,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        step = Step(command, done.returncode, done.stdout, done.stderr)
        self.transcript.append(step)
        return step

    def __call__(self, command: str, stdin: str = "", editor: str = "false") -> str:
        """Run a command that must succeed; what it printed."""
        step = self._run(command, stdin, editor)
        assert step.code == 0, f"{self.server.name}: {command}: {step.code}\n{step.output}\n{step.errors}"
        return step.output

    def unlike(self, command: str) -> str:
        """Run a command that must succeed and whose output no two servers share; it is not compared."""
        output = self(command)
        self.transcript.pop()
        return output

    def fails(self, command: str, stdin: str = "", code: int = 1) -> str:
        """Run a command that must fail with this code; what it complained."""
        step = self._run(command, stdin, "false")
        assert step.code == code, f"{self.server.name}: {command}: {step.code}\n{step.output}\n{step.errors}"
        return step.errors

    def complains(self, command: str, stdin: str = "") -> str:
        """Run a command that must fail, with words no two servers share; they are not compared."""
        errors = self.fails(command, stdin)
        self.transcript.pop()
        return errors

    def until(self, command: str, wanted: str) -> None:
        """Repeat a command, unrecorded, until it prints exactly this."""

        def printed() -> str:
            return self._quiet(*shlex.split(command), "-n", self.namespace).stdout.strip()

        what = f"{self.server.name}: {command} prints {wanted!r}"
        wait_until(lambda: printed() == wanted, what, step_s=0.1, describe=printed)

    def quietly(self, command: str, stdin: str = "") -> str:
        """Run kubectl without recording it."""
        arguments = [str(servers.binary("kubectl")), *shlex.split(command), "-n", self.namespace]
        done = subprocess.run(arguments, env=self.environment, input=stdin, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{self.server.name}: {command}: {done.stderr}"
        return done.stdout

    def follow(self, command: str, lines: int, actions: list[str]) -> None:
        """Start a command that goes on (a watch), run kubectl actions, record its first lines and end it."""
        process = subprocess.Popen(
            [str(self.program), *shlex.split(command), "-n", self.namespace],
            env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        try:
            seen = [process.stdout.readline()]
            for action in actions:
                self.quietly(action)
            seen += [process.stdout.readline() for _ in range(lines - 1)]
        finally:
            process.terminate()
            process.communicate(timeout=COMMAND_TIMEOUT_S)
        self.transcript.append(Step(command, 0, "".join(seen), ""))


Script = Callable[[Shell], None]

REPLACED = [
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( ?Z| [+-]\d{4} \w+)?"), "TIME"),
    (re.compile(r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun),? .*?\d{4}( \d\d:\d\d:\d\d [+-]\d{4})?"), "TIME"),
    (re.compile(r"(?<![\w.-])(\d+[dhms])+(?![\w.-])"), "AGE"),
    (re.compile(r"<invalid>"), "AGE"),
    (re.compile(r"(resourceVersion\"?: )\"?\d+\"?"), r"\1VERSION"),
    (re.compile(r"(Resource Version: +)\d+"), r"\1VERSION"),
    (re.compile(r"^[IWE]\d{4} .*\n", re.MULTILINE), ""),  # the program's own log lines
    (re.compile(r"https://127\.0\.0\.1:\d+"), "SERVER"),
    (re.compile(r"\b10\.\d+\.\d+\.\d+\b"), "ADDRESS"),
    (re.compile(r"\b3[0-2]\d{3}\b"), "NODEPORT"),
    (re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b"), "-RANDOM"),
    (re.compile(r"(?<=-)(?=[a-z]*\d)[0-9a-z]{8,10}\b"), "HASH"),
    (re.compile(r"(pod-template-hash[=:] ?)\w+"), r"\1HASH"),
    (re.compile(r"^componentstatuses.*\n", re.MULTILINE), ""),  # a kind of the past; the embedded server leaves it out
    (re.compile(r"/tmp/\S+"), "PATH"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r" $", re.MULTILINE), ""),
]


def normal(text: str) -> str:
    for pattern, replacement in REPLACED:
        text = pattern.sub(replacement, text)
    return text


def compare(real: Transcript, embedded: Transcript) -> None:
    """Fail with every command whose answers differ."""
    differences = []
    for left, right in zip(real, embedded, strict=True):
        before = f"code {left.code}\n{normal(left.output)}\n--- errors\n{normal(left.errors)}"
        after = f"code {right.code}\n{normal(right.output)}\n--- errors\n{normal(right.errors)}"
        if before != after:
            diff = difflib.unified_diff(before.splitlines(), after.splitlines(), "real", "embedded", lineterm="", n=1)
            differences.append(f"$ {left.command}\n" + "\n".join(diff))
    assert not differences, "\n\n".join(differences)
