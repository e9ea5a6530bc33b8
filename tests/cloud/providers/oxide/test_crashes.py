"""kill -9 at any moment: whatever was under way, nothing leaks, nothing of others is touched, no ports clash.

A crash is an exception that nobody catches, thrown before or after a call to the cloud; then the provider object is
dropped and a new one, which knows nothing, goes on. First every call of typical operations in turn, then random
histories with faults.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cloud.providers.oxide.world import CLUSTER, World, world

from bedplate.api import core
from bedplate.cloud.errors import CloudError, RetryError
from bedplate.cloud.http.client import Answer, Call
from bedplate.cloud.interface import Target
from bedplate.cloud.providers.oxide import ownership, provider, wants
from bedplate.core import errors
from bedplate.sim.clouds import Conditions


class Killed(BaseException):
    """The process is gone."""


def kill_at(one: provider.Oxide, index: int, *, after: bool) -> None:
    """Let the process die at its call of that number, before it is sent or after it has taken effect."""
    call, count = one._client.call, 0

    async def dying(request: Call) -> Answer:
        nonlocal count
        count += 1
        if count < index:
            return await call(request)
        if count == index and after:
            await call(request)
        raise Killed

    one._client.call = dying  # type: ignore[method-assign]


Operation = Callable[[provider.Oxide, World, list[Target]], Awaitable[object]]


@dataclass(frozen=True)
class Scene:
    """What there is, what is done, and how many floating IPs the Service has when it was done."""

    before: Operation | None
    act: Operation
    count: int
    spec: Mapping[str, Any] = field(default_factory=dict)


def ensure(annotations: Mapping[str, str] | None = None, **spec: Any) -> Operation:
    async def run(one: provider.Oxide, w: World, targets: list[Target]) -> object:
        return await one.load_balancers.ensure(CLUSTER, w.service("web", annotations=annotations, **spec), targets)

    return run


async def fail_over(one: provider.Oxide, w: World, targets: list[Target]) -> object:
    service = w.service("web")
    holders = {made["instance_id"] for made in w.ips_of(service)}
    left = [target for target in targets if w.cloud.get(target.node.name).id not in holders]
    return await one.load_balancers.update(CLUSTER, service, left)


def delete(annotations: Mapping[str, str] | None = None) -> Operation:
    async def run(one: provider.Oxide, w: World, targets: list[Target]) -> object:
        return await one.load_balancers.delete(CLUSTER, w.service("web", annotations=annotations))

    return run


async def legacy(one: provider.Oxide, w: World, targets: list[Target]) -> object:
    return w.cloud.create_floating_ip(
        "prod-shop-web", description=ownership.LEGACY_DESCRIPTION, ip="198.18.8.3", attach_to="n2"
    )


DUAL: dict[str, Any] = {"ip_families": ("IPv4", "IPv6"), "ip_family_policy": "RequireDualStack"}
OTHER, MINE, KEEP = {wants.POOL: "other"}, {wants.NAME: "front-door"}, {wants.RETAIN: "true"}
SCENES = {
    "create": Scene(None, ensure(), 1),
    "create both families": Scene(None, ensure(**DUAL), 2),
    "one family more": Scene(ensure(), ensure(**DUAL), 2),
    "one family less": Scene(ensure(**DUAL), ensure(), 1),
    "change the pool": Scene(ensure(), ensure(OTHER), 1),
    "change to an explicit address": Scene(ensure(OTHER), ensure({wants.ADDRESS: "198.18.8.8"}), 1),
    "adopt what the original made": Scene(legacy, ensure(), 1),
    "adopt and replace": Scene(legacy, ensure(OTHER), 1),
    "borrow": Scene(None, ensure(MINE), 1),
    "borrow instead": Scene(ensure(), ensure(MINE), 1),
    "give back": Scene(ensure(MINE), ensure(), 1),
    "fail over": Scene(ensure(), fail_over, 1),
    "fail over both": Scene(ensure(**DUAL), fail_over, 2),
    "delete": Scene(ensure(), delete(), 0),
    "delete both": Scene(ensure(**DUAL), delete(), 0),
    "delete what the original made": Scene(legacy, delete(), 0),
    "delete and keep": Scene(ensure(KEEP), delete(KEEP), 0),
    "delete what was borrowed": Scene(ensure(MINE), delete(MINE), 0),
}


def foreign(w: World) -> list[tuple[Any, ...]]:
    """Everything that never belongs to the Service under test, as far as it may not change."""
    return sorted(
        (one["id"], one["name"], one["ip"], one["instance_id"], one["description"].partition(" [")[0])
        for one in w.ips()
        if one["name"] in ("front-door", "theirs", "prod-shop-web2")
    )


async def clear(w: World) -> None:
    for row in list(w.cloud.floating_ips):
        w.cloud.floating._detached(row.key)
        w.cloud.floating.delete(w.cloud.floating_ips.get(row.key) or row)
    for service in list(w.services):
        w.services.remove(service, "9")
    w.cloud.create_floating_ip("front-door", description="our public face", ip="198.18.8.1")
    w.cloud.create_floating_ip("theirs", description=ownership.LEGACY_DESCRIPTION, ip="198.18.8.2", attach_to="n1")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", SCENES)
async def test_a_crash_at_any_call_leaves_nothing_behind(name: str, after: bool) -> None:
    scene = SCENES[name]
    async with world(has_v6_pool=True, conditions=Conditions(transition_s=0.4)) as w:
        w.cloud.add_pool("other", "203.0.113.0/24")
        targets = [w.node(f"n{n}", addresses=[f"172.30.9.{n}", f"fd00::{n}"]) for n in (1, 2, 3)]
        index, was_killed = 0, True
        while was_killed:
            index += 1
            await clear(w)
            before = foreign(w)
            if scene.before is not None:
                await scene.before(w.provider(), w, targets)
            first = w.provider()
            kill_at(first, index, after=after)
            try:
                await scene.act(first, w, targets)
                was_killed = False
            except Killed:
                pass
            await first.close()
            # The next process does the same again, and it is done.
            await scene.act(w.provider(), w, targets)
            service = w.service("web")
            made = w.ips_of(service)
            assert len(made) == scene.count, f"killed at call {index}"
            assert len({one["instance_id"] for one in made}) == min(1, scene.count)
            # And in the end nothing is left of it.
            await w.provider().load_balancers.delete(CLUSTER, service)
            kept = 1 if scene.act is SCENES["delete and keep"].act else 0
            assert len(w.ips()) == 2 + kept, f"killed at call {index}"
            assert foreign(w) == before, f"killed at call {index}"
        assert index > 3


# Random histories

PORTS = [((80, "TCP"),), ((443, "TCP"),), ((80, "TCP"), (443, "TCP")), ((80, "UDP"),)]
NOTES: list[dict[str, str]] = [
    *({}, {}, {wants.POOL: "other"}, {wants.ADDRESS: "198.18.200.1"}, {wants.VERSION: "v4"}),
    *({wants.RETAIN: "true"}, {wants.RETAIN: "true", wants.POOL: "other"}, {wants.NAME: "front-door"}),
]
FAULTS = ["500", "503", "409", "reset", "truncated-json", "429", "generic-404", "403"]
NAMES = ["a", "b", "c"]

actions = st.one_of(
    st.tuples(st.just("ensure"), st.sampled_from(NAMES), st.sampled_from(PORTS), st.sampled_from(NOTES)),
    st.tuples(st.just("update"), st.sampled_from(NAMES)),
    st.tuples(st.just("all")),
    st.tuples(st.just("delete"), st.sampled_from(NAMES)),
    st.tuples(st.just("ready"), st.sampled_from(["n1", "n2", "n3"]), st.booleans()),
    st.tuples(st.just("fault"), st.sampled_from(FAULTS), st.sampled_from(["floating_ip_*", "*"]), st.integers(1, 3)),
    st.tuples(st.just("kill"), st.integers(1, 8), st.booleans()),
)


class History:
    """A cluster, its cloud, and a manager that may die."""

    def __init__(self, w: World) -> None:
        self.w = w
        self.ready = dict.fromkeys(("n1", "n2", "n3"), True)
        self.targets = {name: w.node(name) for name in self.ready}
        self.live: dict[str, core.Service] = {}
        self.leaving: dict[str, core.Service] = {}
        self.one = w.provider()
        w.cloud.create_floating_ip("prod-shop-b", description="somebody else's", attach_to="n2")
        w.cloud.create_floating_ip("theirs", attach_to="n1")
        w.cloud.create_floating_ip("front-door", description="our public face")
        self.foreign = self._foreign()

    def _foreign(self) -> list[dict[str, Any]]:
        """What nobody may change; of what may be borrowed, that it is still there and says the same."""
        found = []
        for one in self.w.ips():
            if one["name"] == "front-door":
                found.append({"ip": one["ip"], "words": one["description"].partition(" [")[0]})
            elif "[bedplate" not in one["description"]:
                found.append(dict(one))
        return found

    def nodes(self) -> list[Target]:
        return [Target(one.node, is_ready=self.ready[name]) for name, one in self.targets.items()]

    async def act(self, action: tuple[Any, ...]) -> None:
        try:
            await self._act(action)
        except Killed:
            await self.one.close()
            self.one = self.w.provider()
        except errors.BedplateError:
            pass
        assert self._foreign() == self.foreign
        if not self.w.cloud.conditions.list_lag_s:
            # With lists that lag, a process that has just begun cannot know of the last moves before it.
            self.check_ports()

    async def _act(self, action: tuple[Any, ...]) -> None:
        match action:
            case ("ensure", name, ports, notes):
                self.live[name] = self.w.service(name, ports=ports, annotations=notes)
                await self._ensure(name)
            case ("update", name) if name in self.live:
                await self.one.load_balancers.update(CLUSTER, self.live[name], self.nodes())
            case ("all",):
                await self._together([self._ensure(name) for name in self.live])
            case ("delete", name) if name in self.live:
                service = self.live.pop(name)
                self.leaving[service.metadata.uid] = service
                await self._delete(service)
            case ("ready", name, ready):
                self.ready[name] = ready
            case ("fault", kind, operation, times):
                self.w.cloud.faults.add(kind, operation=operation, times=times)
            case ("kill", index, after):
                kill_at(self.one, index, after=after)

    async def _together(self, works: list[Any]) -> None:
        tasks = [asyncio.create_task(work) for work in works]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _ensure(self, name: str) -> None:
        service = self.live[name]
        self.w.publish(service, await self.one.load_balancers.ensure(CLUSTER, service, self.nodes()))

    async def _delete(self, service: core.Service) -> None:
        await self.one.load_balancers.delete(CLUSTER, service)
        self.leaving.pop(service.metadata.uid, None)
        if self.live.get(service.name) is None:
            self.w.services.remove(service, "9")

    def check_ports(self) -> None:
        """No two Services answer on one port of one node. (What is being deleted answers no more.)"""
        seen: dict[tuple[str, int, str], str] = {}
        for name, service in self.live.items():
            for instance in {one["instance_id"] for one in self.w.ips_of(service) if one["instance_id"]}:
                for port in self.placed_ports(service):
                    key = (instance, *port)
                    assert seen.setdefault(key, name) == name, key

    def placed_ports(self, service: core.Service) -> list[tuple[int, str]]:
        """The ports with which a Service was last placed for certain: those of the status it has published."""
        current = self.w.services.get(f"shop/{service.name}")
        if current is None or not current.status.load_balancer.ingress:
            return []
        return [(port.port, port.protocol) for port in current.spec.ports]

    async def heal(self) -> None:
        """Good weather, and everything is asked for again, as the controller does, until the condition holds."""
        self.w.cloud.faults.clear()
        self.w.cloud.conditions.list_lag_s = 0.0
        await self.one.close()
        self.one = self.w.provider()
        self.ready = dict.fromkeys(self.ready, True)
        for service in list(self.leaving.values()):
            await self._retry(lambda service=service: self._delete(service))
        for _ in range(3):
            for name in self.live:
                await self._retry(lambda name=name: self._ensure(name))

    async def _retry(self, work: Callable[[], Awaitable[None]]) -> None:
        for _ in range(6):
            try:
                await work()
                return
            except RetryError as err:
                await self.w.time.sleep(err.retry_after_s or 0.0)
            except CloudError:
                await self.w.time.sleep(20.0)


weathers = st.builds(
    Conditions, transition_s=st.sampled_from([0.0, 0.6]), list_lag_s=st.sampled_from([0.0, 0.0, 20.0, 400.0])
)


@settings(max_examples=30)
@given(st.lists(actions, min_size=3, max_size=18), weathers)
def test_random_histories_leak_nothing_and_touch_nothing_of_others(
    history: list[tuple[Any, ...]], weather: Conditions
) -> None:
    asyncio.run(live(history, weather))


@pytest.mark.soak
@settings(max_examples=2000)
@given(st.lists(actions, min_size=3, max_size=30), weathers)
def test_many_random_histories_leak_nothing(history: list[tuple[Any, ...]], weather: Conditions) -> None:
    asyncio.run(live(history, weather))


async def live(history: list[tuple[Any, ...]], weather: Conditions) -> None:
    async with world(conditions=replace(weather)) as w:
        w.cloud.add_pool("other", "203.0.113.0/24")
        past = History(w)
        for action in history:
            await past.act(action)
        await past.heal()
        past.check_ports()
        assert past._foreign() == past.foreign
        alive = {service.metadata.uid for service in past.live.values()}
        for one in w.ips():
            record = ownership.parse(one["description"])
            assert record is None or record.role == "retained" or record.owner.service in alive, f"leaked: {one}"
        for name, service in past.live.items():
            assert len(w.ips_of(service)) <= 1, name
            await past.one.load_balancers.delete(CLUSTER, service)
            assert w.ips_of(service) == [], name
        assert past._foreign() == past.foreign
