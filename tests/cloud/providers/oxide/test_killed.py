"""kill -9 of the manager as a program, again and again, while Services come, change and go: no floating IP leaks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests import forkserver, programs, servers
from tests.waiting import until

from bedplate.api.resources import NODES, SERVICES
from bedplate.cloud.providers.oxide import ownership, wants
from bedplate.core import clock
from bedplate.kube import Client, config
from bedplate.kube.options import PatchType
from bedplate.sim.clouds import Conditions, OxideCloud

PROGRAM = pathlib.Path(sys.executable).with_name("oxide-cloud-controller-manager")
ROUNDS = 4
QUIET_S = 1.0


class Manager:
    """The program, as a user of the original starts it."""

    def __init__(self, cloud: OxideCloud, kubeconfig: pathlib.Path, log: pathlib.Path) -> None:
        self._environ = {
            **os.environ,
            "OXIDE_HOST": cloud.url,
            "OXIDE_TOKEN": cloud.token,
            "OXIDE_PROJECT": cloud.project,
        }
        self._kubeconfig, self._log = kubeconfig, log
        self._process: forkserver.Process | None = None

    async def start(self) -> None:
        with self._log.open("ab") as out:
            words = ["--cloud-provider", "oxide", "--kubeconfig", str(self._kubeconfig)]
            words += ["--leader-elect=false", "--secure-port=0", "--cluster-name=prod", "--v=2"]
            self._process = forkserver.Process(
                [str(PROGRAM), *words], env=self._environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    async def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await asyncio.to_thread(process.wait)


@contextlib.asynccontextmanager
async def nodes(client: Client, cloud: OxideCloud) -> AsyncIterator[None]:
    for machine in cloud.add_machines(3):
        body = {"metadata": {"name": machine.name}, "spec": {"providerID": machine.provider_id}}
        await client.create(NODES.raw(), body)
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": clock.rfc3339(clock.SystemClock().now())}
        shown = [{"type": "InternalIP", "address": address} for address in machine.addresses]
        status = {"status": {"conditions": [ready], "addresses": shown}}
        await client.patch(NODES, machine.name, status, type=PatchType.STRATEGIC, subresource="status")
    yield


def of_services(cloud: OxideCloud) -> list[tuple[str, bool]]:
    """(name of the Service, attached or not) for every floating IP that carries a record."""
    cloud.agenda.run()
    found = []
    for row in cloud.floating_ips:
        record = ownership.parse(row.data["description"])
        if record is not None:
            found.append((record.owner.name, row.data["instance_id"] is not None))
    return sorted(found)


@pytest.fixture(params=["real", "embedded"])
def server(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    """A server of the test's own: the manager under test serves every Service it finds."""
    with programs.own_server(request.param) as started:
        yield started


async def test_a_manager_killed_again_and_again_leaks_nothing(server: servers.Server, tmp_path: pathlib.Path) -> None:
    seed = len(server.name)
    rng = random.Random(seed)
    conditions = Conditions(transition_s=0.2, latency_s=0.02)
    loaded = config.load(server.kubeconfig, environ={}).with_rate(-1, 1)
    async with OxideCloud(conditions=conditions, seed=seed) as cloud, Client(loaded) as client:
        cloud.add_pool("other", "203.0.113.0/24")
        cloud.create_floating_ip("theirs", description="theirs")
        manager = Manager(cloud, server.kubeconfig, tmp_path / "manager.log")
        async with nodes(client, cloud):
            try:
                alive = await _live_and_die(client, cloud, manager, rng)
                await manager.start()
                expected = [(name, True) for name in sorted(alive)]

                async def has_settled() -> bool:
                    names = {one.name for one in (await client.list(SERVICES, "default")).items} - {"kubernetes"}
                    return of_services(cloud) == expected and names == alive

                await until(has_settled, f"every Service has its address and no other is left: {expected}")
            finally:
                await manager.kill()
        theirs: Any = cloud.floating_ip("theirs")
        assert (theirs["description"], theirs["instance_id"]) == ("theirs", None)


async def _live_and_die(client: Client, cloud: OxideCloud, manager: Manager, rng: random.Random) -> set[str]:
    """Rounds of changes, each ended by kill -9 at a moment that is measured in cloud calls; the Services left."""
    alive: set[str] = set()
    for number in range(ROUNDS):
        await manager.start()
        calls = cloud.journal.count()
        name = f"s{number}"
        spec = {"type": "LoadBalancer", "ports": [{"port": 8000 + number}]}
        await client.create(SERVICES.raw(), {"metadata": {"name": name}, "spec": spec}, "default")
        alive.add(name)
        for old in sorted(alive - {name}):
            chance = rng.random()
            if chance < 0.4:
                await client.delete(SERVICES, old, "default")
                alive.discard(old)
            elif chance < 0.7:
                pool = rng.choice(["other", None])
                await client.patch(SERVICES, old, {"metadata": {"annotations": {wants.POOL: pool}}}, "default")
        moment = calls + rng.randrange(2, 30)

        async def is_due(moment: int = moment) -> bool:
            return cloud.journal.count() >= moment

        # Where nothing is left to do, there are no more calls to wait for.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(QUIET_S):
                await until(is_due, "the moment has come")
        await manager.kill()
    return alive
