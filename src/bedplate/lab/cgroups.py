"""The control groups of a lab: where its processes are, and how all of them are ended.

In: a lab's name. Out: one tree `bedplate-<lab>` in every hierarchy, `<node>` below it (a kubelet's cgroup root) and
leaf groups below that. Every process of a lab starts inside its tree and cannot leave it by forking, so the kernel
itself keeps the list of what belongs to the lab: nothing is lost when our own process is killed.

Both layouts are handled: cgroup v1 (one hierarchy per controller, maybe a unified one beside them) and v2 (one for
all).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from bedplate.core import errors

__all__ = ["Tree", "hierarchies"]

_ROOT = Path("/sys/fs/cgroup")
_SETTLE_S = 0.05
_REAP_S = 5.0


def hierarchies(mounts: str) -> list[Path]:
    """Where control group hierarchies are mounted, from the text of `/proc/self/mounts`; the v2 one comes last."""
    rows = [line.split() for line in mounts.splitlines()]
    old = [Path(row[1]) for row in rows if row[2] == "cgroup" and row[1].startswith(str(_ROOT))]
    new = [Path(row[1]) for row in rows if row[2] == "cgroup2" and row[1].startswith(str(_ROOT))]
    return list(dict.fromkeys([*old, *new]))


class Tree:
    """All control groups of one lab."""

    def __init__(self, lab: str, mounts: list[Path] | None = None) -> None:
        self.name = f"bedplate-{lab}"
        self._mounts = hierarchies(Path("/proc/self/mounts").read_text()) if mounts is None else mounts
        if not self._mounts:
            raise errors.Terminal("no control group hierarchy is mounted", hint="mount -t cgroup2 none /sys/fs/cgroup")

    @property
    def _tracking(self) -> Path:
        # Any one hierarchy can hold the list of processes; `pids` exists wherever there are several.
        return next((mount for mount in self._mounts if mount.name == "pids"), self._mounts[0])

    def create(self, nodes: Iterable[str]) -> None:
        """The groups of every node, in every hierarchy: a kubelet refuses to start without its root."""
        for mount in self._mounts:
            self._make(mount, self.name)
            for node in nodes:
                self._make(mount, f"{self.name}/{node}")
                if mount == self._tracking:
                    self._make(mount, f"{self.name}/{node}/init")
                    self._make(mount, f"{self.name}/{node}/system")

    def _make(self, mount: Path, path: str) -> None:
        group = mount / path
        group.mkdir(exist_ok=True)
        for knob in ("cpuset.cpus", "cpuset.mems"):
            if (group / knob).exists() and (group.parent / knob).exists() and not (group / knob).read_text().strip():
                with contextlib.suppress(OSError):
                    (group / knob).write_text((group.parent / knob).read_text())
        controllers = group.parent / "cgroup.controllers"
        if controllers.exists() and len(self._mounts) == 1:
            for controller in controllers.read_text().split():
                with contextlib.suppress(OSError):
                    (group.parent / "cgroup.subtree_control").write_text(f"+{controller}")

    def entrance(self, node: str, leaf: str) -> str:
        """The file a process writes its id into to join a leaf group."""
        return str(self._tracking / self.name / node / leaf / "cgroup.procs")

    def join(self, node: str, leaf: str) -> None:
        """Put our own process into a leaf group, before it becomes a command of the lab."""
        Path(self.entrance(node, leaf)).write_text(str(os.getpid()))

    def root_of(self, node: str) -> str:
        """The cgroup root of a node's kubelet."""
        return f"/{self.name}/{node}"

    def members(self, below: str = "") -> list[int]:
        """Ids of all processes in the tree, or in one part of it."""
        processes: list[int] = []
        for folder, _, _ in os.walk(self._tracking / self.name / below):
            with contextlib.suppress(OSError):
                processes += [int(text) for text in Path(folder, "cgroup.procs").read_text().split()]
        return processes

    @property
    def exists(self) -> bool:
        return any((mount / self.name).exists() for mount in self._mounts)

    def kill(self, deadline_s: float = 30.0, *, below: str = "") -> None:
        """SIGKILL everything in the tree (or in a part of it), again and again until nothing is left: what forks
        meanwhile dies too."""
        end = time.monotonic() + deadline_s
        killed: set[int] = set()
        while members := self.members(below):
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed.update(members)
            if time.monotonic() > end:
                raise errors.Unavailable(f"processes of {self.name} cannot be killed: {members[:10]}")
            time.sleep(_SETTLE_S)
        # Dead, but a namespace stays until its parent has read the exit code: we for our children, init for orphans.
        end = time.monotonic() + _REAP_S
        while time.monotonic() < end and any(not _is_gone(pid) for pid in killed):
            time.sleep(_SETTLE_S)

    def remove(self, deadline_s: float = 10.0) -> None:
        """Remove every group, leaves first. A group is busy for a moment after its last process has gone."""
        end = time.monotonic() + deadline_s
        for mount in self._mounts:
            folders = [Path(folder) for folder, _, _ in os.walk(mount / self.name, topdown=False)]
            while folders:
                folders = [folder for folder in folders if not _removed(folder)]
                if folders and time.monotonic() > end:
                    raise errors.Unavailable(f"control group {folders[0]} cannot be removed")
                if folders:
                    time.sleep(_SETTLE_S)


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _is_gone(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    return not Path(f"/proc/{pid}").exists()
