"""Random sequences through the whole manager on an embedded API server: flags, caches, both node controllers, client.

Several managers work side by side, each with nodes and a cloud of its own. A sequence is a few stages; in a stage the
nodes' states and the cloud's answers are set at random and stay for some passes. Then it is known exactly which nodes
must be gone: those not ready, not excluded and ours whose machine is absent for certain, when they are few enough; in
every other case none.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import pytest
from tests import servers
from tests.cloud.scripted import FAULTS, ScriptedProvider

from bedplate.api import core, meta
from bedplate.api.resources import NODES
from bedplate.cloud import registry
from bedplate.cloud.labels import LABEL_EXCLUDE_FROM_LIFECYCLE
from bedplate.cloud.manager import options as reading
from bedplate.cloud.manager.assembly import Assembly
from bedplate.cloud.manager.options import Options
from bedplate.kube import Client, config, errors

MANAGERS, STAGES, MEMBERS, PASSES = 10, 2, 10, 4
SEQUENCES, SEQUENCES_FULL = 10, 4_000
"""Sequences in `make test` and in `make soak`."""
PATIENCE_S = 300.0
LABEL = "bedplate.test/sequences"
STATES = ("ready", "ready", "ready", "not-ready", "unknown", "not-ready-excluded", "not-ready-foreign")
ANSWERS = ("there", "off", *("gone",) * 7, *FAULTS)
providers: dict[str, ScriptedProvider] = {}


def create(setting: registry.Setting) -> ScriptedProvider:
    return providers[setting.environ["SEQUENCES"]]


@dataclass
class Member:
    """One node, and what is to be said of its machine."""

    name: str
    state: str = "ready"
    answer: str = "there"
    uid: str = ""

    @property
    def is_managed(self) -> bool:
        return self.state not in ("not-ready-excluded", "not-ready-foreign")

    @property
    def is_lost(self) -> bool:
        """Whether its machine is absent for certain, and that is asked."""
        return self.is_managed and self.state != "ready" and self.answer == "gone"


class Group:
    """The nodes of one manager."""

    def __init__(self, client: Client, server: servers.Server, rng: random.Random) -> None:
        self.client, self.server, self.rng = client, server, rng
        self.mark = uuid.uuid4().hex[:8]
        self.cloud = providers[self.mark] = ScriptedProvider("scripted")
        self.cloud.fault = self._answer
        self.witness = Member(f"w-{self.mark}", "not-ready")
        self.members = [Member(f"m{number}-{self.mark}") for number in range(MEMBERS - 1)]
        self.deleted = self.blocked = 0

    def _answer(self, operation: str, node: core.Node) -> Exception | None:
        member = next(one for one in (self.witness, *self.members) if one.name == node.name)
        is_gone = member.answer == "gone"
        self.cloud.machines.pop(node.name, None)
        if not is_gone:
            self.cloud.add(node.name, is_off=member.answer == "off")
        return FAULTS[member.answer]() if member.answer in FAULTS else None

    @contextlib.asynccontextmanager
    async def manager(self) -> AsyncIterator[asyncio.Task[None]]:
        words = [
            "--cloud-provider=scripted",
            f"--kubeconfig={self.server.kubeconfig}",
            f"--node-selector={LABEL}={self.mark}",
            "--controllers=cloud-node,cloud-node-lifecycle",
            "--secure-port=0",
            "--leader-elect=false",
            "--node-monitor-period=50ms",
            "--node-startup-grace-period=0s",
            "--kube-api-qps=1000",
            "--kube-api-burst=1000",
        ]
        read = reading.read(words, Options())
        assert not read.problems
        running = asyncio.create_task(Assembly(read.options, {"SEQUENCES": self.mark}).run())
        try:
            yield running
            assert not running.done(), running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def play(self, sequences: int) -> None:
        """So many sequences, each with a manager of its own: what one has learned dies with it."""
        await self._put(self.witness)
        try:
            for _ in range(sequences):
                async with self.manager() as running:
                    for _ in range(STAGES):
                        await self._stage(running)
        finally:
            for member in (self.witness, *self.members):
                with contextlib.suppress(errors.NotFound):
                    await self.client.delete(NODES, member.name)

    async def _stage(self, running: asyncio.Task[None]) -> None:
        for member in self.members:
            member.answer = "there"
        for member in self.members:
            member.state = self.rng.choice(STATES)
            await self._put(member)
        # The manager has seen these states, and all suspicion is refuted, before the answers change.
        await self._passes(2, running)
        for member in self.members:
            member.answer = self.rng.choice(ANSWERS)
        await self._passes(PASSES, running)
        managed = 1 + sum(member.is_managed for member in self.members)
        lost = [member for member in self.members if member.is_lost]
        expected = {member.name for member in lost} if len(lost) <= max(1, managed * 20 // 100) else set()
        if expected:
            await self._until_gone(expected)
        assert await self._missing() == expected, [self.members, managed]
        self.deleted += len(expected)
        self.blocked += bool(lost) and not expected

    async def _passes(self, count: int, running: asyncio.Task[None]) -> None:
        wanted = self.cloud.asked("exists", self.witness.name) + count
        while self.cloud.asked("exists", self.witness.name) < wanted:
            assert not running.done(), running
            await asyncio.sleep(0.02)

    async def _until_gone(self, names: set[str]) -> None:
        while not names <= await self._missing():
            await asyncio.sleep(0.02)

    async def _missing(self) -> set[str]:
        found = await self.client.list(NODES, label_selector=f"{LABEL}={self.mark}")
        here = {node.metadata.uid for node in found.items}
        return {member.name for member in self.members if member.uid not in here}

    async def _put(self, member: Member) -> None:
        """The node in the wanted state; created again when its provider ID has to change or it is gone."""
        scheme = "aws" if member.state == "not-ready-foreign" else "scripted"
        wanted = f"{scheme}://{member.name}"
        excluded = "true" if member.state == "not-ready-excluded" else None
        ready = {"ready": "True", "unknown": "Unknown"}.get(member.state, "False")
        status = {"conditions": [{"type": "Ready", "status": ready}]}
        try:
            found = await self.client.get(NODES, member.name)
            if found.spec.provider_id != wanted:
                await self.client.delete(NODES, member.name)
                raise errors.NotFound(errors.Target("GET", ""), meta.Status())
        except errors.NotFound:
            labels: Mapping[str, str] = {
                LABEL: self.mark,
                **({LABEL_EXCLUDE_FROM_LIFECYCLE: "true"} if excluded else {}),
            }
            body = {
                "metadata": {"name": member.name, "labels": labels},
                "spec": {"providerID": wanted},
                "status": status,
            }
            member.uid = (await self.client.create(NODES, body)).metadata.uid
            return
        member.uid = found.metadata.uid
        labels_now = {"metadata": {"labels": {LABEL_EXCLUDE_FROM_LIFECYCLE: excluded}}}
        await self.client.patch(NODES, member.name, labels_now)
        await self.client.patch(NODES, member.name, {"status": status}, subresource="status")


async def run_sequences(count: int, seed: int) -> None:
    if "scripted" not in registry.names():
        registry.register("scripted", create)
    server = servers.shared.get("embedded")
    async with Client(config.load(server.kubeconfig, environ={}).with_rate(-1, 1)) as client:
        groups = [Group(client, server, random.Random(seed + number)) for number in range(MANAGERS)]
        async with asyncio.timeout(PATIENCE_S + count * 5), asyncio.TaskGroup() as tasks:
            for group in groups:
                tasks.create_task(group.play(count // MANAGERS))
    assert sum(group.deleted for group in groups) > count / 10
    assert sum(group.blocked for group in groups) > 0


async def test_no_sequence_has_the_manager_delete_what_must_stay(seed: int) -> None:
    await run_sequences(SEQUENCES, seed)


@pytest.mark.soak
async def test_no_sequence_has_the_manager_delete_what_must_stay_in_full(seed: int) -> None:
    await run_sequences(SEQUENCES_FULL, seed)
