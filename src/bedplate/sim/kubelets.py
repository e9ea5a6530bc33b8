"""Simulated kubelets: one fleet of machines, each a Node that registers, beats and runs the pods bound to it.

In: a client for any API server, real or embedded, and how many machines of which shape. Out: Nodes, Leases, pod
statuses. One process stands for all of them, with one watch on pods and one on nodes, so thousands exist in seconds.
`fail` and `heal` make machines NotReady and Ready again; `silence` stops a machine's heartbeat as a cut cable would.
Pods may get further networks from `networks`; a pod waits as long as those cannot be had.
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from bedplate.api import core, resources
from bedplate.api.identity import key_of, split_key
from bedplate.core import clock, errors, logging
from bedplate.core.tasks import TaskGroup
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client
from bedplate.kube.options import PatchType
from bedplate.runtime.cache import Cache, Change
from bedplate.runtime.controller import Controller, Result
from bedplate.sim import machines, podstatus
from bedplate.sim.podstatus import Addresses

__all__ = ["Fleet", "Networks"]

log = logging.get_logger("sim.kubelets")
AT_ONCE = 24
_STATUS_PERIOD_S = 300.0
Action = Callable[[machines.Machine], Awaitable[None]]


class Networks(Protocol):
    """Gives pods interfaces besides their first one, as a chain of CNI plugins does before a pod starts."""

    async def attach(self, pod: core.Pod) -> Mapping[str, str]:
        """Annotations that the pod gets; none when it asks for no network. May be asked again for the same pod.

        Raises an error of the tree when the pod cannot start now.
        """
        ...


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
        digits: int = 0,
        time: clock.Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        width = digits or max(3, len(str(count)))
        look = shape if shape is not None else machines.Shape()
        if count > look.most_machines:
            raise errors.Invalid(f"{count} machines do not fit into {look.network} with pods in {look.pod_network}")
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
        self._addresses = Addresses()
        self.registered = asyncio.Event()
        self.networks: Networks | None = None
        """Who gives pods more networks; to be set before the fleet runs."""
        self.controller = Controller("simulated-kubelets", self._reconcile, workers=AT_ONCE)
        self.controller.watches(pods, self._own_pods)

    # What a test or a person may do to machines

    async def fail(self, name: str) -> None:
        """Report the machine as NotReady."""
        self._failed[name] = self._time.now()
        await self._report(self.machines[name])

    async def heal(self, name: str) -> None:
        """The machine is back: it registers if its Node was deleted, is Ready, beats, and sees to its pods."""
        self._failed.pop(name, None)
        self._silent.discard(name)
        await self._register(self.machines[name])
        for pod in self._pods:
            if pod.spec.node_name == name:
                self.controller.queue.add(key_of(pod))

    async def resize(self, name: str, pods: int) -> None:
        """The machine's kubelet takes so many pods from now on, and says so."""
        machine = self.machines[name]
        if machine.shape.pods != pods:
            self.machines[name] = replace(machine, shape=replace(machine.shape, pods=pods))
            if name not in self._silent:
                await self._report(self.machines[name])

    def silence(self, name: str) -> None:
        """No heartbeat any more, and nothing done for its pods: what others see when a machine loses power."""
        self._silent.add(name)

    async def delete_nodes(self) -> None:
        """Delete the Node objects of all machines, each tried once."""
        await self._each(self.machines.values(), self._once(self._delete))

    # Running

    async def run(self) -> None:
        """Register all machines, then keep their heartbeats up until cancelled. Raises when a Node is refused."""
        await self._each(self.machines.values(), self._insistently(self._register))
        self.registered.set()
        log.info("sim.registered", nodes=len(self.machines))
        async with TaskGroup() as tasks:
            tasks.create_task(self._beat())
            tasks.create_task(self._report_all())

    @staticmethod
    async def _each(group: Iterable[machines.Machine], action: Action) -> None:
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(machine: machines.Machine) -> None:
            async with slots:
                await action(machine)

        async with TaskGroup() as tasks:
            for machine in group:
                tasks.create_task(one(machine))

    def _once(self, action: Action) -> Action:
        """The action, tried once: what is repeated every few seconds must not wait for one machine."""

        async def attempt(machine: machines.Machine) -> None:
            try:
                await action(machine)
            except errors.BedplateError as err:
                _complain(machine, err)

        return attempt

    def _insistently(self, action: Action) -> Action:
        """The action until it works; a server that restarts or does not know us yet is waited for. Raises the rest."""

        async def insist(machine: machines.Machine) -> None:
            pause = 0.2
            while True:
                try:
                    await action(machine)
                    return
                except (errors.Retryable, errors.Denied) as err:
                    _complain(machine, err)
                    await self._time.sleep(pause * (1 + self._rng.random()))
                    pause = min(pause * 2, 10.0)

        return insist

    async def _register(self, machine: machines.Machine) -> None:
        now = self._time.now()
        try:
            await self._client.create(resources.NODES.raw(), machines.node(machine, now))
        except kube_errors.AlreadyExists:
            await self._report(machine)
        await self._once(self._renew)(machine)

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

    async def _delete(self, machine: machines.Machine) -> None:
        await self._client.delete(resources.NODES, machine.name)

    async def _beat(self) -> None:
        """Renew every lease once per period, spread evenly over it."""
        while True:
            started = self._time.monotonic()
            everyone = list(self.machines.values())
            # An empty fleet has one round as well, so that it waits like the others.
            for position in range(0, max(len(everyone), 1), AT_ONCE):
                alive = [
                    machine for machine in everyone[position : position + AT_ONCE] if machine.name not in self._silent
                ]
                await self._each(alive, self._once(self._renew))
                due = started + self._heartbeat_s * (position + AT_ONCE) / max(len(everyone), 1)
                await self._time.sleep(max(0.0, min(due, started + self._heartbeat_s) - self._time.monotonic()))

    async def _report_all(self) -> None:
        while True:
            await self._time.sleep(_STATUS_PERIOD_S)
            alive = [machine for machine in self.machines.values() if machine.name not in self._silent]
            await self._each(alive, self._once(self._insistently(self._report)))

    # Pods

    def _own_pods(self, change: Change[core.Pod]) -> list[str]:
        pod = change.new if change.new is not None else change.old
        if pod is None or pod.spec.node_name not in self.machines:
            return []
        if change.new is None or pod.is_finished:
            self._addresses.free(change.key)
        elif pod.status.pod_ip and not pod.spec.host_network:
            self._addresses.learn(change.key, pod.status.pod_ip)
        return [] if change.new is None else [change.key]

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
            machine = self.machines[pod.spec.node_name]
            if self.networks is not None and (annotations := await self.networks.attach(pod)):
                body = {"metadata": {"uid": pod.metadata.uid, "annotations": dict(annotations)}}
                await self._client.patch(resources.PODS.raw(), name, body, namespace)
            address = machine.address if pod.spec.host_network else self._addresses.take(key, self._range(machine))
            status = podstatus.started(pod, machine.address, address, self._time.now())
            await self._client.patch(resources.PODS.raw(), name, {"status": status}, namespace, subresource="status")
        return None

    def _range(self, machine: machines.Machine) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        """Where the machine's pods get their addresses: as its Node says, else from the machine's own range."""
        node = self._nodes.get(machine.name)
        return (
            ipaddress.ip_network(node.spec.pod_cidr) if node is not None and node.spec.pod_cidr else machine.pod_range
        )


def _complain(machine: machines.Machine, err: errors.BedplateError) -> None:
    # A Node that a user deleted stays deleted, and an outage passes: neither is worth a line for every machine.
    level = log.v(2) if isinstance(err, errors.NotFound | errors.Retryable) else log
    level.warning("sim.refused", node=machine.name, error=str(err))
