"""Wiring of simulated nodes: one manager with the caches, the kubelets and the scheduler.

In: a client configuration and what the fleet should look like. Out: a `Manager` to run, and the parts a view may look
at.
"""

from __future__ import annotations

from dataclasses import dataclass

from bedplate.api import core, resources
from bedplate.kube.client import Client
from bedplate.runtime.cache import Cache
from bedplate.runtime.events import EventRecorder
from bedplate.runtime.manager import Manager
from bedplate.sim import kubelets, machines, scheduler

__all__ = ["Fleet", "assemble"]


@dataclass(frozen=True, slots=True)
class Fleet:
    """A wired fleet."""

    manager: Manager
    kubelets: kubelets.Fleet
    nodes: Cache[core.Node]
    pods: Cache[core.Pod]


def assemble(
    client: Client,
    count: int,
    *,
    prefix: str = "node",
    shape: machines.Shape | None = None,
    heartbeat_s: float = machines.HEARTBEAT_S,
    schedules: bool = True,
    digits: int = 0,
) -> Fleet:
    """Put caches, kubelets and (unless a real scheduler runs) the minimal scheduler together."""
    recorder = EventRecorder(client, scheduler.NAME) if schedules else None
    manager = Manager(client, recorder=recorder)
    nodes, pods = manager.cache(resources.NODES), manager.cache(resources.PODS)
    fleet = kubelets.Fleet(
        client, count, pods, nodes, prefix=prefix, shape=shape, heartbeat_s=heartbeat_s, digits=digits
    )
    manager.serve(fleet.run)
    manager.add(fleet.controller)
    if schedules:
        manager.add(scheduler.Scheduler(client, pods, nodes, recorder=recorder).controller)
    return Fleet(manager, fleet, nodes, pods)
