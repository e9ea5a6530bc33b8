"""The controllers as the flags make them."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from prometheus_client import CollectorRegistry
from tests.cloud.scripted import ScriptedProvider

from bedplate.api.meta import ObjectReference
from bedplate.cloud.controllers import node
from bedplate.cloud.manager.options import Options
from bedplate.cloud.manager.wiring import Caches, Wiring
from bedplate.cloud.routing import Clouds
from bedplate.core.clock import ManualClock
from bedplate.kube.client import Client
from bedplate.runtime.controller import Controller
from bedplate.runtime.events import Recorders


class Written:
    """A client that keeps what the events it is given are about."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def create(self, ref: Any, body: Any, namespace: str) -> None:
        self.names.append(body["involvedObject"]["name"])


async def test_events_of_nodes_give_way_to_nodes_that_wait_for_a_worker() -> None:
    time, written = ManualClock(), Written()
    recorders = Recorders(cast(Client, written), time)
    clouds = Clouds([ScriptedProvider("fake")], time=time)
    wiring = Wiring(Options(), clouds, Caches(), recorders, time, CollectorRegistry())
    controller, _ = wiring._node(cast(Client, None))
    assert isinstance(controller, Controller)
    recorder = recorders.get(node.COMPONENT)
    writing = asyncio.create_task(recorder.run())
    controller.queue.add("n2")
    recorder.event(ObjectReference(kind="Node", name="n1"), "Normal", "Synced", "done")
    await time.advance(1)
    assert written.names == []
    assert await controller.queue.get() == "n2"
    await time.advance(1)
    assert written.names == ["n1"]
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
