"""A minimal scheduler: binds pending pods to nodes that can take them.

In: pods and nodes from caches. Out: bindings; for a pod that no node can take, a condition and an event that say why.
`choose` is pure. It knows readiness, taints and tolerations, node selectors, resource requests and the number of pods;
it spreads by load. Not affinity, topology or preemption: for those run the real one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from bedplate.api import core, meta, quantity
from bedplate.api.resources import PODS
from bedplate.core import clock, errors, logging
from bedplate.kube import subresources
from bedplate.kube.client import Client
from bedplate.kube.options import PatchType
from bedplate.runtime import events
from bedplate.runtime.cache import Cache, Change
from bedplate.runtime.controller import Controller, Result

__all__ = ["NAME", "Fit", "Scheduler", "choose", "requests_of"]

NAME = "default-scheduler"
log = logging.get_logger("sim.scheduler")
# Changes of nodes and pods bring a waiting pod back; this only covers what was overlooked.
_LOOK_AGAIN_S = 60.0


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
    requests = requests_of(pod)
    refusals: dict[str, int] = {}
    best, least = "", (0, "")
    for node in nodes:
        name = node.metadata.name
        fit = load.get(name) or Fit()
        why = _refusal(pod, requests, node, fit)
        if why:
            refusals[why] = refusals.get(why, 0) + 1
        elif not best or (fit.pods, name) < least:
            best, least = name, (fit.pods, name)
    return best, refusals


def _refusal(pod: core.Pod, requests: Mapping[str, Decimal], node: core.Node, fit: Fit) -> str:
    if not node.is_ready:
        return "node(s) were not ready"
    if node.spec.unschedulable:
        return "node(s) were unschedulable"
    for taint in node.spec.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(
            _tolerates(toleration, taint) for toleration in pod.spec.tolerations
        ):
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    if not pod.spec.node_selector.items() <= node.metadata.labels.items():
        return "node(s) didn't match Pod's node affinity/selector"
    if fit.pods >= (quantity.parse(node.status.allocatable.get("pods", "110")) or 0):
        return "Too many pods"
    for name, amount in requests.items():
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


@dataclass(frozen=True, slots=True, eq=False)
class _Placement:
    node: str
    wanted: Mapping[str, Decimal]


class Scheduler:
    """Watches unbound pods and binds them. Loads are counted from the pod cache plus bindings not yet seen there."""

    def __init__(
        self,
        client: Client,
        pods: Cache[core.Pod],
        nodes: Cache[core.Node],
        *,
        recorder: events.EventRecorder | None = None,
        time: clock.Clock | None = None,
    ) -> None:
        self._client = client
        self._pods = pods
        self._nodes = nodes
        self._recorder = recorder
        self._time = time if time is not None else clock.SystemClock()
        self._load: dict[str, Fit] = {}
        self._placed: dict[str, _Placement] = {}
        self._waiting: set[str] = set()
        pods.on_change(lambda change: self._see(change.key, change.new))
        self.controller = Controller("simulated-scheduler", self._reconcile, workers=8, time=self._time)
        self.controller.watches(pods, self._after_pod).watches(nodes, self._after_node)

    def _see(self, key: str, pod: core.Pod | None) -> None:
        """Count a pod where it is, and know it if it waits."""
        self._withdraw(key)
        self._waiting.discard(key)
        if pod is None or pod.is_finished:
            return
        if pod.spec.node_name:
            self._place(key, _Placement(pod.spec.node_name, requests_of(pod)))
        elif _is_waiting(pod):
            self._waiting.add(key)

    def _after_pod(self, change: Change[core.Pod]) -> list[str]:
        """The pod itself; and all that wait when it left a node."""
        is_over = change.new is None or change.new.is_finished
        left = is_over and change.old is not None and bool(change.old.spec.node_name)
        return [change.key, *self._waiting] if left else [change.key]

    def _after_node(self, change: Change[core.Node]) -> list[str]:
        return list(self._waiting) if _may_do_more(change.old, change.new) else []

    def _place(self, key: str, placement: _Placement) -> None:
        self._placed[key] = placement
        self._add(placement, 1)

    def _withdraw(self, key: str) -> None:
        placement = self._placed.pop(key, None)
        if placement is not None:
            self._add(placement, -1)

    def _add(self, placement: _Placement, sign: int) -> None:
        fit = self._load.setdefault(placement.node, Fit())
        fit.pods += sign
        for name, amount in placement.wanted.items():
            fit.used[name] = fit.used.get(name, Decimal(0)) + sign * amount

    async def _reconcile(self, key: str) -> Result | None:
        pod = self._pods.get(key)
        if pod is None or not _is_waiting(pod) or key in self._placed:
            return None
        node, refusals = choose(pod, self._nodes, self._load)
        if not node:
            await self._explain(pod, refusals)
            return Result(_LOOK_AGAIN_S)
        placement = _Placement(node, requests_of(pod))
        # Counted before the answer, so that pods scheduled at the same time do not all choose this node.
        self._place(key, placement)
        try:
            await subresources.bind_pod(
                self._client, pod.metadata.name, pod.metadata.namespace, node, uid=pod.metadata.uid
            )
        except errors.BedplateError:
            # The cache may have told meanwhile where the pod really is: only our own guess is taken back.
            if self._placed.get(key) is placement:
                self._withdraw(key)
            raise
        return None

    async def _explain(self, pod: core.Pod, refusals: Mapping[str, int]) -> None:
        """Say on the pod why it waits; once, as long as the reason stays the same."""
        why = ", ".join(f"{count} {text}" for text, count in sorted(refusals.items())) or "there are none"
        message = f"0/{len(self._nodes)} nodes are available: {why}."
        before = meta.find_condition(pod.status.conditions, "PodScheduled")
        if before is not None and before.status == "False" and before.message == message:
            return
        log.v(2).info("scheduler.no_node", pod=f"{pod.metadata.namespace}/{pod.metadata.name}", reason=message)
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        condition["lastTransitionTime"] = clock.rfc3339(self._time.now())
        change = {"metadata": {"uid": pod.metadata.uid}, "status": {"phase": "Pending", "conditions": [condition]}}
        name, namespace = pod.metadata.name, pod.metadata.namespace
        await self._client.patch(PODS.raw(), name, change, namespace, type=PatchType.STRATEGIC, subresource="status")
        if self._recorder is not None:
            self._recorder.event(events.reference(PODS, pod), events.WARNING, "FailedScheduling", message)


def _may_do_more(old: core.Node | None, new: core.Node | None) -> bool:
    """Whether a change of a node can matter to pods that wait. Most changes are heartbeats, and do not."""
    return old is None or new is None or _traits(old) != _traits(new)


def _traits(node: core.Node) -> tuple[object, ...]:
    return node.is_ready, node.spec.unschedulable, node.spec.taints, node.metadata.labels, node.status.allocatable


def _is_waiting(pod: core.Pod) -> bool:
    return (
        not pod.spec.node_name
        and not pod.metadata.is_deleting
        and not pod.is_finished
        and pod.spec.scheduler_name in ("", NAME)
    )
