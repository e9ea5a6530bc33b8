"""A node: namespaces held by one process, with folders of its own, in which programs are started.

In: the lab's folder and control groups. Out: `Node` objects that start programs and run commands inside; a `Waiter` for
what these programs shall get to. Which programs make a Kubernetes node is decided in `kubernetes_node` and the
control-plane modules.

A node's network, mount and host-name namespaces live as long as a process is in them; the first is a sleeping one in
the control group `<node>/init`, which is also how the node is found again later: no process id is ever read from a
file. A bare node (`bare`) has processes and a root folder of its own, too; its first process is their init.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock
from bedplate.lab import bare, cgroups, processes
from bedplate.lab.processes import tail

__all__ = ["INSIDE", "SWITCH", "Daemon", "Node", "Waiter"]

# The lab's folder, as seen from inside a node.
INSIDE = Path("/run/bedplate")
# The switch is held the same way; no node can have this name.
SWITCH = "_switch"
_POLL_S = 0.25
_PATH = f"{INSIDE}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Run inside a fresh mount namespace. Order matters: the lab's folder must be bound before what may hide it.
_MOUNTS = """
set -e
lab={lab} own={own}
mkdir -p $own/run $own/var-lib $own/var-log $own/opt $own/etc $own/etc.work
mount -t tmpfs -o mode=755 tmpfs $own/run
mkdir -p $own/run/bedplate $own/run/netns $own/run/lock
mount --bind $lab $own/run/bedplate
mount -t overlay -o lowerdir=/etc,upperdir=$own/etc,workdir=$own/etc.work overlay /etc
mount --rbind $own/run /run
own=/run/bedplate/nodes/{name}
mount --bind $own/var-lib /var/lib
mount --bind $own/var-log /var/log
mount --bind $own/opt /opt
mkdir -p /var/lib/kubelet /var/lib/containerd /var/lib/cni /var/lib/etcd
mkdir -p /opt/cni/bin /etc/cni/net.d /etc/kubernetes/manifests
mount --make-rshared /
echo {name} > /etc/hostname
hostname {name}
"""


class Daemon:
    """A long-lived program of a lab. It stays when we go; `failure` says why it has ended while we watched."""

    def __init__(self, name: str, child: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.log = log
        self._child = child

    def failure(self) -> errors.Terminal | None:
        """The error to raise when it has ended, else None."""
        return processes.failure_of(self._child, self.name, self.log)


class Node:
    """One node of a lab, or its switch."""

    def __init__(
        self, name: str, folder: Path, tree: cgroups.Tree, *, has_mounts: bool = True, is_bare: bool = False
    ) -> None:
        self.name = name
        self.lab_folder = folder
        self.folder = folder / "nodes" / name
        self.logs = folder / "logs" / name
        self._tree = tree
        self._has_mounts = has_mounts
        self._is_bare = is_bare

    @property
    def pid(self) -> int:
        """The process that holds the namespaces."""
        members = self._tree.members(f"{self.name}/init")
        if self._is_bare:
            members = [pid for pid in members if bare.is_init(pid)]
        if not members:
            raise errors.NotFound(f"node {self.name!r} is not running", hint="take the lab down and up again")
        return members[0]

    @property
    def _spaces(self) -> list[str]:
        kinds = ["--net", "--mount", "--uts"] if self._has_mounts else ["--net"]
        return [*kinds, "--pid"] if self._is_bare else kinds

    @property
    def log(self) -> Path:
        """What its first process writes; in a bare node that is its agent's log."""
        return self.logs / "init.log"

    async def create(self) -> None:
        """Make the namespaces and, for a node, its private folders."""
        self.logs.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        own = ["--propagation=private"] if self._has_mounts else []
        own += ["--fork", "--kill-child"] if self._is_bare else []
        sleeper = bare.INIT if self._is_bare else ("sleep", "infinity")
        holder = self._spawn("init", ["unshare", *self._spaces, *own, "--", *sleeper], leaf="init")
        while not self._is_held():
            if failure := holder.failure():
                raise failure
            await asyncio.sleep(0.01)
        if self._has_mounts:
            lab, own_folder = shlex.quote(str(self.lab_folder)), shlex.quote(str(self.folder))
            if self._is_bare:
                script = bare.script(self.name, self.lab_folder, self.folder)
            else:
                script = _MOUNTS.format(lab=lab, own=own_folder, name=self.name)
            await self.run(["sh", "-c", script], f"make the folders of node {self.name}")

    def _is_held(self) -> bool:
        with contextlib.suppress(OSError, errors.NotFound):
            return Path(f"/proc/{self.pid}/comm").read_text().strip() == ("sh" if self._is_bare else "sleep")
        return False

    def enter(self, command: Sequence[str]) -> list[str]:
        """The command line that runs another one inside. Paths in it must be absolute: the folder changes to `/`."""
        return ["nsenter", f"--target={self.pid}", *self._spaces, "--", *command]

    def environ(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        keep = {key: os.environ[key] for key in ("HOME", "LANG", "TERM", "PYTHONPATH") if key in os.environ}
        return keep | {"PATH": _PATH, "KUBECONFIG": str(INSIDE / "admin.kubeconfig")} | dict(more or {})

    async def run(
        self,
        command: Sequence[str],
        what: str,
        *,
        timeout_s: float = 60.0,
        stdin: str = "",
        environ: Mapping[str, str] | None = None,
    ) -> str:
        """Run a command inside to its end. It belongs to the lab while it runs."""
        joined = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', self._tree.entrance(self.name, "system")]
        around = [*joined, *self.enter([])]
        return await processes.run(
            command, what, timeout_s=timeout_s, stdin=stdin, environ=self.environ(environ), around=around
        )

    async def ip(self, batch: str, what: str) -> None:
        """Apply an `ip -batch` text inside."""
        await self.run(["ip", "-batch", "-"], what, stdin=batch)

    def start(self, name: str, command: Sequence[str], environ: Mapping[str, str] | None = None) -> Daemon:
        """Start a program that stays."""
        return self._spawn(name, self.enter(command), environ=environ)

    def write(self, path: str, content: str) -> None:
        """Write a file as the node sees it, from outside."""
        target = Path(f"/proc/{self.pid}/root{path}")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)

    def _spawn(
        self, name: str, command: Sequence[str], *, leaf: str = "system", environ: Mapping[str, str] | None = None
    ) -> Daemon:
        log = self.logs / f"{name}.log"
        with open(log, "ab") as output:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=self.environ(environ),
                start_new_session=True,
                preexec_fn=_joining(self._tree.entrance(self.name, leaf)),
            )
        return Daemon(f"{name} on {self.name}", child, log)


def _joining(entrance: str) -> Callable[[], None]:
    # Before exec, so that no moment exists in which the program runs outside its control group.
    def join() -> None:
        descriptor = os.open(entrance, os.O_WRONLY)
        os.write(descriptor, b"0")
        os.close(descriptor)

    return join


class Waiter:
    """One deadline for a whole start, and the programs started so far."""

    def __init__(self, timeout_s: float, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._timeout_s = timeout_s
        self._end = self._clock.monotonic() + timeout_s
        self.daemons: list[Daemon] = []

    @property
    def rest_s(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self._end - self._clock.monotonic())

    async def until(self, what: str, probe: Callable[[], Awaitable[str]], log: Path) -> None:
        """Return when the probe answers "", not what is missing. A program that ends meanwhile, or the deadline, is an
        error with the last answer and the last lines of the log."""
        answer = ""
        while True:
            for daemon in self.daemons:
                if failure := daemon.failure():
                    raise failure
            try:
                async with asyncio.timeout(self.rest_s):
                    answer = await probe()
            except TimeoutError:
                answer = answer or "no answer"
            except errors.BedplateError as err:
                answer = str(err).splitlines()[-1]
            if not answer:
                return
            if not self.rest_s:
                raise errors.Unavailable(
                    f"{what}: timed out after {self._timeout_s:.0f} s ({answer}); last lines of {log}:\n{tail(log)}"
                )
            await self._clock.sleep(_POLL_S)
