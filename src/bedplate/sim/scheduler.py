"""A minimal scheduler: binds pending pods to nodes that can take them.

In: pods and nodes from caches. Out: bindings. `choose` is pure. It knows readiness, taints and tolerations, node
selectors, resource requests and the number of pods; it spreads by load. Not affinity, topology or preemption: for
those run the real one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from bedplate.api import core, objects, quantity
from bedplate.api.resources import PODS
from bedplate.core import errors, logging
from bedplate.kube.client import Client
from bedplate.runtime.cache import Cache
from bedplate.runtime.controller import Controller, Result

__all__ = ["NAME", "Fit", "Scheduler", "choose", "requests_of"]

NAME = "default-scheduler"
log = logging.get_logger("sim.scheduler")
_NOT_FOUND_S = 5.0


@dataclass(slots=True)
class Fit:
    """What is already on a node."""

    pods: int = 0
    used: dict[str, Decimal] = field(default_factory=dict)


def requests_of(pod: core.Pod) -> dict[str, Decimal]:
    """The resources a pod asks for, summed over its containers."""
    total: dict[str, Decimal] = {}
    for container in pod.spec.containers or ():
        asked = {**container.resources.limits, **container.resources.requests}
        for name, text in asked.items():
            total[name] = total.get(name, Decimal(0)) + (quantity.parse(text) or Decimal(0))
    return total


def choose(pod: core.Pod, nodes: Iterable[core.Node], load: Mapping[str, Fit]) -> tuple[str, dict[str, int]]:
    """The best node's name (empty when none fits) and, by reason, how many nodes do not."""
    wanted = requests_of(pod)
    refusals: dict[str, int] = {}
    best, least = "", (0, "")
    for node in nodes:
        name = node.metadata.name
        fit = load.get(name) or Fit()
        why = _refusal(pod, wanted, node, fit)
        if why:
            refusals[why] = refusals.get(why, 0) + 1
        elif not best or (fit.pods, name) < least:
            best, least = name, (fit.pods, name)
    return best, refusals


def _refusal(pod: core.Pod, wanted: Mapping[str, Decimal], node: core.Node, fit: Fit) -> str:
    if not node.is_ready:
        return "node(s) were not ready"
    if node.spec.unschedulable:
        return "node(s) were unschedulable"
    for taint in node.spec.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(
            _tolerates(one, taint) for one in pod.spec.tolerations
        ):
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    if not pod.spec.node_selector.items() <= node.metadata.labels.items():
        return "node(s) didn't match Pod's node affinity/selector"
    if fit.pods >= int(node.status.allocatable.get("pods", "110")):
        return "Too many pods"
    for name, amount in wanted.items():
        has = quantity.parse(node.status.allocatable.get(name, "0")) or Decimal(0)
        if amount > 0 and fit.used.get(name, Decimal(0)) + amount > has:
            return f"Insufficient {name}"
    return ""


def _tolerates(toleration: core.Toleration, taint: core.Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or (bool(toleration.key) and toleration.value == taint.value)


class Scheduler:
    """Watches unbound pods and binds them. Loads are counted from the pod cache plus bindings not yet seen there."""

    def __init__(self, client: Client, pods: Cache[core.Pod], nodes: Cache[core.Node]) -> None:
        self._client = client
        self._pods = pods
        self._nodes = nodes
        self._load: dict[str, Fit] = {}
        self._placed: dict[str, tuple[str, dict[str, Decimal]]] = {}
        pods.on_change(lambda change: self._count(change.key, change.new))
        self.controller = Controller("simulated-scheduler", self._reconcile, workers=8)
        self.controller.watches(pods).watches(nodes, self._waiting_pods)

    def _count(self, key: str, pod: core.Pod | None) -> None:
        before = self._placed.pop(key, None)
        if before is not None:
            self._add(before[0], before[1], -1)
        if pod is not None and pod.spec.node_name and not pod.is_finished:
            wanted = requests_of(pod)
            self._placed[key] = (pod.spec.node_name, wanted)
            self._add(pod.spec.node_name, wanted, 1)

    def _add(self, node: str, wanted: Mapping[str, Decimal], sign: int) -> None:
        fit = self._load.setdefault(node, Fit())
        fit.pods += sign
        for name, amount in wanted.items():
            fit.used[name] = fit.used.get(name, Decimal(0)) + sign * amount

    def _waiting_pods(self, change: object) -> list[str]:
        return [objects.key_of(pod) for pod in self._pods if _is_waiting(pod)]

    async def _reconcile(self, key: str) -> Result | None:
        pod = self._pods.get(key)
        if pod is None or not _is_waiting(pod) or key in self._placed:
            return None
        node, refusals = choose(pod, self._nodes, self._load)
        if not node:
            why = ", ".join(f"{count} {text}" for text, count in sorted(refusals.items()))
            log.v(2).info("scheduler.no_node", pod=key, reason=f"0/{len(self._nodes)} nodes are available: {why}")
            return Result(_NOT_FOUND_S)
        wanted = requests_of(pod)
        # Counted before the answer, so that pods scheduled at the same time do not all choose this node.
        self._placed[key] = (node, wanted)
        self._add(node, wanted, 1)
        try:
            await self._bind(pod, node)
        except errors.BedplateError:
            if self._placed.pop(key, None) is not None:
                self._add(node, wanted, -1)
            raise
        return None

    async def _bind(self, pod: core.Pod, node: str) -> None:
        metadata = {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        await self._client.subresource(
            "POST", PODS, pod.metadata.name, "binding", pod.metadata.namespace, model=dict, body=body
        )


def _is_waiting(pod: core.Pod) -> bool:
    return (
        not pod.spec.node_name
        and not pod.metadata.is_deleting
        and not pod.is_finished
        and pod.spec.scheduler_name in ("", NAME)
    )
