"""One after the other, over all nodes: agents of three members of a cluster, which must not lose two at once."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.agent.machines import Machine, Services
from tests.agent.test_loop import QUICK
from tests.ui.rest.serving import Served, served
from tests.waiting import until

from bedplate.agent.link import Link, Login
from bedplate.agent.loop import Agent
from bedplate.head.policy import NODE

NAMES = ("node001", "node002", "node003")
GROUP = "etcd:kube-default"


class Watched(Services):
    """Services of one member; `log` is common to all: who begins and who ends."""

    def __init__(self, node: str, log: list[str]) -> None:
        super().__init__()
        self._node, self._log = node, log

    async def restart(self, name: str, timeout_s: float = 90.0) -> str | None:
        if name != "etcd":
            return await super().restart(name, timeout_s)
        self._log.append(f"{self._node} begins")
        await asyncio.sleep(0.02)
        why = await super().restart(name, timeout_s)
        self._log.append(f"{self._node} {'ends' if why is None else 'fails'}")
        return why


class Site:
    def __init__(self, server: Served) -> None:
        self.server = server
        self.log: list[str] = []
        self.machines: dict[str, Machine] = {}

    def settled(self) -> bool:
        """Whether every member is what it should be."""
        fleet = self.server.service.fleet
        assert fleet is not None
        return all(fleet.progress.has_applied(name) for name in NAMES)

    async def change(self, count: int) -> None:
        """What restarts etcd on every member."""
        async with self.server.client() as admin:
            overlay = await admin.get("configurationoverlay", "kube-default-etcd")
            (name, role), *_ = overlay.children["roles"].items()
            changed = {**role, "values": {**role["values"], "snapshot_count": count}}
            await admin.put(
                "configurationoverlay",
                "kube-default-etcd",
                overlay.values,
                type=overlay.type,
                children={**overlay.children, "roles": {name: changed}},
                base=overlay.revision,
            )


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    (tmp_path / "head").mkdir()
    async with served(tmp_path / "head") as server, contextlib.AsyncExitStack() as stack:
        site, tasks = Site(server), []
        for name in NAMES:
            token = tmp_path / f"{name}.token"
            token.write_text((await server.service.access.tokens.create(NODE, name, "test"))[1])
            link = await stack.enter_async_context(Link(Login(name, (server.url,), token_file=str(token))))
            machine = site.machines[name] = Machine(tmp_path / name)
            machine.services = Watched(name, site.log)
            effects = replace(machine.effects, services=machine.services, turns=link)
            tasks.append(asyncio.create_task(Agent(effects, link, rng=random.Random(1), pace=QUICK).run()))
        try:
            await until(site.settled, "all members hold their first state")
            site.log.clear()
            yield site
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


async def test_members_restart_one_after_the_other(site: Site) -> None:
    await site.change(6000)
    await until(site.settled)
    pairs = list(zip(site.log[::2], site.log[1::2], strict=True))
    assert sorted(pairs) == [(f"{name} begins", f"{name} ends") for name in NAMES]


async def test_a_member_that_fails_is_a_brake_for_the_others_until_it_is_well(site: Site) -> None:
    for name in NAMES:
        site.machines[name].services.broken["etcd"] = "it does not start"
    await site.change(6000)
    fleet = site.server.service.fleet
    assert fleet is not None
    await until(lambda: any("fails" in line for line in site.log))
    (turn,) = [state for state in fleet.turns.states() if state.group == GROUP]
    first = turn.failed or turn.node
    # It alone tries again; the others wait, however often.
    await until(lambda: site.log.count(f"{first} fails") >= 3)
    assert {line.split()[0] for line in site.log} == {first}
    for name in NAMES:
        del site.machines[name].services.broken["etcd"]
    await until(site.settled)
    assert sorted(line for line in site.log if line.endswith("ends")) == [f"{name} ends" for name in NAMES]
    assert not fleet.turns.braked_by(first)


async def test_somebody_lets_the_others_go_on(site: Site) -> None:
    site.machines["node002"].services.broken["etcd"] = "it does not start"
    await site.change(6000)
    await until(lambda: "node002 fails" in site.log)
    fleet = site.server.service.fleet
    assert fleet is not None

    async def is_released() -> bool:
        async with site.server.client() as admin:
            if any(state.group == GROUP and state.failed for state in await admin.turns()):
                await admin.release_turn(GROUP)
        return {"node001 ends", "node003 ends"} <= set(site.log)

    await until(is_released)
    assert not site.settled(), "node002 still fails"
