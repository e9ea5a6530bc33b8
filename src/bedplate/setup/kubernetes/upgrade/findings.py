"""What stands in the way of an upgrade, each with the object it is about and a remedy. Pure.

In: what `seeing` has read of the cluster. Out: findings. One that `blocks` stops the upgrade before anything is
changed; the others are warnings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from bedplate.api import core
from bedplate.head.clusters import draining
from bedplate.setup.kubernetes.upgrade.planning import Version

__all__ = ["Finding", "budgets", "certificates", "deprecated", "health", "nodes", "pods"]

_SOON = timedelta(days=30)
_SERIES = re.compile(r"apiserver_requested_deprecated_apis\{(.*)\} (\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Finding(NamedTuple):
    """Something about an object, and what to do about it."""

    what: str
    remedy: str
    blocks: bool = True

    def __str__(self) -> str:
        return f"{self.what}; {self.remedy}"


def health(failing: Iterable[str]) -> list[Finding]:
    """Of what the API server says that it fails: etcd is among it."""
    return [
        Finding(f"the API server is not healthy: {text}", "see kubectl get --raw '/readyz?verbose'") for text in failing
    ]


def nodes(present: Iterable[core.Node], expected: Iterable[str]) -> list[Finding]:
    """Nodes that are not Ready, are missing, or are none of the head's."""
    by_name, known = {node.metadata.name: node for node in present}, set(expected)
    results = [
        Finding(f"{name} has the role but is not part of the cluster", "join it, or take its role away")
        for name in sorted(known - set(by_name))
    ]
    for name, node in sorted(by_name.items()):
        ready = next((each for each in node.status.conditions if each.type == "Ready"), None)
        if name in known and (ready is None or ready.status != "True"):
            why = f": {ready.message}" if ready is not None and ready.message else ""
            results.append(Finding(f"node {name} is not Ready{why}", f"see kubectl describe node {name}"))
        if name not in known:
            what = f"node {name} is none of the head's nodes, and stays at {node.status.node_info.kubelet_version}"
            results.append(Finding(what, "upgrade it by hand afterwards", blocks=False))
        if name in known and node.spec.unschedulable:
            what = f"node {name} is cordoned"
            results.append(Finding(what, "it is upgraded, and stays cordoned", blocks=False))
    return results


def deprecated(metrics: str, version: Version) -> list[Finding]:
    """APIs that clients have asked for since the API server started, and that the new version does not serve."""
    results = []
    for line in metrics.splitlines():
        series = _SERIES.match(line)
        if series is None or not float(series[2]):
            continue
        labels = dict(_LABEL.findall(series[1]))
        removed = re.fullmatch(r"1\.(\d+)", labels.get("removed_release", ""))
        group = f"{labels.get('group', '')}/{labels.get('version', '')}".lstrip("/")
        name = f"{labels.get('resource', '')} of {group}"
        if removed is None:
            continue
        if int(removed[1]) <= version.minor:
            remedy = "have its clients use a version that is served; the audit log names them"
            results.append(Finding(f"clients use {name}, which 1.{removed[1]} removes", remedy))
        else:
            remedy = "its clients have to change before that"
            results.append(Finding(f"clients use {name}, which 1.{removed[1]} will remove", remedy, blocks=False))
    return results


def budgets(present: Iterable[Mapping[str, Any]], consent: draining.Consent) -> list[Finding]:
    """Disruption budgets that let no pod go."""
    results = []
    for budget in present:
        status = budget.get("status") or {}
        if status.get("disruptionsAllowed", 0) or not status.get("expectedPods", 0):
            continue
        what = (
            f"PodDisruptionBudget {draining.name_of(budget)} allows no disruption "
            f"({status.get('currentHealthy', 0)} of {status.get('expectedPods', 0)} pods are healthy, "
            f"{status.get('desiredHealthy', 0)} are required)"
        )
        remedy = "have more of its pods run, or give --disable-eviction, which deletes them"
        results.append(Finding(what, remedy, blocks=not consent.budgets))
    return results


def pods(present: Iterable[Mapping[str, Any]], upgraded: Iterable[str], consent: draining.Consent) -> list[Finding]:
    """Pods on nodes that will be drained whose content would be lost."""
    names = set(upgraded)
    drained = [dict(pod) for pod in present if pod.get("spec", {}).get("nodeName") in names]
    return [
        Finding(f"pod {each.pod} {each.why}", f"move what it keeps elsewhere, or give {each.flag}")
        for each in draining.plan(drained, consent).refused
    ]


def certificates(ends: Mapping[str, datetime], now: datetime) -> list[Finding]:
    """Certificates that have ended, or soon will. kubeadm renews those that it made on its nodes, not authorities."""
    results = []
    for name, end in sorted(ends.items()):
        if end <= now:
            results.append(Finding(f"{name} has expired on {end:%Y-%m-%d}", "renew it first"))
        elif end <= now + _SOON:
            results.append(Finding(f"{name} expires on {end:%Y-%m-%d}", "renew it soon", blocks=False))
    return results
