"""Simulated kubelets: one fleet of machines, each a Node that registers, beats and runs the pods bound to it.

In: a client for any API server, real or embedded, and how many machines of which shape. Out: Nodes, Leases, pod
statuses. One process stands for all of them, with one watch on pods and one on nodes, so thousands exist in seconds.
`fail` and `heal` make machines NotReady and Ready again; `silence` stops a machine's heartbeat as a cut cable would.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from bedplate.api import core, resources
from bedplate.api.objects import split_key
from bedplate.core import clock, errors, logging
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client
from bedplate.kube.options import PatchType
from bedplate.runtime.cache import Cache, Change
from bedplate.runtime.controller import Controller, Result
from bedplate.sim import machines

__all__ = ["Fleet"]

log = logging.get_logger("sim.kubelets")
AT_ONCE = 24
_STATUS_PERIOD_S = 300.0


class Fleet:
    """A number of simulated kubelets."""

    def __init__(
        self,
        client: Client,
        count: int,
        pods: Cache[core.Pod],
        nodes: Cache[core.Node],
        *,
        prefix: str = "node",
        shape: machines.Shape | None = None,
        heartbeat_s: float = machines.HEARTBEAT_S,
        time: clock.Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        width = max(3, len(str(count)))
        look = shape if shape is not None else machines.Shape()
        named = [machines.Machine(f"{prefix}{index + 1:0{width}d}", index, look) for index in range(count)]
        self.machines = {machine.name: machine for machine in named}
        self._client = client
        self._pods = pods
        self._nodes = nodes
        self._heartbeat_s = heartbeat_s
        self._time = time if time is not None else clock.SystemClock()
        self._rng = rng if rng is not None else random.Random()
        self._silent: set[str] = set()
        self._failed: dict[str, datetime] = {}
        self._addresses: dict[str, dict[str, int]] = {}
        self.registered = asyncio.Event()
        self.controller = Controller("simulated-kubelets", self._reconcile, workers=AT_ONCE)
        self.controller.watches(pods, self._own_pods)

    # What a test or a person may do to machines

    async def fail(self, name: str) -> None:
        """Report the machine as NotReady."""
        self._failed[name] = self._time.now()
        await self._report(self.machines[name])

    async def heal(self, name: str) -> None:
        """Report the machine as Ready again, and let it beat."""
        self._failed.pop(name, None)
        self._silent.discard(name)
        await self._report(self.machines[name])

    def silence(self, name: str) -> None:
        """No heartbeat any more: what others see when a machine loses power."""
        self._silent.add(name)

    # Running

    async def run(self) -> None:
        """Register all machines, then keep their heartbeats up until cancelled."""
        await self._each(self.machines.values(), self._register)
        self.registered.set()
        log.info("sim.registered", nodes=len(self.machines))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._beat())
            tasks.create_task(self._report_all())

    async def _each(self, group: Iterable[machines.Machine], action: Any) -> None:
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(machine: machines.Machine) -> None:
            async with slots:
                await self._persist(action, machine)

        async with asyncio.TaskGroup() as tasks:
            for machine in group:
                tasks.create_task(one(machine))

    async def _persist(self, action: Any, machine: machines.Machine) -> None:
        """Try until it works or is refused; a server that restarts must not end the fleet."""
        pause = 0.2
        while True:
            try:
                await action(machine)
                return
            except errors.Terminal as err:
                log.warning("sim.refused", node=machine.name, error=str(err))
                return
            except errors.Retryable as err:
                log.v(2).info("sim.retry", node=machine.name, error=str(err))
                await self._time.sleep(pause * (1 + self._rng.random()))
                pause = min(pause * 2, 10.0)

    async def _register(self, machine: machines.Machine) -> None:
        now = self._time.now()
        try:
            await self._client.create(resources.NODES.raw(), machines.node(machine, now))
        except kube_errors.AlreadyExists:
            await self._report(machine)
        await self._renew(machine)

    async def _report(self, machine: machines.Machine) -> None:
        now = self._time.now()
        failed_since = self._failed.get(machine.name)
        status = machines.node_status(machine, now, is_ready=failed_since is None, since=failed_since)
        if machine.shape.is_uninitialized:
            # The cloud controller owns the addresses of such a node once it is initialised.
            status.pop("addresses")
        known = self._nodes.get(machine.name)
        for condition in status["conditions"]:
            before = known.condition(condition["type"]) if known is not None else None
            if before is not None and before.status == condition["status"] and before.last_transition_time is not None:
                condition["lastTransitionTime"] = clock.rfc3339(before.last_transition_time)
        patch = {"status": status}
        ref = resources.NODES.raw()
        await self._client.patch(ref, machine.name, patch, type=PatchType.STRATEGIC, subresource="status")

    async def _renew(self, machine: machines.Machine) -> None:
        now = self._time.now()
        spec = machines.lease(machine, now, "")["spec"]
        ref = resources.LEASES.raw()
        try:
            await self._client.patch(ref, machine.name, {"spec": spec}, machines.LEASE_NAMESPACE)
        except kube_errors.NotFound:
            node = await self._client.get(resources.NODES, machine.name)
            body = machines.lease(machine, now, node.metadata.uid)
            await self._client.create(ref, body, machines.LEASE_NAMESPACE)

    async def _beat(self) -> None:
        """Renew every lease once per period, spread evenly over it."""
        while True:
            started = self._time.monotonic()
            everyone = list(self.machines.values())
            for position in range(0, len(everyone), AT_ONCE):
                alive = [one for one in everyone[position : position + AT_ONCE] if one.name not in self._silent]
                await self._each(alive, self._renew)
                due = started + self._heartbeat_s * (position + AT_ONCE) / max(len(everyone), 1)
                await self._time.sleep(max(0.0, min(due, started + self._heartbeat_s) - self._time.monotonic()))

    async def _report_all(self) -> None:
        while True:
            await self._time.sleep(_STATUS_PERIOD_S)
            await self._each([one for one in self.machines.values() if one.name not in self._silent], self._report)

    # Pods

    def _own_pods(self, change: Change[core.Pod]) -> list[str]:
        pod = change.new if change.new is not None else change.old
        if pod is None or pod.spec.node_name not in self.machines:
            return []
        if change.new is None:
            self._addresses.get(pod.spec.node_name, {}).pop(change.key, None)
            return []
        return [change.key]

    async def _reconcile(self, key: str) -> Result | None:
        pod = self._pods.get(key)
        if pod is None or pod.spec.node_name in self._silent:
            return None
        namespace, name = split_key(key)
        if pod.metadata.is_deleting:
            # A simulated container stops at once: the grace period need not be waited for.
            try:
                await self._client.delete(resources.PODS, name, namespace, uid=pod.metadata.uid, grace_period_s=0)
            except (kube_errors.NotFound, kube_errors.Conflict):
                log.v(4).info("sim.pod_already_gone", pod=key)
            return None
        if pod.status.phase in ("", "Pending"):
            status = self._running(pod, key)
            await self._client.patch(resources.PODS.raw(), name, {"status": status}, namespace, subresource="status")
        return None

    def _running(self, pod: core.Pod, key: str) -> dict[str, Any]:
        """The status of a pod that runs, or of one that is meant to end, and has."""
        machine = self.machines[pod.spec.node_name]
        now = clock.rfc3339(self._time.now())
        ends = any(owner.kind == "Job" for owner in pod.metadata.owner_references)
        address = machine.address if pod.spec.host_network else self._address(machine, key)
        kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
        unready = ("Ready", "ContainersReady") if ends else ()
        conditions = [
            {"type": kind, "status": "False" if kind in unready else "True", "lastTransitionTime": now}
            for kind in kinds
        ]
        started = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}}
        state = started if ends else {"running": {"startedAt": now}}
        containers = [
            {
                "name": one.name,
                "image": one.image,
                "imageID": "",
                "ready": not ends,
                "started": not ends,
                "restartCount": 0,
                "state": state,
            }
            for one in pod.spec.containers or ()
        ]
        return {
            "phase": "Succeeded" if ends else "Running",
            "hostIP": machine.address,
            "hostIPs": [{"ip": machine.address}],
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": now,
            "conditions": conditions,
            "containerStatuses": containers,
        }

    def _address(self, machine: machines.Machine, key: str) -> str:
        """The pod's address in the machine's range: the lowest that no other pod there has."""
        taken = self._addresses.setdefault(machine.name, {})
        if key not in taken:
            used = set(taken.values())
            taken[key] = next(number for number in range(2, 65536) if number not in used)
        return str(machine.pod_range.network_address + taken[key])
