"""Between being elected and the first reconcile: the API server, the clouds, the controllers, in that order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry
from tests.cloud.http.leaping import LeapingClock
from tests.cloud.scripted import ScriptedProvider

from bedplate.api import core, meta
from bedplate.cloud.interface import Provider
from bedplate.cloud.manager import leading, options
from bedplate.cloud.manager.assembly import Assembly
from bedplate.cloud.manager.metrics import ProcessMetrics
from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client
from bedplate.runtime.cache import Cache
from bedplate.runtime.manager import Leading


class Server:
    """Healthy after some refusals; knows the namespace kube-system unless it fails."""

    def __init__(self, refusals: int = 0, *, failure: Exception | None = None) -> None:
        self.refusals = refusals
        self.failure = failure

    async def request(self, *where: Any, **more: Any) -> None:
        if self.refusals:
            self.refusals -= 1
            raise errors.Unavailable("not yet")

    async def get(self, *where: Any) -> core.Namespace:
        if self.failure is not None:
            raise self.failure
        return core.Namespace(metadata=meta.ObjectMeta(name="kube-system", uid="cluster-1"))


async def test_an_api_server_that_never_answers_ends_the_start_within_a_minute() -> None:
    time = LeapingClock()
    begun = time.monotonic()
    with pytest.raises(errors.Unavailable, match="does not answer: not yet"):
        await leading.wait_for_answer(cast(Client, Server(10_000)), time)
    assert time.monotonic() - begun <= 60 - leading.ANSWER_TRY_S


async def test_any_answer_of_the_api_server_is_enough_for_the_start() -> None:
    time = LeapingClock()
    await leading.wait_for_answer(cast(Client, Server(3)), time)
    assert sum(time.slept) == 3

    class Refusing:
        async def request(self, *where: Any, **more: Any) -> None:
            raise kube_errors.Forbidden(kube_errors.Target("GET", "/healthz"), meta.Status(code=403))

    await leading.wait_for_answer(cast(Client, Refusing()), time)
    assert sum(time.slept) == 3


@pytest.mark.parametrize("elects", [True, False])
async def test_a_manager_without_an_api_server_ends(elects: bool, tmp_path: Path) -> None:
    time, kubeconfig = LeapingClock(), tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    user = {"name": "u", "user": {}}
    document = {"current-context": "c", "clusters": [cluster], "contexts": [context], "users": [user]}
    kubeconfig.write_text(json.dumps(document))
    read = options.read(
        [
            "--cloud-provider=cloudlycke",
            f"--kubeconfig={kubeconfig}",
            f"--leader-elect={str(elects).lower()}",
            "--secure-port=0",
        ]
    )
    assert not read.problems
    with pytest.raises(errors.Unavailable, match="does not answer"):
        async with asyncio.timeout(60):
            await Assembly(read.options, {}, time=time).run()


class Part:
    """A controller that notes when it runs."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self._notes = notes

    async def run(self) -> None:
        self._notes.append(self.name)
        await asyncio.Event().wait()


class SlowCloud(ScriptedProvider):
    """A cloud whose start does not end, or fails for good."""

    def __init__(self, failure: Exception | None = None) -> None:
        super().__init__("slow")
        self._failure = failure

    async def start(self) -> None:
        if self._failure is not None:
            raise self._failure
        await asyncio.Event().wait()


@pytest.fixture
def time() -> ManualClock:
    return ManualClock()


@pytest.fixture
def notes() -> list[str]:
    return []


def work(
    time: ManualClock,
    notes: list[str],
    *,
    server: Server | None = None,
    clouds: tuple[ScriptedProvider, ...] = (),
    interval_s: float = 0.0,
) -> leading.Startup:
    client = cast(Client, server or Server())
    return leading.Startup(
        client=client,
        identity=leading.ClusterIdentity(client, time, Cache()),
        providers=[cast(Provider, cloud) for cloud in clouds],
        controllers=[leading.Started(name, [cast(Leading, Part(name, notes))]) for name in ("first", "second")],
        start_interval_s=interval_s,
        metrics=ProcessMetrics(CollectorRegistry()),
        on_started=lambda name: notes.append(f"{name} started"),
        time=time,
        rng=random.Random(1),
    )


@contextlib.asynccontextmanager
async def running(work: Leading) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(work.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_controllers_start_in_turn_with_their_pause(time: ManualClock, notes: list[str]) -> None:
    async with running(work(time, notes, interval_s=10.0)):
        await time.advance(9)
        assert notes == ["first started", "first"]
        await time.advance(11)
        assert notes == ["first started", "first", "second started", "second"]


async def test_nothing_starts_before_the_api_server_is_healthy(time: ManualClock, notes: list[str]) -> None:
    async with running(work(time, notes, server=Server(refusals=3))):
        await time.advance(2.5)
        assert notes == []
        await time.advance(1)
        assert "first" in notes


async def test_an_api_server_that_stays_away_is_fatal(time: ManualClock, notes: list[str]) -> None:
    async with running(work(time, notes, server=Server(refusals=1000))) as task:
        await time.advance(12)
        with pytest.raises(errors.Unavailable, match="is not healthy"):
            task.result()
    assert notes == []


async def test_a_cloud_that_takes_long_to_start_holds_up_nobody(time: ManualClock, notes: list[str]) -> None:
    async with running(work(time, notes, clouds=(SlowCloud(), ScriptedProvider("quick")))) as task:
        await time.advance(leading.PROVIDER_PATIENCE_S + 0.1)
        assert "second" in notes
        assert not task.done()


async def test_a_start_that_no_retry_can_mend_ends_the_work(time: ManualClock, notes: list[str]) -> None:
    async with running(work(time, notes, clouds=(SlowCloud(errors.Invalid("no such project")),))) as task:
        await time.advance(1)
        with pytest.raises(BaseExceptionGroup) as failed:
            task.result()
    found = errors.only(failed.value)
    assert found is not None
    assert "no such project" in str(found)


async def test_the_clusters_identity_is_tried_again_until_it_is_known(time: ManualClock, notes: list[str]) -> None:
    server = Server(failure=errors.Unavailable("away"))
    made = work(time, notes, server=server)
    async with running(made), running(made.identity):
        await time.advance(1)
        assert (made.identity.uid, "first" in notes) == ("", True)
        server.failure = None
        await time.advance(leading.IDENTITY_RETRY_S)
        assert made.identity.uid == "cluster-1"


async def test_where_the_namespace_may_not_be_read_a_service_tells_the_cluster(time: ManualClock) -> None:
    services: Cache[core.Service] = Cache()
    identity = leading.ClusterIdentity(cast(Client, Server(failure=errors.Denied("forbidden"))), time, services)
    await identity.look()
    assert identity.uid == ""
    kubernetes = meta.ObjectMeta(name="kubernetes", namespace="default", uid="service-1")
    services.replace([core.Service(metadata=kubernetes)], "1")
    assert identity.uid == "service-1"


async def test_objects_are_looked_at_anew_after_once_to_twice_the_period(time: ManualClock) -> None:
    cache: Cache[Any] = Cache()
    cache.replace([core.Node(metadata=meta.ObjectMeta(name="n"))], "1")
    heard: list[str] = []
    cache.on_change(lambda change: heard.append(change.key))
    heard.clear()
    task = asyncio.create_task(leading.Resync([cache], 100.0, time, random.Random(3)).run())
    await time.advance(99)
    assert heard == []
    await time.advance(101)
    assert len(heard) >= 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
