"""The manager: shared caches, and the order in which parts start and stop."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from bedplate.api.resources import CONFIG_MAPS
from bedplate.kube.codec import ListResult
from bedplate.runtime.controller import Controller
from bedplate.runtime.manager import Manager

REF = CONFIG_MAPS.raw()


class Source:
    """A server with one object, on which nothing happens."""

    async def list(self, ref: Any, namespace: str | None = None, **_: str) -> ListResult[Any]:
        return ListResult([{"metadata": {"name": "a", "resourceVersion": "1"}}], "1")

    async def watch_batches(self, ref: Any, namespace: str | None = None, **_: str) -> AsyncGenerator[Any, None]:
        await asyncio.Event().wait()
        yield


def by_name(item: dict[str, Any]) -> list[str]:
    return [item["metadata"]["name"]]


def by_nothing(item: dict[str, Any]) -> list[str]:
    return ["all"]


async def test_two_who_share_a_cache_both_get_their_indexes() -> None:
    manager = Manager(Source())
    cache = manager.cache(REF, indexes={"name": by_name})
    assert manager.cache(REF, indexes={"all": by_nothing}) is cache
    task = asyncio.create_task(manager.run())
    await cache.synced.wait()
    assert len(cache.by_index("name", "a")) == len(cache.by_index("all", "all")) == 1
    with pytest.raises(RuntimeError, match="before"):
        manager.cache(REF, namespace="other")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_controllers_stop_before_what_is_served() -> None:
    order: list[str] = []
    begun = asyncio.Event()

    async def reconcile(key: str) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            order.append("controller")

    async def serve() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            order.append("served")

    manager = Manager(Source())
    cache = manager.cache(REF)
    manager.add(Controller("test", reconcile).watches(cache))
    manager.serve(serve)
    task = asyncio.create_task(manager.run())
    async with asyncio.timeout(30):
        await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert order == ["controller", "served"]


async def test_a_part_that_fails_stops_the_others_and_is_reported() -> None:
    stopped = asyncio.Event()

    async def fail() -> None:
        raise OSError("the port is taken")

    async def serve() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    manager = Manager(Source())
    manager.serve(serve)
    manager.serve(fail)
    with pytest.raises(OSError, match="port"):
        await manager.run()
    assert stopped.is_set()
