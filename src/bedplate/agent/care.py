"""The care for a running cluster on one of its nodes, as the head asks for it.

In: an errand with one of nine actions. Out: what became of it, in words and lines. Certificates that kubeadm issued
are renewed by kubeadm; those that the head renders (API server, etcd, authorities) come with the node's files. The API
server is halted by taking its manifest away, and reads renewed files by itself; only the controller manager and the
scheduler start again, as they read theirs once. What is done to the data of etcd is in `agent/snapshots.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import glob
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from bedplate.agent import expiry
from bedplate.agent.apply import Effects
from bedplate.agent.images import Done
from bedplate.agent.kubeadm import INIT
from bedplate.agent.manifests import FOLDER
from bedplate.agent.news import cut
from bedplate.agent.snapshots import Data, Line, Told
from bedplate.api.desired import Errand
from bedplate.api.masking import masked
from bedplate.core.clock import Clock, rfc3339

__all__ = ["RENEWED", "Care", "annotated"]

Tell = Callable[[str], Awaitable[None]]

RENEWED: Final = (
    "apiserver-kubelet-client",
    "front-proxy-client",
    "admin.conf",
    "super-admin.conf",
    "controller-manager.conf",
    "scheduler.conf",
)
"""What kubeadm issued; the certificate of the API server is rendered by the head, for its trusted domains."""
_RESTARTED = {"kube-controller-manager": 10257, "kube-scheduler": 10259}
_ANNOTATION = "bedplate.dev/certificates"
_HALTED = "/etc/kubernetes/tmp/kube-apiserver.yaml"
"""In a folder that a reset of the node removes."""
_API_PORT = 6443
_POLL_S = 0.5
_KUBEADM_S, _HALT_S, _AWAY_S, _BACK_S, _VERSION_S = 120.0, 180.0, 60.0, 180.0, 20.0
_LOGGED, _LINES = 12, 190
_PROGRAMS = ("conntrack", "containerd", "etcd", "kubeadm", "kubectl", "kubelet", "nft", "nginx")
"""What a node of a cluster may need."""


def annotated(text: str, value: str) -> str:
    """A manifest with our annotation, so that the kubelet starts its pod again. Pure."""
    lines = [line for line in text.split("\n") if not line.startswith(f"    {_ANNOTATION}:")]
    own = f'    {_ANNOTATION}: "{value}"'
    start = lines.index("metadata:")
    for number in range(start + 1, len(lines)):
        if lines[number].strip() and not lines[number].startswith(" "):
            break
        if lines[number].rstrip() == "  annotations:":
            return "\n".join([*lines[: number + 1], own, *lines[number + 1 :]])
    return "\n".join([*lines[: start + 1], "  annotations:", own, *lines[start + 1 :]])


class Care:
    """On the machine that the agent is on."""

    def __init__(self, effects: Effects, line: Line, clock: Clock, *, is_machine: bool | None = None) -> None:
        """`is_machine` is there for tests: a sandbox counts as a machine."""
        self._effects = effects
        self._data = Data(effects, line)
        self._clock = clock
        self._is_machine = effects.root.is_machine if is_machine is None else is_machine

    async def run(self, work: Errand, tell: Tell) -> Done:
        """Carry an errand out. Never raises for what other programs do."""
        if not self._is_machine:
            return Done(why="a sandbox has no kernel of its own, and is not part of a Kubernetes cluster")
        try:
            match work.care:
                case "inspect":
                    return Done(text="told how it stands", lines=await self._inspect())
                case "renew":
                    return await self._renew(work.cluster, tell)
                case "halt":
                    return Done(text=await self._halt())
                case "go-on":
                    return Done(text=await self._go_on())
                case "snapshot":
                    return Done(text=await self._data.give(work.id))
                case "fetch":
                    return Done(text=await self._data.fetch(work.id))
                case "replace":
                    return Done(text=await self._data.replace())
                case "put-back":
                    return Done(text=await self._data.put_back())
                case "drop":
                    return Done(text=await self._data.drop())
                case _:
                    return Done(why=f"this agent does not know {work.care!r}; update it")
        except Told as err:
            return Done(why=cut(f"{err}; {err.hint}" if err.hint else str(err)))
        except OSError as err:
            return Done(why=cut(f"{err.filename or ''}: {(err.strerror or str(err)).lower()}"))

    # Certificates

    async def _renew(self, cluster: str, tell: Tell) -> Done:
        known = self._effects.state.membership()
        if known.cluster != cluster or not known.is_whole:
            return Done(why=f"the node is not part of the cluster {cluster}")
        lines: list[str] = []
        for name in RENEWED:
            await tell(f"renews {name}")
            ended = await self._effects.run(
                ["kubeadm", "certs", "renew", name, f"--config={INIT}"], timeout_s=_KUBEADM_S
            )
            lines += [cut(line) for line in ended.text.splitlines() if line.strip() and not line.startswith("[renew]")]
            if not ended.is_good:
                return Done(why=f"kubeadm certs renew {name} failed: {ended.reason}", lines=tuple(lines[-_LINES:]))
        stamp = rfc3339(self._clock.now())
        for name, port in _RESTARTED.items():
            await tell(f"starts {name} again")
            if why := await self._restart(name, port, stamp):
                return Done(why=why, lines=tuple(lines[-_LINES:]))
        return Done(text=f"renewed {len(RENEWED)} certificates", lines=tuple(lines[-_LINES:]))

    async def _restart(self, name: str, port: int, stamp: str) -> str:
        """Have the kubelet start a static pod again, and wait until it listens; why it does not."""
        place = self._effects.root.place(f"{FOLDER}/{name}.yaml")
        text = _read(place)
        if text is None:
            return ""
        _write(place, annotated(text, stamp))
        await self._until(lambda: _is_refused(port), _AWAY_S)
        if not await self._until(lambda: not _is_refused(port), _BACK_S):
            return f"{name} did not start again within {_BACK_S:g} s; see its log below /var/log/pods"
        return ""

    # The API server

    async def _halt(self) -> str:
        manifest, aside = (self._effects.root.place(path) for path in (f"{FOLDER}/kube-apiserver.yaml", _HALTED))
        if _exists(manifest):
            os.makedirs(os.path.dirname(aside), mode=0o700, exist_ok=True)
            os.replace(manifest, aside)
        elif not _exists(aside):
            raise Told(f"there is no {FOLDER}/kube-apiserver.yaml on this node")
        if not await self._until(lambda: _is_refused(_API_PORT), _HALT_S):
            raise Told(f"the API server did not stop within {_HALT_S:g} s; see the log of the kubelet")
        return "the API server is halted"

    async def _go_on(self) -> str:
        manifest, aside = (self._effects.root.place(path) for path in (f"{FOLDER}/kube-apiserver.yaml", _HALTED))
        if _exists(manifest):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside)
        elif _exists(aside):
            os.replace(aside, manifest)
        else:
            raise Told(f"there is neither {FOLDER}/kube-apiserver.yaml nor {_HALTED} on this node")
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(aside))
        if not await self._until(lambda: not _is_refused(_API_PORT), _BACK_S):
            raise Told(f"the API server did not start within {_BACK_S:g} s; see its log below /var/log/pods")
        return "the API server goes on"

    async def _until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        end_s = self._clock.monotonic() + timeout_s
        while not holds():
            if self._clock.monotonic() > end_s:
                return False
            await self._clock.sleep(_POLL_S)
        return True

    # How it stands

    async def _inspect(self) -> tuple[str, ...]:
        root = self._effects.root
        lines = [
            f"certificate {each.path} {rfc3339(each.ends) if each.ends is not None else each.why}"
            for each in expiry.certificates(root)
        ]
        lines += [f"missing {name}" for name in _PROGRAMS if shutil.which(name) is None]
        for name, words in (
            ("kubelet", ["kubelet", "--version"]),
            ("etcd", ["etcd", "--version"]),
            ("containerd", ["containerd", "--version"]),
            ("kubeadm", ["kubeadm", "version", "-o", "short"]),
        ):
            ended = await self._effects.run(words, timeout_s=_VERSION_S) if shutil.which(words[0]) else None
            if ended is not None:
                output = (ended.text.splitlines() or [""])[0] if ended.is_good else ended.reason
                lines.append(f"version {name} {output}")
        for name, status in (await self._effects.services.status(["kubelet", "containerd", "etcd", "nginx"])).items():
            lines.append(f"service {name} {'up' if status.is_up else 'down'}")
        lines += [f"manifest {os.path.basename(path)}" for path in sorted(glob.glob(f"{root.place(FOLDER)}/*.yaml"))]
        logs = glob.glob(root.place("/var/log/pods") + "/kube-system_*/*/*.log")
        newest: dict[str, str] = {}
        for path in sorted(logs, key=_changed):
            newest[path.split("/")[-2]] = path
        for name in ("kubelet", "etcd"):
            for place in (f"/var/log/bedplate-agent/{name}.log", f"/var/log/{name}.log"):
                if _exists(root.place(place)):
                    newest[name] = root.place(place)
        room = max(3, min(_LOGGED, (_LINES - len(lines)) // max(1, len(newest))))
        for name, path in newest.items():
            lines += [f"log {name} {line}" for line in await asyncio.to_thread(_tail, path, room)]
        return tuple(cut(masked(line)) for line in lines[:_LINES])


def _exists(path: str) -> bool:
    return os.path.exists(path)


def _read(path: str) -> str | None:
    try:
        with open(path) as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def _changed(path: str) -> float:
    try:
        return os.path.getmtime(path)
    except OSError:
        return 0.0


def _tail(path: str, count: int) -> Sequence[str]:
    try:
        with open(path, "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - 64 * 1024))
            return [line for line in stream.read().decode(errors="replace").splitlines() if line.strip()][-count:]
    except OSError as err:
        return [f"{path} cannot be read: {err.strerror}"]


def _is_refused(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        probe.settimeout(2.0)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _write(place: str, text: str) -> None:
    """Replace a manifest as a whole; a part of one must not be where the kubelet looks."""
    folder = os.path.dirname(os.path.dirname(place))
    part = os.path.join(folder, f".{os.path.basename(place)}.part")
    with open(part, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(part, place)
