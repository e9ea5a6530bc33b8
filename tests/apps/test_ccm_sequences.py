"""Random sequences of faults and states through the whole manager: no node is deleted that must stay.

Everything is real but the clock: an API server, both simulated clouds over HTTP with every kind of fault, and the whole
manager. What is allowed is judged by what the test itself did to the clouds and nodes, and by the clouds' own record of
what they answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests import servers
from tests.apps import managers
from tests.waiting import DEADLINE_S

from bedplate.api.resources import NODES
from bedplate.cloud.manager import options as reading
from bedplate.cloud.manager.assembly import Assembly
from bedplate.core import clock, logging
from bedplate.kube import Client
from bedplate.kube import errors as kube_errors
from bedplate.sim.clouds import BmmCloud, OxideCloud, SimulatedCloud
from bedplate.sim.clouds.faults import KINDS

PERIOD_S = 7.0
OUTAGE_PERIOD_S = 60.0
PER_CLOUD = 6
MONITOR = "cloud-node-lifecycle-controller"
VIEWS = {"nvidia-bmm": "get-instance", "oxide": "instance_view"}
LYING_LISTS = ("stale-list", "drop-from-list")
STEPS = ("fault", "clear", "remove", "lose", "unready", "ready", "stop", "start", "tokens")


class PassClock(clock.ManualClock):
    """Counts the passes of each lifecycle monitor: one ends where it begins to sleep for its period."""

    def __init__(self, period_s: float) -> None:
        # The API server stamps nodes with its own, real time.
        super().__init__(datetime.now(UTC))
        self.period_s = period_s
        self.passes: Counter[str] = Counter()

    async def sleep(self, seconds: float) -> None:
        task = asyncio.current_task()
        if seconds == self.period_s and task is not None and MONITOR in task.get_name():
            self.passes[task.get_name()] += 1
        await super().sleep(seconds)


@dataclass
class Member:
    """A node and its machine, as the test has made them."""

    name: str
    cloud: SimulatedCloud
    provider_id: str
    machine_id: str
    uid: str = ""
    is_ready: bool = True
    removed_at: float | None = None


@dataclass
class World:
    """The clouds, the nodes, and the manager between them."""

    client: Client
    time: PassClock
    clouds: dict[str, SimulatedCloud]
    label: str
    rng: random.Random
    assembly: Assembly | None = None
    members: dict[str, Member] = field(default_factory=dict)
    deleted: int = 0
    kept_although_absent: int = 0

    async def join(self, cloud: SimulatedCloud, number: int) -> None:
        """A machine and its node, initialised and ready."""
        name = f"{self.label}-{cloud.kind[:3]}-{number}"
        machine = cloud.add(f"{name}-{uuid.uuid4().hex[:6]}")
        member = Member(name, cloud, machine.provider_id, machine.id)
        body = {
            "metadata": {"name": name, "labels": {"ccm-test": self.label}},
            "spec": {"providerID": machine.provider_id},
        }
        made = await self.client.create(NODES.raw(), body)
        member.uid = made["metadata"]["uid"]
        self.members[name] = member
        await self.set_ready(member, True)

    async def set_ready(self, member: Member, ready: bool) -> None:
        """Change the condition, and wait until the manager has heard of it."""
        await managers.set_ready(self.client, member.name, ready)
        member.is_ready = ready
        assert self.assembly is not None
        nodes = self.assembly.caches.nodes
        async with asyncio.timeout(DEADLINE_S):
            while (
                (known := nodes.get(member.name)) is None or known.metadata.uid != member.uid or known.is_ready != ready
            ):
                await asyncio.sleep(0.002)

    async def look(self) -> None:
        """Let every monitor end the pass it is in, and then a whole one."""
        before = self.time.passes.copy()
        async with asyncio.timeout(DEADLINE_S):
            while any(self.time.passes[name] < before[name] + 2 for name in before):
                await self.time.advance(self.time.period_s / 14)
                await asyncio.sleep(0.002)

    async def step(self) -> None:
        """One random change of the world."""
        cloud = self.rng.choice(list(self.clouds.values()))
        own = [one for one in self.members.values() if one.cloud is cloud]
        member = self.rng.choice(own)
        match self.rng.choice(STEPS):
            case "fault":
                self.plant(cloud)
            case "clear":
                cloud.faults.clear()
            case "remove":
                await self.lose(member)
            case "lose":
                for one in self.rng.sample(own, 3):
                    await self.lose(one)
            case "unready":
                for one in self.rng.sample(own, self.rng.randint(1, len(own))):
                    await self.set_ready(one, False)
            case "ready":
                await self.set_ready(member, True)
            case "stop" if member.removed_at is None:
                cloud.stop(member.machine_id)
            case "start" if member.removed_at is None:
                cloud.start(member.machine_id)
            case "tokens":
                cloud.faults.add("401", times=self.rng.randint(1, 20))

    async def lose(self, member: Member) -> None:
        """Its machine is gone for good; its kubelet mostly, too."""
        if member.removed_at is None:
            member.cloud.remove(member.machine_id)
            member.removed_at = self.time.monotonic()
        if self.rng.random() < 0.7:
            await self.set_ready(member, False)

    def plant(self, cloud: SimulatedCloud) -> None:
        kind = self.rng.choice(KINDS)
        match: dict[str, Any] = {}
        if self.rng.random() < 0.5:
            match["probability"] = self.rng.choice((0.2, 0.5, 0.9))
        if self.rng.random() < 0.3:
            match["times"] = self.rng.randint(1, 5)
        fault: dict[str, Any] = {}
        planted = {(rule.fault.kind, rule.fault.style) for rule in cloud.faults.rules}
        if kind == "generic-404":
            # BMM's unnamed 404 counts as absence when a complete list agrees: both must not lie together.
            lies = {one for one, _ in planted} & set(LYING_LISTS)
            fault["style"] = self.rng.choice(
                ("route", "html", "plain") if lies else ("route", "unnamed", "html", "plain")
            )
        if kind in LYING_LISTS and ("generic-404", "unnamed") in planted:
            return
        cloud.faults.add(kind, fault=fault, **match)

    async def judge(self) -> Counter[str]:
        """Every node that is gone had to go; how many went, by cloud."""
        found = await self.client.list(NODES.raw(), label_selector=f"ccm-test={self.label}")
        present = {item["metadata"]["uid"] for item in found.items}
        gone = [one for one in self.members.values() if one.uid not in present]
        for one in gone:
            assert not one.is_ready, f"{one.name} was deleted although it is ready"
            assert one.removed_at is not None, f"{one.name} was deleted although its machine exists"
            assert self.absences(one) >= 2, f"{one.name} was deleted after {self.absences(one)} specific answers"
            del self.members[one.name]
        self.deleted += len(gone)
        self.kept_although_absent += sum(one.removed_at is not None for one in self.members.values())
        per_cloud = Counter(one.cloud.kind for one in gone)
        # Two passes lie between two looks, each of which may delete one of these few nodes.
        assert all(count <= 2 for count in per_cloud.values()), per_cloud
        return per_cloud

    def absences(self, member: Member) -> int:
        """How often the cloud has said, of this machine, that there is none. (Of BMM's generic ones, the unnamed
        may count, see `plant`; that the machine is really gone is judged apart.)"""
        return sum(
            entry.status == 404
            and (entry.fault != "generic-404" or member.cloud.kind == "nvidia-bmm")
            and re.search(re.escape(member.machine_id), entry.path, re.IGNORECASE) is not None
            for entry in member.cloud.journal.of(VIEWS[member.cloud.kind])
        )

    async def calm(self) -> None:
        """Good weather for a few passes: what is gone for certain goes."""
        for cloud in self.clouds.values():
            cloud.faults.clear()
        for _ in range(3):
            absent = Counter(one.cloud.kind for one in self.members.values() if one.removed_at and not one.is_ready)
            await self.look()
            gone = await self.judge()
            for kind in gone:
                assert absent[kind] <= 1, f"{gone[kind]} of {absent[kind]} absent nodes were deleted: no brake"

    async def restore(self) -> None:
        """Good weather, and every node and machine as at the beginning."""
        for cloud in self.clouds.values():
            cloud.faults.clear()
        for one in list(self.members.values()):
            if one.removed_at is not None:
                with contextlib.suppress(kube_errors.NotFound):
                    await self.client.delete(NODES, one.name)
                del self.members[one.name]
            else:
                one.cloud.start(one.machine_id)
                await self.set_ready(one, True)
        for cloud in self.clouds.values():
            for number in range(PER_CLOUD):
                if f"{self.label}-{cloud.kind[:3]}-{number}" not in self.members:
                    await self.join(cloud, number)


@contextlib.asynccontextmanager
async def world(
    server: servers.Server, client: Client, folder: Path, seed: int, period_s: float = PERIOD_S
) -> AsyncIterator[World]:
    label = f"seq-{uuid.uuid4().hex[:6]}"
    time = PassClock(period_s)
    async with BmmCloud(time=time) as bmm, OxideCloud(time=time) as oxide:
        found = World(client, time, {"nvidia-bmm": bmm, "oxide": oxide}, label, random.Random(seed))
        words = [
            "--cloud-provider=nvidia-bmm,oxide",
            f"--cloud-config=nvidia-bmm={managers.bmm_config(bmm, folder)}",
            f"--kubeconfig={server.kubeconfig}",
            f"--node-selector=ccm-test={label}",
            "--leader-elect=false",
            "--secure-port=0",
            "--controllers=*,-service",
            f"--node-monitor-period={period_s:g}s",
            "--node-startup-grace-period=0s",
            "--cloud-api-timeout=300ms",
            "--kube-api-qps=-1",
            "--event-qps=-1",
        ]
        read = reading.read(words)
        assert not read.problems
        found.assembly = Assembly(read.options, managers.oxide_environment(oxide), time=time)
        running = asyncio.create_task(found.assembly.run())
        try:
            await found.restore()
            async with asyncio.timeout(DEADLINE_S):
                while len(time.passes) < 3:
                    assert not running.done(), running.exception()
                    await time.advance(0.5)
                    await asyncio.sleep(0.01)
            yield found
            assert not running.done(), running.exception()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            for name in found.members:
                with contextlib.suppress(kube_errors.NotFound):
                    await client.delete(NODES, name)


async def play(server: servers.Server, client: Client, folder: Path, sequences: int) -> World:
    logging.configure(logging.LogOptions(), (folder / "log").open("w"))
    async with world(server, client, folder, seed=sequences) as found:
        for _ in range(sequences):
            for _ in range(found.rng.randint(2, 4)):
                for _ in range(found.rng.randint(1, 3)):
                    await found.step()
                await found.look()
                await found.judge()
            if found.rng.random() < 0.5:
                await found.calm()
            await found.restore()
    return found


async def test_no_sequence_deletes_what_must_stay(server: servers.Server, client: Client, tmp_path: Path) -> None:
    played = await play(server, client, tmp_path, 8)
    # It can fail both ways: nodes do go when their machines are gone for certain, and stay while they are not.
    assert played.deleted > 0
    assert played.kept_although_absent > 0


@pytest.mark.soak
async def test_no_sequence_deletes_what_must_stay_in_full(
    server: servers.Server, client: Client, tmp_path: Path
) -> None:
    played = await play(server, client, tmp_path, 300)
    assert played.deleted > 10


@pytest.mark.parametrize(
    ("server", "kind"),
    [
        *(("embedded", kind) for kind in ("503", "reset", "401", "generic-404")),
        pytest.param("real", "503", marks=pytest.mark.real),
    ],
    indirect=["server"],
)
async def test_an_outage_of_an_hour_deletes_nothing_and_recovers_by_itself(
    server: servers.Server, client: Client, tmp_path: Path, kind: str
) -> None:
    logging.configure(logging.LogOptions(), (tmp_path / "log").open("w"))
    async with world(server, client, tmp_path, 1, OUTAGE_PERIOD_S) as found:
        for cloud in found.clouds.values():
            cloud.faults.add(kind)
        for one in found.members.values():
            await found.set_ready(one, False)
        lost = next(iter(found.members.values()))
        await found.lose(lost)
        until = found.time.monotonic() + 3600
        before = found.time.passes.copy()
        while found.time.monotonic() < until:
            await found.time.advance(OUTAGE_PERIOD_S)
            await asyncio.sleep(0.002)
        await found.look()
        assert all(found.time.passes[name] > before[name] + 10 for name in before)
        assert not await found.judge()
        assert len(found.members) == 2 * PER_CLOUD
        for one in found.members.values():
            if one is not lost:
                await found.set_ready(one, True)
        for cloud in found.clouds.values():
            cloud.faults.clear()
        async with asyncio.timeout(DEADLINE_S):
            while lost.name in found.members:
                await found.look()
                await found.judge()
        assert len(found.members) == 2 * PER_CLOUD - 1
