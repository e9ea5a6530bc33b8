"""What the lab's tests share: the command line, and a picture of the machine before and after."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bedplate.lab.plan import interface_name


@dataclasses.dataclass(frozen=True)
class Machine:
    """Everything of a lab that a machine can be left with. Other labs on the same machine are left out."""

    processes: frozenset[str]
    namespaces: frozenset[str]
    links: frozenset[str]
    mounts: frozenset[str]
    groups: frozenset[str]
    tables: frozenset[str]
    files: frozenset[str]

    def more_than(self, before: Machine) -> dict[str, list[str]]:
        """What is here and was not there before."""
        found = {
            field.name: sorted(getattr(self, field.name) - getattr(before, field.name))
            for field in dataclasses.fields(self)
        }
        return {name: values for name, values in found.items() if values}


def _processes(name: str, state: Path) -> tuple[set[str], set[str]]:
    """Processes that mention the lab, run in its groups, or in a namespace of their own; and those namespaces."""
    own = {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in ("net", "mnt", "uts", "pid")}
    found, spaces = set(), set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            groups = (folder / "cgroup").read_text()
            inside = {kind: os.readlink(folder / "ns" / kind) for kind in own}
        except OSError:
            continue
        if not command or ("/bedplate-" in groups and f"/bedplate-{name}/" not in groups):
            continue
        foreign = {space for kind, space in inside.items() if space != own[kind] and kind in ("net", "uts", "pid")}
        is_ours = f"/bedplate-{name}/" in groups or str(state) in command
        if is_ours or (foreign and command.split("/")[-1].startswith(("containerd", "pause", "tool", "sleep"))):
            found.add(f"{folder.name} {command[:100]}")
            spaces |= foreign
    return found, spaces


@pytest.fixture(scope="session")
def look() -> Callable[[str, Path], Machine]:
    """A picture of this machine, as far as a lab of that name and state folder could have changed it."""

    def take(name: str, state: Path) -> Machine:
        processes, spaces = _processes(name, state)
        links = json.loads(subprocess.check_output(["ip", "-json", "link"]))
        names = {link["ifname"] for link in links}
        tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=False).stdout
        named = {str(path) for path in Path("/run/netns").glob("*")} if Path("/run/netns").exists() else set()
        # Unlike a glob, a walk does not fail on what is removed while it looks.
        groups = {
            str(Path(folder) / each)
            for folder, folders, _ in os.walk("/sys/fs/cgroup")
            for each in folders
            if each == f"bedplate-{name}"
        }
        kubelet = {str(path) for path in Path("/sys/fs/cgroup").glob("*/kubepods*")}
        files = {str(path) for path in (state / "bedplate" / "labs").glob(name)}
        return Machine(
            processes=frozenset(processes),
            namespaces=frozenset(spaces | named),
            links=frozenset(each for each in names if not each.startswith("bp-") or each == interface_name(name)),
            mounts=frozenset(Path("/proc/self/mounts").read_text().splitlines()),
            groups=frozenset(groups | kubelet),
            tables=frozenset(tables.splitlines()),
            files=frozenset(files),
        )

    return take


@dataclasses.dataclass(frozen=True)
class Lab:
    """The command line of one lab."""

    name: str
    state: Path

    @property
    def environ(self) -> dict[str, str]:
        return os.environ | {"XDG_STATE_HOME": str(self.state)}

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "bedplate.apps.bedplate", "lab", *words]

    def run(self, verb: str, *words: str, timeout: float = 400) -> subprocess.CompletedProcess[str]:
        line = self.command(verb, "--name", self.name, *words)
        return subprocess.run(line, env=self.environ, capture_output=True, text=True, timeout=timeout, check=False)

    def ok(self, verb: str, *words: str) -> str:
        """Standard output of a command that must succeed."""
        result = self.run(verb, *words)
        assert result.returncode == 0, result.stderr + result.stdout
        return result.stdout

    def kubectl(self, *words: str) -> str:
        return self.ok("kubectl", "--", *words)

    def get(self, *words: str) -> Any:
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def start(self, *words: str) -> subprocess.Popen[str]:
        """`lab up` in the background, its progress readable line by line."""
        line = self.command("up", "--name", self.name, *words)
        pipe = subprocess.PIPE
        # Tests that run in the background have SIGINT ignored, and the child would inherit that.
        return subprocess.Popen(
            line, env=self.environ, stdout=pipe, stderr=pipe, text=True, preexec_fn=_heed_interrupts
        )

    def logs_of(self, pod: str, deadline_s: float = 60) -> str:
        """What a pod printed, once it has succeeded."""
        self.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{pod}", f"--timeout={deadline_s}s")
        return self.kubectl("logs", pod)


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture(scope="module")
def new_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Lab]]:
    """Labs with names of this test run alone; all are taken down at the end."""
    made: list[tuple[Lab, subprocess.Popen[bytes]]] = []

    def make(suffix: str, state: Path | None = None) -> Lab:
        lab = Lab(f"t{os.getpid() % 100000}{suffix}", state or tmp_path_factory.mktemp("state"))
        made.append((lab, _guard(lab)))
        return lab

    yield make
    for _, guard in made:
        assert guard.stdin is not None
        guard.stdin.close()
    for lab, guard in made:
        guard.wait(120)
        shutil.rmtree(lab.state, ignore_errors=True)


def _guard(lab: Lab) -> subprocess.Popen[bytes]:
    """Takes the lab down when its standard input closes: at the end of the tests, and also when they are killed."""
    return subprocess.Popen(
        ["sh", "-c", 'cat >/dev/null; exec "$@"', "guard", *lab.command("down", "--name", lab.name)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=lab.environ,
        start_new_session=True,
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("root") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="a lab needs root"))
