"""A simulated BMM site under a fleet of simulated kubelets: when a machine stops, its kubelet falls silent.

In: a fleet, a client, the cloud's schedule, and which kubelets run where machines have agents. Out: machines and nodes
that stay in step: a stopped or terminated machine, or one without its kubelet, makes its node NotReady, one that is
back registers it again, a replaced one only after the old Node object is gone. What becomes of the Node objects
meanwhile is the cloud controller manager's work, not done here.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path

import yaml

from bedplate.api import core, names, resources
from bedplate.core import clock, errors, logging
from bedplate.core.tasks import TaskGroup
from bedplate.kube.client import Client
from bedplate.runtime.cache import Cache
from bedplate.sim import kubelets
from bedplate.sim.clouds import BmmCloud, BmmMachine
from bedplate.sim.clouds.schedule import Churn, Schedule
from bedplate.sim.machines import Machine

__all__ = ["CHURN", "LEASE", "RUNNING", "Site", "write_config"]

log = logging.get_logger("up.site")
CHURN = Churn(stop_every_s=45.0, stopped_for_s=25.0, terminate_every_s=90.0, replaced_after_s=30.0)
# As in the manifest of the manager for this cloud.
LEASE = "nvidia-bmm-cloud-controller-manager"
RUNNING = "Ready"
LOOK_EVERY_S = 0.5
MINUTE_S = 60.0


class Site:
    """Machines of the cloud and kubelets of the fleet, kept in step."""

    def __init__(
        self, cloud: BmmCloud, fleet: kubelets.Fleet, nodes: Cache[core.Node], *, churn: Churn | None, time: clock.Clock
    ) -> None:
        self.cloud = cloud
        self._fleet = fleet
        self._nodes = nodes
        self._schedule = Schedule(cloud, churn) if churn is not None else None
        self._time = time
        self._down: set[str] = set()
        self._without: set[str] = set()
        self._changed: set[str] = set()
        self._calls = deque([(time.monotonic(), 0)])
        for machine in fleet.machines.values():
            # The same machine has the same ID at every start, so that the Nodes of an earlier run fit.
            cloud.add(machine.name, addresses=[machine.address], identifier=machine.system_uuid)
        cloud.listeners.append(lambda change: self._changed.add(change.machine.name))

    @property
    def running(self) -> int:
        """Machines that run."""
        return sum(machine.state == RUNNING for machine in self.cloud.all())

    @property
    def calls_per_minute(self) -> int:
        """Calls of the cloud's API in the last minute."""
        return self.cloud.journal.count() - self._calls[0][1]

    @property
    def machines(self) -> Mapping[str, Machine]:
        """The machines that are nodes here."""
        return self._fleet.machines

    def state(self, name: str) -> str:
        """What the cloud calls a machine's state; empty for one that it does not have."""
        try:
            return self.cloud.get(name).state
        except errors.NotFound:
            return ""

    def kubelet(self, name: str, *, runs: bool) -> None:
        """Whether the kubelet of a machine runs."""
        (self._without.discard if runs else self._without.add)(name)
        self._changed.add(name)

    async def resize(self, name: str, pods: int) -> None:
        """Let a node take so many pods."""
        try:
            await self._fleet.resize(name, pods)
        except errors.BedplateError as err:
            log.v(2).info("up.node_not_resized", node=name, error=str(err))

    async def forget_strangers(self, client: Client) -> None:
        """Delete what an earlier run left: Nodes of machines that have been replaced since, and its leader's Lease.

        The caller holds the data folder, so there is no other leader.
        """
        known = {machine.name: machine.provider_id for machine in self.cloud.all()}
        for node in (await client.list(resources.NODES)).items:
            if node.spec.provider_id and known.get(node.name) != node.spec.provider_id:
                await client.delete(resources.NODES, node.name)
        try:
            await client.delete(resources.LEASES, LEASE, names.NAMESPACE_SYSTEM)
        except errors.NotFound:
            log.v(4).info("up.no_lease")

    async def run(self) -> None:
        """Until cancelled."""
        async with TaskGroup() as tasks:
            if self._schedule is not None:
                tasks.create_task(self._schedule.run())
            tasks.create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            self._count()
            self.cloud.agenda.run()
            if touched := (self._changed | self._down) & self._fleet.machines.keys():
                self._changed.clear()
                machines = {machine.name: machine for machine in self.cloud.all() if machine.name in touched}
                for name in sorted(touched):
                    await self._compare(name, machines.get(name))
            await self._time.sleep(LOOK_EVERY_S)

    async def _compare(self, name: str, machine: BmmMachine | None) -> None:
        if machine is None or machine.state != RUNNING or name in self._without:
            if name not in self._down:
                await self._lose(name)
        elif name in self._down:
            await self._find(name, machine.provider_id)

    async def _lose(self, name: str) -> None:
        self._down.add(name)
        self._fleet.silence(name)
        try:
            await self._fleet.fail(name)
        except errors.BedplateError as err:
            log.v(2).info("up.node_lost", node=name, error=str(err))

    async def _find(self, name: str, provider_id: str) -> None:
        """The machine is back. While an older machine's Node is there, its new kubelet could only wait."""
        node = self._nodes.get(name)
        if node is not None and node.spec.provider_id not in ("", provider_id):
            return
        try:
            await self._fleet.heal(name)
        except errors.BedplateError as err:
            log.v(2).info("up.node_not_back", node=name, error=str(err))
        else:
            self._down.discard(name)

    def _count(self) -> None:
        now = self._time.monotonic()
        self._calls.append((now, self.cloud.journal.count()))
        while self._calls[0][0] < now - MINUTE_S:
            self._calls.popleft()


def write_config(cloud: BmmCloud, file: Path) -> None:
    """The manager's configuration for this site, as people write it; for its owner's eyes, as it holds a token."""
    content = {
        "endpoint": cloud.url,
        "orgName": cloud.org,
        "token": cloud.token,
        "siteId": cloud.site_id,
        "tenantId": cloud.tenant_id,
    }
    file.unlink(missing_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        yaml.safe_dump(content, opened, sort_keys=False)
