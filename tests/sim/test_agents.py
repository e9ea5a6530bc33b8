"""Many simulated devices under one head: who is looked at, what is told, what happens when things fail."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from tests.waiting import DEADLINE_S, until

from bedplate.api import headapi
from bedplate.api.desired import Check, Desired, Errand, File, Service
from bedplate.api.steps import Step
from bedplate.client import Event, HeadClient, Wanted
from bedplate.core import errors
from bedplate.sim.agents import Devices, Pace
from bedplate.sim.device import LOAD


class FakeHead(HeadClient):
    """A head that is a dictionary of desired states."""

    def __init__(self, states: dict[str, Desired]) -> None:
        super().__init__("https://nowhere")
        self.states = states
        self.reports: list[tuple[str, dict[str, Any]]] = []
        self.number = 1
        self.failing = 0
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self.streams = 0
        self._touched: dict[int, set[str]] = {}

    def commit(self, *changes: headapi.Change, **states: Desired) -> None:  # type: ignore[override]
        """A revision after which those nodes should be something else."""
        self.number += 1
        self.states.update(states)
        self._touched[self.number] = set(states)
        revision = headapi.Revision(number=self.number, time="", author="alice", changes=list(changes))
        self._events.put_nowait(Event(str(self.number), revision=revision))

    async def whoami(self) -> headapi.Whoami:
        return headapi.Whoami(user="admin", role="admin", head="head", revision=self.number)

    async def list(self, mode: str, *, at: int | None = None, page: int = 1000) -> Sequence[headapi.Object]:
        return [headapi.Object(mode=mode, key=name, revision=1, type="PhysicalNode") for name in sorted(self.states)]

    async def desired(self, node: str, etag: str = "", *, at: int | None = None, wait_s: float = 0.0) -> Wanted | None:
        if self.failing:
            self.failing -= 1
            raise errors.Unavailable("the head is away")
        if node not in self.states:
            raise errors.NotFound(f"there is no node {node}")
        found = msgspec.structs.replace(self.states[node], revision=self.number)
        return None if found.etag == etag else Wanted(found.etag, found)

    async def plan_between(self, start: int, end: int | None = None) -> headapi.PlanResult:
        names = set().union(*(self._touched.get(number, set()) for number in range(start + 1, (end or 0) + 1)))
        actions = [
            headapi.PlanAction(node=name, kind="file", name="/f", verb="change", source="category:a") for name in names
        ]
        return headapi.PlanResult(actions=actions, revision=self.number)

    async def report(self, node: str, **said: Any) -> int:
        self.reports.append((node, said))
        for told in said.get("errands", ()):
            left = tuple(errand for errand in self.states[node].errands if errand.id != told.id)
            self.states[node] = msgspec.structs.replace(self.states[node], errands=left)
        return self.number

    def ask(self, node: str, id_: str, kind: Any) -> None:
        """Ask a node to do something once, as people do."""
        self.states[node] = msgspec.structs.replace(self.states[node], errands=(Errand(id=id_, kind=kind),))
        text = f"{node} was asked by alice to {kind}"
        notice = headapi.Notice(id=1, time="", severity="notice", host=node, text=text)
        self._events.put_nowait(Event("1", notice=notice))

    async def events(self, after: Any = None, **more: Any) -> AsyncIterator[Event]:  # type: ignore[override]
        self.streams += 1
        while True:
            yield await self._events.get()

    def told(self, kind: str) -> list[tuple[str, str, str]]:
        """Actions or failures that were reported: node, name, verb."""
        return [(node, one.name, one.verb) for node, said in self.reports for one in said.get(kind, ())]


def state(name: str, content: str = "one", **more: Any) -> Desired:
    file = File(path="/etc/app.conf", content=content, services=("app",), action="RESTART")
    return Desired(node=name, files=(file,), services=(Service(name="app"),), **more)


def site(count: int) -> FakeHead:
    return FakeHead({f"node{number:03}": state(f"node{number:03}") for number in range(1, count + 1)})


@contextlib.asynccontextmanager
async def living(head: FakeHead, **options: Any) -> AsyncIterator[Devices]:
    devices = Devices(head, **options)
    task = asyncio.create_task(devices.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            await devices.ready.wait()
        yield devices
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_every_device_holds_its_state_and_says_so_without_news() -> None:
    head = site(30)
    async with living(head) as devices:
        assert {name: one.files["/etc/app.conf"] for name, one in devices.devices.items()} == dict.fromkeys(
            head.states, "one"
        )
        await until(lambda: len([said for _, said in head.reports if said.get("applied") == 1]) == 30)
        assert head.told("actions") == []


async def test_item_34_a_changed_file_restarts_the_service_and_the_head_is_told() -> None:
    head = site(3)
    async with living(head):
        head.commit(node002=state("node002", "two"))
        await until(lambda: head.told("actions") == [("node002", "app", "restarted")])
        applied = [said["applied"] for node, said in head.reports if node == "node002" and said.get("applied")]
        assert applied[-1] == 2


async def test_item_219_a_revision_is_looked_at_by_those_it_means_something_to_and_one_stream_serves_all() -> None:
    head = site(200)
    async with living(head) as devices:
        before = devices.looks
        head.commit(node007=state("node007", "two"))
        await until(lambda: len(head.told("actions")) == 1)
        head.commit()
        head.commit(node008=state("node008", "two"))
        await until(lambda: len(head.told("actions")) == 2)
        assert devices.looks - before == 2
        assert head.streams == 1


async def test_a_revision_that_leaves_nothing_to_do_counts_as_applied() -> None:
    head = site(2)
    async with living(head):
        head.commit(node001=state("node001"))
        await until(lambda: ("node001", 2) in [(node, said.get("applied")) for node, said in head.reports])
        assert head.told("actions") == []


async def test_a_device_does_what_it_is_asked_for_once_and_is_silent_once_it_is_off() -> None:
    head = site(3)

    def told() -> list[tuple[str, str, str]]:
        return [(node, one.id, one.state) for node, said in head.reports for one in said.get("errands", ())]

    async with living(head) as devices:
        head.ask("node002", "a", "reboot")
        await until(lambda: len(told()) == 2)
        head.ask("node003", "b", "off")
        await until(lambda: len(told()) == 4)
        assert told() == [
            *(("node002", "a", state) for state in ("accepted", "done")),
            *(("node003", "b", state) for state in ("accepted", "done")),
        ]
        await until(lambda: sorted(devices.devices) == ["node001", "node002"])
        assert devices.devices["node002"].files["/etc/app.conf"] == "one"


async def test_devices_come_and_go_with_the_tree() -> None:
    head = site(2)
    async with living(head) as devices:
        head.commit(headapi.Change(path=("device", "node009"), new={}), node009=state("node009"))
        await until(lambda: "node009" in devices.devices and devices.devices["node009"].held is not None)
        del head.states["node001"]
        head.commit(headapi.Change(path=("device", "node001"), old={}))
        await until(lambda: "node001" not in devices.devices)


async def test_item_131_a_refused_configuration_is_told_once_and_tried_again() -> None:
    head = site(1)
    tries = 0

    def refuse(node: str, step: Step, file: File | None) -> str | None:
        nonlocal tries
        if step.verb != "write" or file is None or file.content != "wrong":
            return None
        tries += 1
        return "no space left on device"

    async with living(head, refuse=refuse, pace=Pace(retry_s=0.01)) as devices:
        head.commit(node001=state("node001", "wrong"))
        await until(lambda: tries >= 3)
        assert head.told("failures") == [("node001", "/etc/app.conf", "written")]
        assert devices.devices["node001"].files["/etc/app.conf"] == "one"
        head.commit(node001=state("node001", "right"))
        await until(lambda: devices.devices["node001"].files["/etc/app.conf"] == "right")


async def test_a_head_that_is_away_is_asked_again() -> None:
    head = site(3)
    head.failing = 2
    async with living(head, pace=Pace(again_s=0.01)) as devices:
        await until(lambda: all(one.held is not None for one in devices.devices.values()))


async def test_members_of_one_cluster_restart_one_after_the_other() -> None:
    running: list[str] = []
    most = 0

    def together(node: str, content: str) -> Desired:
        return msgspec.structs.replace(state(node, content), services=(Service(name="app", serial="etcd"),))

    class Watched(Devices):
        async def _act(self, device: Any, step: Step, wanted: Desired) -> str | None:
            nonlocal most
            running.append(device.name)
            most = max(most, len(running))
            try:
                await asyncio.sleep(0.001)
                return await super()._act(device, step, wanted)
            finally:
                running.remove(device.name)

    head = FakeHead({f"node{number}": together(f"node{number}", "one") for number in range(6)})
    devices = Watched(head)
    task = asyncio.create_task(devices.run())
    try:
        await until(devices.ready.is_set)
        head.commit(**{name: together(name, "two") for name in head.states})
        await until(lambda: len(head.told("actions")) == 6)
        assert most == 1
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_checks_are_reported_with_values() -> None:
    head = FakeHead({"node001": state("node001", checks=(Check(name=LOAD, interval_s=0.01),))})
    async with living(head, pace=Pace(reports_per_s=1000)):
        await until(lambda: len([said for _, said in head.reports if said.get("results")]) >= 3)
        results = [one for _, said in head.reports for one in said.get("results", ())]
        assert {one.check for one in results} == {LOAD}
        assert all(one.value is not None for one in results)


async def test_only_the_named_devices_live() -> None:
    head = site(5)
    async with living(head, names=["node002", "node004"]) as devices:
        assert sorted(devices.devices) == ["node002", "node004"]
        head.commit(node001=state("node001", "two"), node002=state("node002", "two"))
        await until(lambda: head.told("actions") == [("node002", "app", "restarted")])


async def test_a_head_without_devices_is_ready_at_once() -> None:
    async with living(site(0)) as devices:
        assert devices.devices == {}
