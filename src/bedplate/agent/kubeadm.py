"""kubeadm on this node, as the head asks for it: the node becomes part of a cluster, or leaves it without a trace, or
takes over another version of Kubernetes.

In: an errand with one of a few actions. Out: what became of it, and while it runs the phase that kubeadm is in. What
kubeadm reads is among the node's files (`head/render/kubeadm.py`), its command lines are fixed here: nobody can ask for
another one. The cluster is written down before kubeadm starts and once it has succeeded; kubeadm dies with the agent.
So whoever comes next knows a node that was left halfway, resets it and begins again, and does nothing where all was
done. A node that somebody else made part of a cluster is left alone. An upgrade is kubeadm's package, kubeadm, then the
packages of the kubelet and kubectl, and the kubelet's restart: begun again, it does what is left to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from bedplate.agent.apply import Effects
from bedplate.agent.files import Written
from bedplate.agent.images import Done
from bedplate.agent.news import cut
from bedplate.agent.services.systemctl import Systemctl
from bedplate.agent.services.systemd import is_pid_1
from bedplate.agent.state import Membership, Record
from bedplate.api.desired import Errand
from bedplate.core.clock import Clock

__all__ = ["INIT", "JOIN", "Kubeadm", "command", "is_foreign", "refusal"]

Tell = Callable[[str], Awaitable[None]]

INIT: Final = "/etc/kubernetes/kubeadm-init.yaml"
JOIN: Final = "/etc/kubernetes/kubeadm-join.yaml"
_SOCKET = "unix:///run/containerd/containerd.sock"
_KUBELET = "/etc/kubernetes/kubelet.conf"
_PKI: Final = "/etc/kubernetes/pki/"
_FOLDER_MODE = 0o755
_TIMEOUT_S, _RESET_S, _TIDY_S = 900.0, 300.0, 30.0
_TOLD_S = 1.0
_DEATH_SIGNAL = 1
_LINES = 60
_PATCHES: Final = "/etc/kubernetes/patches"
_PROGRAMS = {"kubeadm": ("kubeadm", "version", "-o", "short"), "kubelet": ("kubelet", "--version")}
"""How programs are asked for their version; the last word is it."""
_ACCEPTED = "CreateJob,Mem,NumCPU,Swap,SystemVerification"
"""What a deployment has warned about already, and a pod that must have run within 15 s, as it cannot on busy nodes."""
_LINKS = ("cni0",)
_TABLES = (("ip", "kube-proxy"), ("ip6", "kube-proxy"), ("ip", "bedplate-pods"))
_PROTOCOL = "146"
"""What `head/render/kubeadm.py` marks its routes with."""
_FOLDERS = ("/var/lib/cni", "/etc/kubernetes/tmp")
"""What is left of pods and of kubeadm when the node has been reset."""
_EMPTY = ("/etc/kubernetes/manifests",)
"""Folders that kubeadm makes and leaves."""


def command(action: str) -> tuple[str, ...]:
    """The command line of an action."""
    return {
        "init": ("kubeadm", "init", f"--config={INIT}"),
        "join": ("kubeadm", "join", f"--config={JOIN}"),
        # etcd is a service of its own: its members come and go with their role, and kubeadm must not touch their data.
        "reset": ("kubeadm", "reset", "--force", f"--cri-socket={_SOCKET}", "--skip-phases=remove-etcd-member"),
    }[action]


def upgrade_command(action: str, version: str, *, has_patches: bool) -> tuple[str, ...]:
    """The command line of an upgrade. Cluster DNS is the head's, and so is etcd. Pure."""
    what = {"upgrade-apply": ("apply", f"v{version}", "--yes"), "upgrade-node": ("node",)}[action]
    # Flags of static pods that people set (submode options) are patches: kubeadm rewrites the manifests.
    patches = (f"--patches={_PATCHES}",) if has_patches else ()
    rest = ("--etcd-upgrade=false", f"--ignore-preflight-errors={_ACCEPTED}", "--skip-phases=addon/coredns")
    return ("kubeadm", "upgrade", *what, *rest, *patches)


def is_foreign(work: Errand, known: Membership, *, is_member: bool) -> bool:
    """Whether the node is part of another cluster than the one meant. Pure."""
    return is_member and known.cluster != work.cluster


def refusal(work: Errand, known: Membership, *, is_member: bool) -> str:
    """Why the node does not become part of a cluster: it is in one that is not the one meant. Pure."""
    if work.action == "reset" or not is_foreign(work, known, is_member=is_member):
        return ""
    other = f"the cluster {known.cluster}" if known.cluster else f"a cluster that the head did not make ({_KUBELET})"
    return f"the node is part of {other}; reset it first"


class Kubeadm:
    """On the machine that the agent is on."""

    def __init__(self, effects: Effects, clock: Clock, *, is_machine: bool | None = None) -> None:
        """`is_machine` is there for tests: a sandbox counts as a machine."""
        self._effects = effects
        self._clock = clock
        self._is_machine = effects.root.is_machine if is_machine is None else is_machine

    async def run(self, work: Errand, tell: Tell) -> Done:
        """Carry an errand out, or find that it is. Never raises for what kubeadm does."""
        if not self._is_machine:
            return Done(why="a sandbox has no kernel of its own, and cannot be part of a Kubernetes cluster")
        known, is_member = self._effects.state.membership(), self._effects.root.stat(_KUBELET) is not None
        if why := refusal(work, known, is_member=is_member):
            return Done(why=why)
        if work.action.startswith("upgrade-"):
            if not (known.is_whole and is_member):
                return Done(why=f"the node is not part of the cluster {work.cluster}")
            return await self._upgrade(work, tell)
        if work.action == "reset":
            if is_foreign(work, known, is_member=is_member):
                # Whoever takes a failed join back must not break the cluster that it failed for.
                return Done(text=f"is not part of the cluster {work.cluster}, and was left alone")
            return await self._reset(tell)
        if known.is_whole and is_member:
            return Done(text=f"is part of the cluster {work.cluster} already")
        if known.cluster:
            # It was left halfway.
            kept = self._kept()
            await self._reset(tell)
            self._put_back(kept)
        self._effects.state.save_membership(Membership(work.cluster))
        # kubeadm starts it with its own settings, and refuses a node whose kubelet has its port.
        await self._effects.services.stop("kubelet")
        why, lines = await self._kubeadm(command(work.action), _TIMEOUT_S, tell)
        if why:
            return Done(why=why, lines=lines)
        self._effects.state.save_membership(Membership(work.cluster, is_whole=True))
        return Done(text=f"is part of the cluster {work.cluster}", lines=lines)

    def _kept(self) -> list[tuple[Record, bytes]]:
        """What the agent wrote into the folder that kubeadm empties: whoever begins again needs it at once."""
        records = [record for record in self._effects.state.records() if record.path.startswith(_PKI)]
        files = [(record, self._effects.root.read(record.path)) for record in records]
        return [(record, present.content) for record, present in files if present.kind == "file"]

    def _put_back(self, kept: Iterable[tuple[Record, bytes]]) -> None:
        for record, content in kept:
            written = Written(record.mode, record.owner, record.group)
            self._effects.root.write(record.path, content, written, folder_mode=_FOLDER_MODE)

    async def _upgrade(self, work: Errand, tell: Tell) -> Done:
        packages, version = self._effects.packages, work.version
        if work.action == "upgrade-check":
            for name in ("kubeadm", "kubelet", "kubectl"):
                await tell(f"fetching {name} {version}")
                if why := await packages.upgrade(name, version, only_fetch=True):
                    return Done(why=why)
            return Done(text=f"can have the packages of {version}")
        if why := await self._bring("kubeadm", version, tell):
            return Done(why=why)
        has_patches = self._effects.root.stat(_PATCHES) is not None
        command = upgrade_command(work.action, version, has_patches=has_patches)
        why, lines = await self._kubeadm(command, _TIMEOUT_S, tell)
        if why:
            return Done(why=why, lines=lines)
        why = await self._bring("kubelet", version, tell) or await packages.upgrade("kubectl", version) or ""
        if not why:
            await tell("restarting the kubelet")
            services = self._effects.services
            why = await services.reload_units() or await services.restart("kubelet") or ""
        return Done(why=why, lines=lines) if why else Done(text=f"runs Kubernetes {version}", lines=lines)

    async def _bring(self, name: str, version: str, tell: Tell) -> str:
        """Have a program in a version; why it is not, whoever brings it."""
        await tell(f"installing {name} {version}")
        if why := await self._effects.packages.upgrade(name, version):
            return why
        ended = await self._effects.run(list(_PROGRAMS[name]), timeout_s=_TIDY_S)
        has = (ended.text.split() or ["unknown"])[-1].removeprefix("v")
        if has == version:
            return ""
        return f"{name} on this node is {has}, not {version}; update the node's image, or its package repository"

    async def _reset(self, tell: Tell) -> Done:
        """Out of its cluster; what kubeadm leaves behind goes, too."""
        why, lines = "", tuple[str, ...]()
        if shutil.which("kubeadm"):
            why, lines = await self._kubeadm(command("reset"), _RESET_S, tell)
        if why:
            return Done(why=why, lines=lines)
        await tell("removing what pods left behind")
        for link in _LINKS:
            await self._effects.run(["ip", "link", "delete", link], timeout_s=_TIDY_S)
        for family, table in _TABLES:
            await self._effects.run(["nft", "delete", "table", family, table], timeout_s=_TIDY_S)
        await self._effects.run(["ip", "route", "flush", "proto", _PROTOCOL], timeout_s=_TIDY_S)
        place = self._effects.root.place
        await asyncio.to_thread(_tidy, [place(path) for path in _FOLDERS], [place(path) for path in _EMPTY])
        self._effects.state.save_membership(Membership())
        return Done(text="is part of no cluster", lines=lines)

    async def _kubeadm(self, words: Sequence[str], timeout_s: float, tell: Tell) -> tuple[str, tuple[str, ...]]:
        """Run it: why it failed, and the last of what it said."""
        async with contextlib.AsyncExitStack() as stack:
            environ = dict(os.environ)
            if not is_pid_1():
                folder = await stack.enter_async_context(Systemctl(self._effects.services, ("kubelet",)))
                environ["PATH"] = f"{folder}:{environ.get('PATH', os.defpath)}"
            try:
                child = await asyncio.create_subprocess_exec(
                    *words,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    env=environ,
                    cwd="/",
                    start_new_session=True,
                    preexec_fn=_die_with_the_agent,
                )
            except OSError as err:
                return f"{words[0]}: {(err.strerror or str(err)).lower()}", ()
            lines: list[str] = []
            try:
                async with asyncio.timeout(timeout_s):
                    await self._follow(child, lines, tell)
                    code = await child.wait()
            except TimeoutError:
                return f"{' '.join(words[:2])} did not end within {timeout_s:g} s; {_last(lines)}", tuple(lines)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                if child.returncode is None:
                    await child.wait()
        why = f"{' '.join(words[:2])} failed with exit code {code}: {_last(lines)}" if code else ""
        return why, tuple(lines)

    async def _follow(self, child: asyncio.subprocess.Process, lines: list[str], tell: Tell) -> None:
        assert child.stdout is not None
        told_s = self._clock.monotonic() - _TOLD_S
        async for raw in child.stdout:
            line = cut(raw.decode(errors="replace").strip())
            if not line:
                continue
            lines.append(line)
            del lines[:-_LINES]
            if line.startswith("[") and self._clock.monotonic() - told_s >= _TOLD_S:
                told_s = self._clock.monotonic()
                await tell(line)


def _last(lines: Sequence[str]) -> str:
    """What went wrong, as far as kubeadm's last lines say it."""
    errors_ = [line for line in lines if line.startswith("[ERROR")] or [
        line for line in lines if "error" in line.lower()
    ]
    return "; ".join(errors_[-3:] or lines[-3:])[:600] or "it said nothing"


def _die_with_the_agent() -> None:
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def _tidy(folders: Iterable[str], empty: Iterable[str]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    for folder in empty:
        with contextlib.suppress(OSError):
            os.rmdir(folder)
