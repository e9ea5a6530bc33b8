"""What `bedplate ipam pools` costs in a large cluster: every pod is read, page after page.

In: how many pods. Out: processor time and time of the command. The server is in this process and only sends bytes: pods
of 2.6 kB as a kube-apiserver writes them, with their managed fields and the annotation of a second network. No peer has
such a command.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from bedplate.core import errors

__all__ = ["Read", "read"]

NODES = 1000
_MARK = "@number@"
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Read:
    """One run of the command."""

    cpu_s: float
    seconds: float
    megabytes: float


def _address(number: int, first: int) -> str:
    return f"{first}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def _template() -> str:
    """A pod; what differs between pods is marked."""
    attached = [
        {"name": "cbr0", "interface": "eth0", "ips": ["@first@"], "mac": "9a:e1:00:00:00:01", "default": True},
        {"name": "default/rail", "interface": "net1", "ips": ["@second@"], "mac": "9a:e1:00:00:00:02", "dns": {}},
    ]
    owned = {
        "f:status": {
            "f:conditions": {
                f'k:{{"type":"{kind}"}}': {".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}}
                for kind in ("ContainersReady", "Initialized", "PodReadyToStartContainers", "Ready")
            },
            "f:containerStatuses": {},
            "f:hostIP": {},
            "f:phase": {},
            "f:podIP": {},
            "f:podIPs": {},
            "f:startTime": {},
        }
    }
    container = {
        "name": "work",
        "image": "registry.example/team/work:1.4.2",
        "imagePullPolicy": "IfNotPresent",
        "resources": {"limits": {"cpu": "2", "memory": "4Gi"}, "requests": {"cpu": "1", "memory": "2Gi"}},
        "volumeMounts": [
            {"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "token", "readOnly": True}
        ],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
    pod: dict[str, Any] = {
        "metadata": {
            "name": f"work-{_MARK}",
            "generateName": "work-",
            "namespace": "team",
            "uid": f"0b1f-{_MARK}",
            "resourceVersion": "812345",
            "creationTimestamp": "2026-11-01T08:00:00Z",
            "labels": {"app": "work", "pod-template-hash": "7c9d5f"},
            "annotations": {
                "k8s.v1.cni.cncf.io/networks": "rail",
                "k8s.v1.cni.cncf.io/network-status": json.dumps(attached),
            },
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "work-7c9d5f", "uid": "5a", "controller": True}
            ],
            "managedFields": [
                {
                    "manager": manager,
                    "operation": "Update",
                    "apiVersion": "v1",
                    "time": "2026-11-01T08:00:03Z",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": owned,
                }
                for manager in ("kubelet", "multus")
            ],
        },
        "spec": {
            "nodeName": "@node@",
            "containers": [container],
            "restartPolicy": "Always",
            "serviceAccountName": "default",
            "tolerations": [
                {
                    "key": "node.kubernetes.io/not-ready",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
            ],
        },
        "status": {
            "phase": "Running",
            "hostIP": "172.16.0.9",
            "podIP": "@first@",
            "podIPs": [{"ip": "@first@"}],
            "startTime": "2026-11-01T08:00:00Z",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": "2026-11-01T08:00:03Z"}
                for kind in ("Ready", "Initialized")
            ],
        },
    }
    return json.dumps(pod, separators=(",", ":"))


def _page(template: str, first: int, limit: int, count: int) -> bytes:
    last = min(first + limit, count)
    pods = [
        template.replace(_MARK, f"{number:06d}")
        .replace("@first@", _address(number, 10))
        .replace("@second@", _address(number + 1, 11))
        .replace("@node@", f"node-{number % NODES:04d}")
        for number in range(first, last)
    ]
    more = {"continue": f"at-{last}", "remainingItemCount": count - last} if last < count else {}
    head = json.dumps({"resourceVersion": "900000", **more}, separators=(",", ":"))
    text = f'{{"kind":"PodList","apiVersion":"v1","metadata":{head},"items":[{",".join(pods)}]}}'
    return text.encode()


def _pool() -> dict[str, Any]:
    ends = [(_address(node * 256 + 1, 11), _address(node * 256 + 256, 11)) for node in range(NODES)]
    blocks = [
        {"nodeName": f"node-{node:04d}", "startIP": first, "endIP": last} for node, (first, last) in enumerate(ends)
    ]
    spec = {"subnet": "11.0.0.0/8", "perNodeBlockSize": 256, "gateway": "11.255.255.254"}
    return {"metadata": {"name": "rail", "namespace": "kube-system"}, "spec": spec, "status": {"allocations": blocks}}


@contextlib.asynccontextmanager
async def _server(count: int, sent: list[int]) -> AsyncIterator[int]:
    """The port of a server with so many pods; `sent` is told the bytes."""
    template = _template()

    def listed(kind: str, items: list[Any]) -> bytes:
        return json.dumps(
            {"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}
        ).encode()

    def answer(path: str, query: dict[str, str]) -> bytes:
        if path == "/api/v1/pods":
            begin = int(query.get("continue", "at-0").removeprefix("at-"))
            return _page(template, begin, int(query.get("limit", count)), count)
        if path.endswith("/ippools"):
            return listed("IPPoolList", [_pool()])
        if path == "/api/v1/nodes":
            return listed("NodeList", [{"metadata": {"name": f"node-{node:04d}"}} for node in range(NODES)])
        return listed("CIDRPoolList", [])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path, _, written = head.split(b" ", 2)[1].decode().partition("?")
                query = dict(pair.split("=", 1) for pair in written.split("&") if "=" in pair)
                body = answer(path, query)
                sent.append(len(body))
                writer.write(_HEAD % len(body) + body)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def _run(command: list[str]) -> tuple[float, float, bytes]:
    """Processor time, time and output of a command."""
    begin = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert child.stdout is not None, "it is a pipe"
    printed = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise errors.Terminal(f"{' '.join(command[:3])} ended with {child.returncode}")
    return used.ru_utime + used.ru_stime, time.perf_counter() - begin, printed


async def read(folder: pathlib.Path, count: int) -> Read:
    """Let the command read so many pods, and see that it counted them."""
    sent: list[int] = []
    async with _server(count, sent) as port:
        kubeconfig = folder / "pods.kubeconfig"
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}
        context = {"name": "c", "context": {"cluster": "c", "user": ""}}
        document = {"kind": "Config", "clusters": [cluster], "contexts": [context], "current-context": "c"}
        kubeconfig.write_text(json.dumps(document))
        program = str(pathlib.Path(sys.executable).with_name("bedplate"))
        command = [program, "ipam", "pools", "--kubeconfig", str(kubeconfig), "-o", "json"]
        cpu_s, seconds, printed = await asyncio.to_thread(_run, command)
    used = json.loads(printed)[0]["addresses"]["used"]
    if used != count:
        raise errors.Terminal(f"bedplate ipam pools counted {used} addresses, {count} are in use")
    return Read(cpu_s, seconds, sum(sent) / 1e6)
