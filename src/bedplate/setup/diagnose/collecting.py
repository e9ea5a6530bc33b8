"""Reads how a cluster stands, from whoever can still tell.

In: a head, the cluster's name, the head's data folder. Out: a `Report`. The head is asked first, then the nodes through
their agents, which also works while no API server answers, then the API server. What cannot be read is told with the
reason, and the rest goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from bedplate.api import headapi
from bedplate.api.resources import custom
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.core.clock import Clock, parse_rfc3339, rfc3339
from bedplate.head import Tree, resolve
from bedplate.head import care as cared
from bedplate.head.clusters.membership import is_paused
from bedplate.head.clusters.snapshots import Snapshots
from bedplate.head.entities.kubernetes import KubeCluster
from bedplate.head.entities.roles import KubeletRole
from bedplate.kube import Client
from bedplate.setup.diagnose.report import Report
from bedplate.setup.kubernetes import cluster as clusters
from bedplate.setup.kubernetes.caring import care

__all__ = ["collect", "judged", "members_of", "waits_for"]

_SOON = timedelta(days=30)
_EVENTS = custom("", "v1", "events", "Event", True)
_NODES = custom("", "v1", "nodes", "Node", False)
_PODS = custom("", "v1", "pods", "Pod", True)
_SHOWN = 50
_TIMEOUT_S = 15.0
_MANIFESTS = ("kube-apiserver.yaml", "kube-controller-manager.yaml", "kube-scheduler.yaml")
_RESUME = "if nobody is at it, end it with cm-kubernetes-setup --resume or --undo,"


def members_of(tree: Tree, cluster: str) -> list[str]:
    """The nodes of a cluster and of its etcd."""
    names = set(cared.members(tree, cluster))
    for name, device in tree.mode("device").items():
        given = resolve.roles_of(tree, device).get("kubelet")
        if given is not None and KubeletRole.kubernetes_cluster.value(given.role) == cluster:
            names.add(name)
    return sorted(names)


async def collect(head: HeadClient, tree: Tree, cluster: str, data: Path | None, clock: Clock) -> Report:
    """Everything that can be read. Raises `NotFound` for a cluster that the head does not know."""
    obj = tree.get(("kubernetes", cluster))
    report = Report(cluster, rfc3339(clock.now()))
    names = members_of(tree, cluster)
    domains = KubeCluster.trusted_domains.value(obj)
    assert isinstance(domains, tuple)
    report.add(
        "Cluster",
        [
            f"version {KubeCluster.version.value(obj)}",
            f"control plane nodes {' '.join(cared.planes(tree, cluster)) or 'none'}",
            f"etcd members {' '.join(cared.members(tree, cluster)) or 'none'}",
            f"trusted domains {' '.join(map(str, domains))}",
        ],
    )
    if is_paused(tree, cluster):
        report.find(f"a restore or an upgrade runs or was interrupted: {_RESUME} --cluster {cluster}")
    await _try(report, "Health checks", lambda: _checks(report, head, cluster))
    up = await _agents(report, head, names)
    await _nodes(report, head, cluster, up, cared.planes(tree, cluster), clock)
    if data is None:
        why = "the kubeconfig is on the head node; run this there, or name its data folder with --data"
        report.miss("API server", why)
        return report
    _snapshots(report, data, cluster)
    await _api(report, data, cluster)
    return report


async def _try(report: Report, title: str, read: Callable[[], Awaitable[Iterable[str]]]) -> bool:
    """Read a section; whether it could be."""
    try:
        lines = list(await read())
    except (errors.BedplateError, OSError, TimeoutError) as err:
        report.miss(title, " ".join(str(err).split()) or type(err).__name__)
        return False
    report.add(title, lines or ["none"])
    return True


async def _checks(report: Report, head: HeadClient, cluster: str) -> Iterable[str]:
    state = await head.cluster(cluster)
    for check in state.checks:
        if check.status == "FAIL":
            report.find(f"{check.check} fails: {check.info}")
    lines = [f"{check.check} {check.status} {check.info}".rstrip() for check in state.checks]
    return [*lines, *([f"the head does not reach the cluster: {state.trouble}"] if state.trouble else [])]


async def _agents(report: Report, head: HeadClient, names: list[str]) -> list[str]:
    up: list[str] = []

    async def read() -> Iterable[str]:
        lines = []
        for state in await head.nodes(names):
            if state.state == "UP":
                up.append(state.node)
            else:
                report.find(f"the agent of {state.node} does not report: {state.state}")
                report.miss(f"Node {state.node}", "its agent does not report")
            for check in state.checks:
                if check.status == "FAIL":
                    report.find(f"{state.node}: {check.check} fails: {check.info}")
            bad = [f"{check.check} {check.status}" for check in state.checks if check.status != "PASS"]
            lines.append(f"{state.node} {state.state} {', '.join(bad)}".rstrip())
        return lines

    await _try(report, "Agents", read)
    return up


async def _nodes(
    report: Report, head: HeadClient, cluster: str, names: list[str], planes: list[str], clock: Clock
) -> None:
    try:
        request = headapi.Care(action="inspect", cluster=cluster)
        states = await care(head, clock, names, request, is_strict=False)
    except errors.BedplateError as err:
        report.miss("Nodes", str(err))
        return
    for item in states:
        if item.state != "done":
            report.miss(f"Node {item.node}", item.text or item.state)
            continue
        report.add(f"Node {item.node}", item.lines)
        for text in judged(item.node, item.lines, clock.now(), is_plane=item.node in planes):
            report.find(text)


def judged(node: str, lines: Sequence[str], now: datetime, *, is_plane: bool = False) -> list[str]:
    """What is wrong on a node, by what it told. Pure."""
    findings = [
        f"{node}: there is no manifest {name}: its static pod does not run"
        for name in _MANIFESTS
        if is_plane and f"manifest {name}" not in lines
    ]
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "service" and rest.endswith(" down"):
            findings.append(f"{node}: the service {rest.removesuffix(' down')} is down")
        if kind == "certificate":
            path, _, ends = rest.partition(" ")
            try:
                end = parse_rfc3339(ends)
            except ValueError:
                findings.append(f"{node}: {path}: {ends}")
                continue
            if end - now < _SOON:
                findings.append(f"{node}: {path} {'ended' if end <= now else 'ends'} on {end:%Y-%m-%d}")
    return findings


def _snapshots(report: Report, data: Path, cluster: str) -> None:
    listed = Snapshots(data).list(cluster)
    lines = [f"{each.name} {each.size} bytes, revision {each.revision}, taken {each.taken}" for each in listed]
    report.add("Snapshots of etcd", lines or ["none"])


async def _api(report: Report, data: Path, cluster: str) -> None:
    try:
        async with clusters.connected(data, cluster) as client:
            if not await _try(report, "API server", lambda: _served(report, client)):
                report.find("the API server does not answer")
                return
            await _try(report, "Kubernetes nodes", lambda: _listed(report, client))
            await _try(report, "Pods", lambda: _pods(report, client))
            await _try(report, "Events", lambda: _events(client))
    except (errors.BedplateError, OSError) as err:
        report.miss("API server", str(err))


async def _served(report: Report, client: Client) -> Iterable[str]:
    version = await client.request("GET", "/version", timeout_s=_TIMEOUT_S)
    lines = [" ".join(version.body.decode().split())]
    try:
        ready = await client.request(
            "GET", "/readyz", query=[("verbose", "true")], accept="text/plain", timeout_s=_TIMEOUT_S
        )
        lines += ready.body.decode().splitlines()
    except errors.BedplateError as err:
        report.find(f"the API server is not ready: {' '.join(str(err).split())[:300]}")
        lines += str(err).splitlines()
    return lines


async def _listed(report: Report, client: Client) -> Iterable[str]:
    lines = []
    for item in (await client.list(_NODES)).items:
        conditions = {each["type"]: each for each in item["status"].get("conditions", ())}
        ready = conditions.get("Ready", {})
        name, info = item["metadata"]["name"], item["status"].get("nodeInfo", {})
        if ready.get("status") != "True":
            report.find(f"the node {name} is not Ready: {ready.get('reason') or 'it has not reported'}")
        version, runtime = info.get("kubeletVersion", "?"), info.get("containerRuntimeVersion", "?")
        lines.append(f"{name} Ready={ready.get('status', 'Unknown')} {version} {runtime}")
    return lines


async def _pods(report: Report, client: Client) -> Iterable[str]:
    lines = []
    for item in (await client.list(_PODS)).items:
        name = f"{item['metadata']['namespace']}/{item['metadata']['name']}"
        phase, waiting = item["status"].get("phase", "Unknown"), waits_for(item)
        if phase not in ("Running", "Succeeded", "Pending"):
            report.find(f"the pod {name} is {phase}")
        elif waiting:
            report.find(f"the pod {name} waits: {waiting}")
        lines.append(f"{name} {phase} {item['spec'].get('nodeName', 'not scheduled')} {waiting}".rstrip())
    return lines


def waits_for(item: dict[str, Any]) -> str:
    """Why a pod does not run, where that is not a matter of time: no node takes it, or a container does not start.
    Pure."""
    for condition in item["status"].get("conditions", ()):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return " ".join(f"{condition.get('reason', '')}: {condition.get('message', '')}".split())[:300]
    containers = [*item["status"].get("initContainerStatuses", ()), *item["status"].get("containerStatuses", ())]
    for status in containers:
        reason = status.get("state", {}).get("waiting", {}).get("reason", "")
        if reason and reason not in ("ContainerCreating", "PodInitializing"):
            return str(reason)
    return ""


async def _events(client: Client) -> Iterable[str]:
    items = (await client.list(_EVENTS)).items
    rows = []
    for item in items:
        when = item.get("lastTimestamp") or item.get("eventTime") or item["metadata"].get("creationTimestamp", "")
        about = item.get("involvedObject", {})
        text = " ".join(str(item.get("message", "")).split())
        what = f"{about.get('kind', '')} {about.get('namespace', '')}/{about.get('name', '')}"
        rows.append((when, f"{when} {item.get('type', '')} {item.get('reason', '')} {what}: {text}"[:500]))
    return [row for _, row in sorted(rows)[-_SHOWN:]]
