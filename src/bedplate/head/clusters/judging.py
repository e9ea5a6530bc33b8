"""The four checks of a cluster: what each says of what was seen.

In: nodes, pods, components and what agents report. Out: results with the first three offenders and what to do about
them. Pure. What could not be asked is `UNKNOWN`, never a pass; only of the API server does no answer mean that it
fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from bedplate.api import core
from bedplate.api.headapi import Result
from bedplate.api.states import State

__all__ = ["CHILDREN", "COMPONENTS", "NAMES", "NODES", "PODS", "Agent", "Beat", "children", "components", "nodes"]
__all__ += ["not_ready", "pods", "stopped", "unknown"]

CHILDREN: Final = "KubernetesChildNode"
COMPONENTS: Final = "KubernetesComponentsStatus"
NODES: Final = "KubernetesNodesStatus"
PODS: Final = "KubernetesPodsStatus"
NAMES: Final = (CHILDREN, COMPONENTS, NODES, PODS)

_NAMED = 3
_LATE_S = 60.0
"""A leader that has not renewed its lease for so long, by this head's clock, has stopped: leases last 15 s."""


class Agent(NamedTuple):
    """What the agent of a member of the cluster reports: its state, and what its own check of the kubelet and the
    container runtime says (`fault` is empty when they run)."""

    node: str
    state: State
    fault: str = ""


class Beat(NamedTuple):
    """A renewal of a component's lease as it was first seen: its version, and when, by a clock that only grows."""

    version: str
    seen_s: float


def nodes(seen: Iterable[core.Node]) -> Result:
    """Every node is Ready."""
    bad = [f"{node.metadata.name} ({why})" for node in seen if (why := not_ready(node))]
    if not bad:
        return _passed(NODES)
    return _failed(
        NODES, f"not ready: {_three(bad)}", "kubectl describe node NAME; on it: systemctl status kubelet", bad
    )


def not_ready(node: core.Node) -> str:
    """Why a node is not Ready; empty when it is."""
    ready = node.condition("Ready")
    if ready is None:
        return "it has not reported yet"
    if ready.is_true:
        return ""
    return ready.reason or "NotReady"


def pods(seen: Iterable[core.Pod]) -> Result:
    """Every pod is Running, Succeeded or Pending."""
    bad = [
        f"{pod.metadata.namespace}/{pod.metadata.name} ({_ended(pod.status)})"
        for pod in seen
        if pod.status.phase not in ("Running", "Succeeded", "Pending", "")
    ]
    if not bad:
        return _passed(PODS)
    remedy = "kubectl describe pod NAME -n NAMESPACE; kubectl logs --previous; delete pods that nobody needs"
    return _failed(PODS, _three(bad), remedy, bad)


def _ended(status: core.PodStatus) -> str:
    return f"{status.phase}: {status.reason}" if status.reason else status.phase


def components(unready: Sequence[str], static: Iterable[core.Pod], beats: Iterable[str]) -> Result:
    """The API server, etcd, the scheduler and the controller manager work: `unready` are the checks that the API server
    itself fails, `static` the pods of the control plane, `beats` the components that have stopped renewing."""
    bad = [*unready, *(f"{name} has stopped" for name in beats)]
    for pod in static:
        ready = next((condition for condition in pod.status.conditions if condition.type == "Ready"), None)
        if ready is None or not ready.is_true:
            bad.append(f"{pod.metadata.name} is not ready")
    if not bad:
        return _passed(COMPONENTS)
    remedy = "see kubectl get pods -n kube-system, and on the control plane crictl ps -a and journalctl -u kubelet"
    return _failed(COMPONENTS, _three(bad), remedy, bad)


def stopped(beats: Mapping[str, Beat], now_s: float) -> list[str]:
    """The components that have not renewed their lease for too long."""
    return sorted(name for name, beat in beats.items() if now_s - beat.seen_s > _LATE_S)


def children(agents: Iterable[Agent], seen: Iterable[core.Node] | None) -> Result:
    """The kubelet and the container runtime run on every member whose agent reports; of others nothing is expected."""
    active = [agent for agent in agents if agent.state == "UP"]
    known = {node.metadata.name: node for node in seen} if seen is not None else None
    bad = []
    for agent in active:
        node = known.get(agent.node) if known is not None else None
        ready = node.condition("Ready") if node is not None else None
        if agent.fault:
            bad.append(f"{agent.node}: {agent.fault}")
        elif known is not None and node is None:
            bad.append(f"{agent.node}: it is not a node of the cluster")
        elif ready is not None and ready.status == "Unknown":
            bad.append(f"{agent.node}: the kubelet has stopped reporting")
    if not bad:
        return _passed(CHILDREN)
    return _failed(CHILDREN, _three(bad), "on the node: systemctl status kubelet containerd, and their logs", bad)


def unknown(check: str, why: str) -> Result:
    """A check that could not be made."""
    return Result(check=check, status="UNKNOWN", info=why, remedy="see that the head reaches the API server")


def _passed(check: str) -> Result:
    return Result(check=check, status="PASS", value=0.0)


def _failed(check: str, info: str, remedy: str, bad: Sequence[str]) -> Result:
    return Result(check=check, status="FAIL", value=float(len(bad)), info=info, remedy=remedy)


def _three(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
