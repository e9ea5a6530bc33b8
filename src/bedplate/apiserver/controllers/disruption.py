"""PodDisruptionBudgets: how many pods may be evicted now.

In: budgets and pods. Out: the budgets' status, which the `eviction` subresource reads and spends. `plan` is pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bedplate.apiserver import hooks, selectors, services
from bedplate.apiserver.access import subjects
from bedplate.apiserver.controllers.loop import Loop, absent_is_fine, own_key
from bedplate.apiserver.controllers.replicasets import is_ready, portion
from bedplate.apiserver.state import bodies
from bedplate.core import clock as clocks

__all__ = ["plan", "run"]

BUDGETS = ("policy", "poddisruptionbudgets")


async def run(parts: services.Services) -> None:
    """Run until cancelled."""
    client = parts.client.acting_as(subjects.LOOPBACK, "disruption-controller")

    async def reconcile(key: tuple[str, str]) -> None:
        budget = client.get(*BUDGETS, *key)
        if budget is None:
            return
        state = plan(budget, client.list("", "pods", key[0]), clocks.rfc3339(parts.clock.now()))
        if (budget.get("status") or {}) != state:
            await absent_is_fine(client.update(*BUDGETS, budget | {"status": state}, subresource="status"))

    loop: Loop[tuple[str, str]] = Loop("disruption", client, reconcile)

    def of_pod(change: bodies.Change) -> Iterable[tuple[str, str]]:
        return [(change.namespace, budget["metadata"]["name"]) for budget in client.list(*BUDGETS, change.namespace)]

    await loop.run((*BUDGETS, own_key), ("", "pods", of_pod))


def plan(budget: hooks.Object, pods: Iterable[hooks.Object], now: str) -> dict[str, Any]:
    """The status a budget should have. Pods already being evicted no longer count as healthy."""
    spec = budget["spec"]
    selects = selectors.of_label_selector(spec.get("selector") or {})
    mine = [pod for pod in pods if selects(pod["metadata"].get("labels") or {})]
    alive = [pod for pod in mine if not pod["metadata"].get("deletionTimestamp")]
    expected = len(alive)
    if spec.get("maxUnavailable") is not None:
        needed = expected - portion(spec["maxUnavailable"], expected)
    else:
        needed = portion(spec.get("minAvailable", 1), expected)
    names = {pod["metadata"]["name"] for pod in alive}
    before = budget.get("status") or {}
    disrupted = {name: since for name, since in (before.get("disruptedPods") or {}).items() if name in names}
    healthy = sum(is_ready(pod) and pod["metadata"]["name"] not in disrupted for pod in alive)
    allowed = max(0, healthy - needed) if expected else 0
    condition = {
        "type": "DisruptionAllowed",
        "status": "True" if allowed else "False",
        "reason": "SufficientPods" if allowed else "InsufficientPods",
        "message": "",
        "observedGeneration": budget["metadata"].get("generation", 1),
        "lastTransitionTime": now,
    }
    for previous in before.get("conditions") or ():
        if previous["type"] == condition["type"] and previous["status"] == condition["status"]:
            condition["lastTransitionTime"] = previous["lastTransitionTime"]
    state: dict[str, Any] = {
        "currentHealthy": healthy,
        "desiredHealthy": max(0, needed),
        "disruptionsAllowed": allowed,
        "expectedPods": expected,
        "observedGeneration": budget["metadata"].get("generation", 1),
        "conditions": [condition],
    }
    return state | ({"disruptedPods": disrupted} if disrupted else {})
