"""Draining a node that stays in its cluster: no new pods, and those that can run elsewhere leave it.

In: a node, and what may be lost. Out: `drain`, which carries out the plan of `head/clusters/draining.py`, and returns
when the pods are gone: a refusal comes before anything is changed, and names the flag that continues. A budget that
does not let a pod go is waited for, then reported with the pod.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bedplate.api.resources import NODES, RawObject
from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.head.clusters.draining import NOTHING, Consent, Drain, evict, name_of, plan, pods_of
from bedplate.kube import Client

__all__ = ["cordon", "drain", "uncordon"]

_MANAGER = "cm-kubernetes-setup"
_POLL_S = 0.5
_TIMEOUT_S = 300.0


async def cordon(client: Client, node: str) -> None:
    """Let no new pods come to a node."""
    await client.patch(NODES, node, {"spec": {"unschedulable": True}}, field_manager=_MANAGER)


async def uncordon(client: Client, node: str) -> None:
    """Let pods come to a node again."""
    await client.patch(NODES, node, {"spec": {"unschedulable": None}}, field_manager=_MANAGER)


async def drain(
    client: Client,
    node: str,
    clock: Clock,
    *,
    consent: Consent = NOTHING,
    timeout_s: float = _TIMEOUT_S,
    say: Callable[[str], None] = lambda text: None,
) -> Drain:
    """Cordon a node, and have its pods leave it; returns when they are gone. Raises `Invalid` for pods that must not be
    lost, before anything is changed, and `Unavailable` with the pods that are still there when the time is over."""
    going = plan(await pods_of(client, node), consent)
    if going.refused:
        flags = sorted({each.flag for each in going.refused})
        raise errors.Invalid(
            f"{node} cannot be drained, and was left as it is",
            hint=f"move what the pods keep elsewhere, or give {' and '.join(flags)}",
            problems=[str(each) for each in going.refused],
        )
    await cordon(client, node)
    # What came between the look and the cordon leaves as well, or refuses.
    going = plan(await pods_of(client, node), consent)
    if going.refused:
        raise errors.Invalid(
            f"{node} cannot be drained: pods came to it meanwhile",
            hint="try again",
            problems=[str(each) for each in going.refused],
        )
    for name in going.ignored:
        say(f"{node}: {name} stays")
    left = {pod["metadata"]["uid"]: pod for pod in (*going.evicted, *going.ending)}
    asked = {pod["metadata"]["uid"] for pod in going.ending}
    waits: dict[str, str] = {}
    end_s = clock.monotonic() + timeout_s
    while left:
        for uid, pod in list(left.items()):
            if uid not in asked:
                why = await evict(client, pod, consent)
                if why:
                    waits[uid] = why
                else:
                    asked.add(uid)
                    waits.pop(uid, None)
                    say(f"{node}: {name_of(pod)} is {'deleted' if consent.budgets else 'evicted'}")
        there = {pod["metadata"]["uid"] for pod in await pods_of(client, node)}
        left = {uid: pod for uid, pod in left.items() if uid in there}
        if left and clock.monotonic() > end_s:
            raise _late(node, left, waits, timeout_s)
        if left:
            await clock.sleep(_POLL_S)
    return going


def _late(node: str, left: Mapping[str, RawObject], waits: Mapping[str, str], timeout_s: float) -> errors.BedplateError:
    told = [f"pod {name_of(pod)}: {waits.get(uid, 'was asked to end, and has not ended')}" for uid, pod in left.items()]
    is_budget = any(uid in waits for uid in left)
    hint = "see kubectl get poddisruptionbudgets -A and have more pods of that kind run, or give --disable-eviction"
    return errors.Unavailable(
        f"{node} is not drained after {timeout_s:g} s, and stays cordoned: {'; '.join(told)}",
        hint=f"{hint}; then resume" if is_budget else "see kubectl describe pod, then resume",
    )
