"""The runtime against a real and an embedded API server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests import servers
from tests.waiting import DEADLINE_S, until

from bedplate.api import resources
from bedplate.core import errors
from bedplate.kube import Client, config
from bedplate.kube.recording import RecordingClient
from bedplate.runtime.cache import Cache, Change
from bedplate.runtime.controller import Controller
from bedplate.runtime.events import EventRecorder, reference
from bedplate.runtime.leaderelection import Elector, FencedClient, LeadershipLost, Timing
from bedplate.runtime.manager import Manager
from bedplate.runtime.reflector import Reflector

REF = resources.CONFIG_MAPS.raw()
QUICK = Timing(lease_s=3, renew_s=2, retry_s=0.3)


@contextlib.asynccontextmanager
async def background(*coroutines: Any) -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.ensure_future(one) for one in coroutines]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def put(client: Client, namespace: str, name: str, value: str, **labels: str) -> None:
    body = {"metadata": {"name": name, "labels": labels}, "data": {"value": value}}
    try:
        await client.create(REF, body, namespace)
    except errors.AlreadyExists:
        await client.patch(REF, name, body, namespace)


async def test_a_cache_follows_creations_changes_and_deletions(client: Client, namespace: str) -> None:
    await put(client, namespace, "before", "1")
    cache: Cache[Any] = Cache()
    changes: list[Change[Any]] = []
    cache.on_change(changes.append)
    async with background(Reflector(client, REF, cache, namespace=namespace).run()):
        await until(cache.synced.is_set)
        assert f"{namespace}/before" in cache
        await put(client, namespace, "after", "1")
        await until(lambda: f"{namespace}/after" in cache)
        await put(client, namespace, "after", "2")
        await until(lambda: (cache.get(f"{namespace}/after") or {}).get("data") == {"value": "2"})
        await client.delete(REF, "after", namespace)
        await until(lambda: f"{namespace}/after" not in cache)
    mine = [change for change in changes if change.key.endswith("/after")]
    assert [(one.old is None, one.new is None) for one in mine] == [(True, False), (False, False), (False, True)]


async def test_a_cache_below_a_selector_sees_objects_enter_and_leave(client: Client, namespace: str) -> None:
    cache: Cache[Any] = Cache()
    async with background(Reflector(client, REF, cache, namespace=namespace, label_selector="in=yes").run()):
        await until(cache.synced.is_set)
        await put(client, namespace, "a", "1", **{"in": "no"})
        await put(client, namespace, "b", "1", **{"in": "yes"})
        await until(lambda: cache.keys() == [f"{namespace}/b"])
        await put(client, namespace, "a", "1", **{"in": "yes"})
        await until(lambda: len(cache) == 2)
        await put(client, namespace, "b", "1", **{"in": "no"})
        await until(lambda: cache.keys() == [f"{namespace}/a"])


async def test_after_forgotten_history_a_cache_lists_again_and_is_right(
    client: Client, namespace: str, server: servers.Server
) -> None:
    """The watch ends, history is forgotten, and the resumed watch gets 410."""
    ref = resources.custom("", "v1", "podtemplates", "PodTemplate", namespaced=True).raw()
    template = {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}
    cache: Cache[Any] = Cache()

    class Short:
        """The client, with watches that end after a second."""

        list = client.list

        def watch_batches(self, *arguments: Any, **options: Any) -> Any:
            return client.watch_batches(*arguments, timeout_s=1, **options)

    reflector = Reflector(Short(), ref, cache, namespace=namespace)
    await client.create(ref, {"metadata": {"name": "gone"}, **template}, namespace)
    async with background(reflector.run()):
        await until(cache.synced.is_set)
        relists = reflector.relists
        await client.delete(ref, "gone", namespace)
        number = 0
        async with asyncio.timeout(DEADLINE_S):
            while reflector.relists == relists:
                # Other kinds move the revision on while this kind's watch hears nothing, then history is dropped.
                await put(client, namespace, "noise", str(number))
                number += 1
                await asyncio.to_thread(server.forget_history)
                await asyncio.sleep(0.3)
        await client.create(ref, {"metadata": {"name": "new"}, **template}, namespace)
        await until(lambda: cache.keys() == [f"{namespace}/new"])


async def test_a_controller_writes_and_hears_of_its_own_writes(
    client: Client, namespace: str, settings: config.ClientConfig
) -> None:
    manager = Manager(client)
    cache = manager.cache(REF, namespace=namespace, label_selector="count=yes")
    assert manager.cache(REF, namespace=namespace, label_selector="count=yes") is cache

    async def reconcile(key: str) -> None:
        obj = cache.get(key)
        if obj is not None and int(obj["data"]["value"]) < 5:
            change = {"data": {"value": str(int(obj["data"]["value"]) + 1)}}
            await client.patch(REF, obj["metadata"]["name"], change, namespace)

    manager.add(Controller("count", reconcile, workers=2).watches(cache))
    for name in ("a", "b", "c"):
        await put(client, namespace, name, "0", count="yes")
    async with background(manager.run()):
        await until(lambda: len(cache) == 3 and all(one["data"]["value"] == "5" for one in cache))
        assert manager.has_synced


async def test_a_dry_run_changes_nothing_and_tells_what_it_would_do(
    settings: config.ClientConfig, client: Client, namespace: str
) -> None:
    await put(client, namespace, "a", "0")
    async with RecordingClient(settings) as dry:
        await dry.patch(REF, "a", {"data": {"value": "1"}}, namespace)
        await dry.delete(REF, "a", namespace)
        assert [(write.method, write.name) for write in dry.writes] == [("PATCH", "a"), ("DELETE", "a")]
    assert (await client.get(REF, "a", namespace))["data"] == {"value": "0"}


async def test_of_several_electors_one_leads_and_a_clean_stop_hands_over_at_once(
    client: Client, namespace: str
) -> None:
    leading: list[str] = []

    def candidate(own: str) -> tuple[Elector, Callable[[], Any]]:
        elector = Elector(client, "lock", namespace, own=own, timing=QUICK)

        async def work() -> None:
            leading.append(own)
            await asyncio.Event().wait()

        return elector, work

    pairs = [candidate(own) for own in "abc"]
    async with background(*[elector.run(work) for elector, work in pairs]) as tasks:
        await until(lambda: leading)
        await asyncio.sleep(2 * QUICK.lease_s)
        assert len(leading) == 1
        first = "abc".index(leading[0])
        tasks[first].cancel()
        await until(lambda: len(leading) == 2)
        lease = await client.get(resources.LEASES, "lock", namespace)
        assert lease.spec.holder_identity == leading[1]
        assert lease.spec.lease_transitions == 1


async def test_a_lease_deleted_by_hand_is_made_anew_by_its_holder(client: Client, namespace: str) -> None:
    elector = Elector(client, "lock", namespace, own="a", timing=QUICK)
    async with background(elector.run(asyncio.Event().wait)) as (task,):
        await until(lambda: elector.is_leading)
        await client.delete(resources.LEASES, "lock", namespace)

        async def held() -> bool:
            with contextlib.suppress(errors.NotFound):
                return (await client.get(resources.LEASES, "lock", namespace)).spec.holder_identity == "a"
            return False

        async with asyncio.timeout(DEADLINE_S):
            while not await held():
                await asyncio.sleep(0.1)
        assert not task.done()


async def test_a_fenced_client_reads_but_does_not_write_unless_leading(
    settings: config.ClientConfig, namespace: str
) -> None:
    def refuse() -> None:
        raise LeadershipLost("not the leader")

    async with FencedClient(settings, refuse) as fenced:
        await fenced.list(REF, namespace)
        for attempt in (
            fenced.create(REF, {"metadata": {"name": "x"}}, namespace),
            fenced.patch(REF, "x", {}, namespace),
            fenced.delete(REF, "x", namespace),
        ):
            with pytest.raises(LeadershipLost):
                await attempt


async def test_events_reach_the_server_and_are_counted_there(client: Client, namespace: str) -> None:
    recorder = EventRecorder(client, "tester")
    await put(client, namespace, "a", "0")
    about = reference(resources.CONFIG_MAPS, await client.get(REF, "a", namespace))
    async with background(recorder.run()):
        for _ in range(3):
            recorder.event(about, "Warning", "Tested", "it was tested")
        await recorder.drain(DEADLINE_S)
    found = await client.list(resources.EVENTS.raw(), namespace, field_selector="reason=Tested")
    assert [(one["count"], one["message"], one["involvedObject"]["name"]) for one in found.items] == [
        (3, "it was tested", "a")
    ]
