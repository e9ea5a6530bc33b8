"""Health checks of one node: what they measure, what they say, and what to do about it.

In: the names and intervals of the state state, the machine, its services. Out: results, each at its interval; `info`
says what is wrong with what, and the remedy. A check that is not about this node gives no result. A site's own checks
are programs in `/etc/bedplate/checks.d`: exit code 0 is a pass, the first line of output is the information.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from bedplate.agent import expiry
from bedplate.agent.commands import Ended, Run, run
from bedplate.agent.files import FileProblem, Root
from bedplate.agent.observe import Difference
from bedplate.agent.services import Services, Status
from bedplate.api.desired import Check, Desired, Service
from bedplate.api.headapi import Result
from bedplate.client.http import Http, Lost, Reply, Unreached
from bedplate.core import errors

__all__ = ["FILES", "OWN", "SERVICES", "Checks", "Sick", "names"]

SERVICES, FILES = "ManagedServicesOk", "ManagedFilesOk"
OWN = (Check(name=SERVICES), Check(name=FILES), Check(name=expiry.CHECK, interval_s=3600.0))
"""Checks that every agent runs, whatever the head asks for."""
_SCRIPTS = "/etc/bedplate/checks.d"
_DISK_LIMIT, _LOAD_PER_CPU, _GPU_LIMIT, _NTP_LIMIT_MS = 90.0, 4.0, 85.0, 100.0
_SCRIPT_S, _HTTP_S, _KUBECTL_S = 30.0, 10.0, 60.0
_CACHE = "/run/bedplate-agent/kubectl"
_LONGEST = 240
_SHORTEST_S = 1.0
_AGAIN_S = 60.0
"""A check that is not about the node is tried again after so long at most: a node may become part of a cluster."""
_VIRTUAL = frozenset(
    (
        *("autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs"),
        *("fusectl", "hugetlbfs", "iso9660", "mqueue", "nsfs", "overlay", "proc", "pstore", "ramfs", "rpc_pipefs"),
        *("securityfs", "selinuxfs", "squashfs", "sysfs", "tmpfs", "tracefs"),
    )
)
"""File systems that are not a disk, or of which another mount tells."""
_COMPONENTS = {
    "kube-apiserver": "https://127.0.0.1:6443/livez",
    "kube-controller-manager": "https://127.0.0.1:10257/healthz",
    "kube-scheduler": "https://127.0.0.1:10259/healthz",
    "etcd": "http://127.0.0.1:2381/health",
}
_KUBELET = "http://127.0.0.1:10248/healthz"
_ADMIN = "/etc/kubernetes/admin.conf"
_MANIFESTS = "/etc/kubernetes/manifests"


class Sick(NamedTuple):
    """A service whose sickness script failed, and what it text."""

    service: str
    why: str


class Checks:
    """`due` runs what is due. Nothing is measured twice within its interval."""

    def __init__(self, root: Root, services: Services, run: Run = run, *, http: Http | None = None) -> None:
        self._root = root
        self._services = services
        self._run = run
        self._http = http or Http(_any_certificate, {})
        self._measured_s: dict[str, float] = {}
        self._sick: dict[str, str] = {}
        self.differences: list[Difference] = []
        """What is not as it should be, by the last look at files, services and packages."""

    async def close(self) -> None:
        await self._http.close()

    def wait_s(self, state: Desired | None, now_s: float) -> float:
        """How long until something is due."""
        spans = [self._left_s(check.name, check.interval_s, now_s) for check in _all(state)]
        spans += [
            self._left_s(f"sick {service.name}", float(service.sickness_interval), now_s)
            for service in _scripted(state)
        ]
        return max(0.0, min(spans, default=60.0))

    async def due(self, state: Desired | None, now_s: float) -> list[Result]:
        """The results of the checks that are due."""
        results = []
        for check in _all(state):
            if self._left_s(check.name, check.interval_s, now_s) <= 0:
                self._measured_s[check.name] = now_s
                result = await self.measure(check.name, state)
                if result is not None:
                    results.append(result)
                else:
                    self._measured_s[check.name] -= max(0.0, check.interval_s - _AGAIN_S)
        return results

    async def sick(self, state: Desired | None, now_s: float) -> list[Sick]:
        """Run the sickness scripts that are due: the services that are to be restarted."""
        patients = []
        for service in _scripted(state):
            name = f"sick {service.name}"
            if self._left_s(name, float(service.sickness_interval), now_s) > 0:
                continue
            self._measured_s[name] = now_s
            limit_s = float(max(1, service.sickness_timeout))
            try:
                ended = await self._run([self._root.place(service.sickness_script)], timeout_s=limit_s)
            except (FileProblem, OSError) as err:
                ended = Ended(None, "", str(err))
            if ended.is_good:
                self._sick.pop(service.name, None)
            else:
                self._sick[service.name] = ended.reason
                patients.append(Sick(service.name, ended.reason))
        return patients

    async def measure(self, name: str, state: Desired | None) -> Result | None:
        """What one check says now; None when it is not about this node."""
        known: Mapping[str, Callable[[Desired | None], Awaitable[Result | None]]] = {
            SERVICES: self._managed_services,
            FILES: self._managed_files,
            expiry.CHECK: self._certificates,
            "disk-space": self._disk,
            "load": self._load,
            "ntp": self._ntp,
            "gpu-temperature": self._gpu,
            "Docker": self._docker,
            "KubernetesChildNode": self._child_node,
            "KubernetesComponentsStatus": self._components,
            "KubernetesNodesStatus": self._nodes,
            "KubernetesPodsStatus": self._pods,
        }
        try:
            return await (known[name](state) if name in known else self._site_check(name))
        except (errors.BedplateError, OSError) as err:
            # A check that cannot be made is not a check that failed, and never the end of the agent.
            return Result(check=name, status="UNKNOWN", info=_clean(str(err)))

    def _left_s(self, name: str, interval_s: float, now_s: float) -> float:
        last_s = self._measured_s.get(name)
        return 0.0 if last_s is None else last_s + max(_SHORTEST_S, interval_s) - now_s

    # What the agent itself keeps

    async def _managed_services(self, state: Desired | None) -> Result:
        watched = [service for service in (state.services if state else ()) if service.monitored and service.autostart]
        statuses = await self._services.status([service.name for service in watched])
        down = [_described(status) for status in statuses.values() if not status.is_up]
        down += [f"{name} is sick: {why}" for name, why in sorted(self._sick.items())]
        if down:
            return _fail(SERVICES, _three(down), "see the log of the service on the node", float(len(down)))
        remarks = [_described(status) for status in statuses.values() if status.why]
        return Result(check=SERVICES, status="PASS", value=0.0, info=_clean(_three(remarks)))

    async def _managed_files(self, state: Desired | None) -> Result:
        files = [f"{difference.name} {difference.what}" for difference in self.differences if difference.kind == "file"]
        if files:
            return _fail(FILES, _three(files), "change it in the head, or put it right by hand", float(len(files)))
        return Result(check=FILES, status="PASS", value=0.0)

    async def _certificates(self, state: Desired | None) -> Result | None:
        return expiry.judge(await asyncio.to_thread(expiry.certificates, self._root), datetime.now(UTC))

    # The machine

    async def _disk(self, state: Desired | None) -> Result:
        fullest, place, kind = 0.0, "/", "space"
        for point in self._mounts():
            try:
                about = os.statvfs(point)
            except OSError:
                continue
            usable = about.f_blocks - about.f_bfree + about.f_bavail
            shares = {
                "space": (about.f_blocks - about.f_bfree, usable),
                "inodes": (about.f_files - about.f_ffree, about.f_files),
            }
            for what, (used, all_) in shares.items():
                share = 100.0 * used / all_ if all_ else 0.0
                if share > fullest:
                    fullest, place, kind = share, point, what
        value = round(fullest, 1)
        if value < _DISK_LIMIT:
            return Result(check="disk-space", status="PASS", value=value)
        text = f"{value:g} % of the {kind} of {place} is used, {_DISK_LIMIT:g} is the limit"
        return _fail("disk-space", text, f"free space below {place}, or enlarge it", value)

    def _mounts(self) -> list[str]:
        if not self._root.is_machine:
            return [self._root.folder]
        points = ["/"]
        try:
            with open("/proc/self/mounts") as stream:
                for line in stream:
                    source, point, kind, *_ = line.split()
                    if kind not in _VIRTUAL and not kind.startswith("fuse.") and source != "none":
                        points.append(point.replace("\\040", " "))
        except OSError:
            pass
        return points

    async def _load(self, state: Desired | None) -> Result:
        value, limit = round(os.getloadavg()[0], 1), _LOAD_PER_CPU * (os.cpu_count() or 1)
        if value < limit:
            return Result(check="load", status="PASS", value=value)
        return _fail("load", f"{value:g} runnable processes, {limit:g} is the limit", "find them with top", value)

    async def _ntp(self, state: Desired | None) -> Result:
        offset_ms = _clock_offset_ms()
        remedy = "start chronyd or systemd-timesyncd, and see that its servers can be reached"
        if offset_ms is None:
            return _fail("ntp", "the clock is not synchronized", remedy, None)
        if offset_ms < _NTP_LIMIT_MS:
            return Result(check="ntp", status="PASS", value=round(offset_ms, 2))
        return _fail("ntp", f"{offset_ms:g} ms off, {_NTP_LIMIT_MS:g} is the limit", remedy, round(offset_ms, 2))

    async def _gpu(self, state: Desired | None) -> Result | None:
        ended = await self._run(
            ["nvidia-smi", "--query-gpu=temperature.gpu", "--format=csv,noheader,nounits"], timeout_s=_SCRIPT_S
        )
        degrees = [float(line) for line in ended.text.split() if re.fullmatch(r"\d+(\.\d+)?", line)]
        if not ended.is_good or not degrees:
            return None
        value = max(degrees)
        if value < _GPU_LIMIT:
            return Result(check="gpu-temperature", status="PASS", value=value)
        text = f"{value:g} degrees on GPU {degrees.index(value)}, {_GPU_LIMIT:g} is the limit"
        return _fail("gpu-temperature", text, "look at the fans and the air flow of the node", value)

    # Docker

    async def _docker(self, state: Desired | None) -> Result:
        """The daemon answers, and no container is dead."""
        path = self._docker_socket()
        base = f"http+unix://{quote(self._root.place(path), safe='')}"
        dead = json.dumps({"status": ["dead"]})
        remedy = "see journalctl -u docker, or its log"
        try:
            pinged = await self._get(f"{base}/_ping")
            if pinged.status != 200:
                return _fail("Docker", f"the daemon answers with status {pinged.status}", remedy, None)
            listed = await self._get(f"{base}/containers/json", {"all": "1", "filters": dead})
            containers = msgspec.json.decode(listed.body, type=list[_Container]) if listed.status == 200 else None
        except (Unreached, Lost, TimeoutError, msgspec.DecodeError) as err:
            return _fail(
                "Docker", f"the daemon does not answer at {path}: {str(err) or 'no response in time'}", remedy, None
            )
        if containers is None:
            return _fail("Docker", f"the daemon does not list containers (status {listed.status})", remedy, None)
        # Daemons that do not know the filter list all.
        names = [container.name for container in containers if container.State in ("dead", "")]
        if names:
            text = f"dead: {_three(names)}"
            return _fail("Docker", text, "docker rm -f them", float(len(names)))
        return Result(check="Docker", status="PASS", value=0.0)

    def _docker_socket(self) -> str:
        try:
            settings = json.loads(self._root.read("/etc/docker/daemon.json", follow=True).content or b"{}")
            hosts = [host for host in settings.get("hosts", []) if str(host).startswith("unix://")]
        except (ValueError, AttributeError, FileProblem):
            hosts = []
        path = str(hosts[0]).removeprefix("unix://") if hosts else ""
        return path or "/var/run/docker.sock"

    # Kubernetes, as far as one node can tell

    async def _child_node(self, state: Desired | None) -> Result:
        """The kubelet and the container runtime run."""
        managed = {service.name for service in (state.services if state else ())}
        names = [name for name in ("kubelet", "containerd") if name in managed] or ["kubelet"]
        statuses = await self._services.status(names)
        down = [_described(status) for status in statuses.values() if not status.is_up]
        if down:
            return _fail("KubernetesChildNode", _three(down), "see the log of the service", float(len(down)))
        return Result(check="KubernetesChildNode", status="PASS", value=0.0)

    async def _components(self, state: Desired | None) -> Result:
        """The kubelet, and the components whose static pods are on this node, say that they are healthy."""
        here = {
            name: url for name, url in _COMPONENTS.items() if self._root.stat(f"{_MANIFESTS}/{name}.yaml") is not None
        }
        asked = {"kubelet": _KUBELET, **here}
        answers = await asyncio.gather(*(self._health(url) for url in asked.values()))
        bad = [f"{name}: {why}" for name, why in zip(asked, answers, strict=True) if why]
        if bad:
            remedy = "see journalctl -u kubelet and crictl ps -a"
            return _fail("KubernetesComponentsStatus", _three(bad), remedy, float(len(bad)))
        return Result(check="KubernetesComponentsStatus", status="PASS", value=0.0)

    async def _health(self, url: str) -> str:
        try:
            reply = await self._get(url)
        except (Unreached, Lost, TimeoutError, ssl.SSLError) as err:
            return str(err) or "no response in time"
        # An API server that wants to know who asks is there.
        return "" if reply.status in (200, 401, 403) else f"status {reply.status}"

    async def _nodes(self, state: Desired | None) -> Result | None:
        lines = await self._kubectl("get", "nodes", "--no-headers")
        if lines is None:
            return None
        bad = [
            words[0]
            for words in (line.split() for line in lines)
            if len(words) > 1 and "Ready" not in words[1].split(",")
        ]
        if bad:
            return _fail("KubernetesNodesStatus", f"not ready: {_three(bad)}", "kubectl describe node", float(len(bad)))
        return Result(check="KubernetesNodesStatus", status="PASS", value=0.0)

    async def _pods(self, state: Desired | None) -> Result | None:
        phases = ",".join(f"status.phase!={phase}" for phase in ("Running", "Succeeded", "Pending"))
        lines = await self._kubectl("get", "pods", "-A", "--no-headers", f"--field-selector={phases}")
        if lines is None:
            return None
        bad = ["/".join(line.split()[:2]) for line in lines if line.strip()]
        if bad:
            return _fail("KubernetesPodsStatus", _three(bad), "kubectl describe pod", float(len(bad)))
        return Result(check="KubernetesPodsStatus", status="PASS", value=0.0)

    async def _kubectl(self, *words: str) -> list[str] | None:
        """What kubectl prints on a control plane node; None elsewhere. A server that does not answer has no lines."""
        if self._root.stat(_ADMIN) is None:
            return None
        # What it keeps for the next time would be left in the home of root when the cluster is gone.
        config, cache = self._root.place(_ADMIN), self._root.place(_CACHE)
        options = [f"--kubeconfig={config}", f"--cache-dir={cache}", "--request-timeout=30s"]
        ended = await self._run(["kubectl", *options, *words], timeout_s=_KUBECTL_S)
        if not ended.is_good:
            return None if ended.code is None else [f"the-API-server {ended.reason.replace(' ', '-')}"]
        return ended.text.splitlines()

    # Others

    async def _site_check(self, name: str) -> Result:
        path = f"{_SCRIPTS}/{name}"
        try:
            about = self._root.stat(path)
        except FileProblem:
            about = None
        if about is None:
            remedy = f"put a program of that name into {_SCRIPTS}"
            return Result(check=name, status="UNKNOWN", info=_clean(f"this agent has no check {name}"), remedy=remedy)
        ended = await self._run([self._root.place(path)], timeout_s=_SCRIPT_S)
        text = next((line.strip() for line in ended.text.splitlines() if line.strip()), "")
        if ended.code is None:
            return Result(check=name, status="UNKNOWN", info=_clean(ended.reason))
        number = re.match(r"-?\d+(\.\d+)?", text)
        value = float(number[0]) if number else None
        if ended.is_good:
            return Result(check=name, status="PASS", value=value, info=_clean(text))
        return Result(check=name, status="FAIL", value=value, info=_clean(text or ended.reason))

    async def _get(self, url: str, query: Mapping[str, str] | None = None) -> Reply:
        return await self._http.request("GET", url, query=query or {}, headers={}, body=None, timeout_s=_HTTP_S)


class _Container(msgspec.Struct):
    Id: str = ""
    Names: list[str] = []
    State: str = ""

    @property
    def name(self) -> str:
        return self.Names[0].lstrip("/") if self.Names else self.Id[:12]


def names(state: Desired | None) -> list[str]:
    """All checks that are run for a state."""
    return sorted(check.name for check in _all(state))


def _all(state: Desired | None) -> Iterable[Check]:
    asked = state.checks if state is not None else ()
    names = {check.name for check in asked}
    return (*asked, *(check for check in OWN if check.name not in names))


def _scripted(state: Desired | None) -> list[Service]:
    return [service for service in (state.services if state else ()) if service.sickness_script.strip()]


def _described(status: Status) -> str:
    why = f" ({status.why})" if status.why else ""
    return f"{status.name} is {status.condition}{why}"


def _three(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _fail(check: str, text: str, remedy: str, value: float | None) -> Result:
    return Result(check=check, status="FAIL", value=value, info=_clean(text), remedy=remedy)


def _clean(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:_LONGEST]


def _any_certificate() -> ssl.SSLContext:
    """The components of this machine sign their certificates themselves."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class _Timex(ctypes.Structure):
    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 30),
    )


_UNSYNCHRONIZED, _NANOSECONDS = 0x0040, 0x2000


def _clock_offset_ms() -> float | None:
    """How far the clock is off by the kernel's own account; None when nothing keeps it."""
    about = _Timex()
    if ctypes.CDLL(None).adjtimex(ctypes.byref(about)) < 0 or about.status & _UNSYNCHRONIZED:
        return None
    offset = abs(about.offset) / (1e6 if about.status & _NANOSECONDS else 1e3)
    return float(max(offset, about.esterror / 1e3))
