"""The node controllers on a server, with a scripted cloud: nodes of one test, below a label of its own."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry
from tests.cloud.scripted import ScriptedProvider
from tests.waiting import until

from bedplate.api import core
from bedplate.api.names import TAINT_UNINITIALIZED
from bedplate.api.resources import EVENTS, NODES
from bedplate.cloud.controllers import lifecycle, node
from bedplate.cloud.routing import Clouds
from bedplate.kube import Client, errors
from bedplate.kube.transport import Request, Response
from bedplate.runtime.cache import Cache
from bedplate.runtime.events import EventRecorder
from bedplate.runtime.manager import Leading
from bedplate.runtime.reflector import Reflector

LABEL = "bedplate.test/cluster"
TAINT = {"key": TAINT_UNINITIALIZED, "value": "true", "effect": "NoSchedule"}


class CountingClient(Client):
    """Records every write (method, path, body); `before` runs ahead of each and may get in the way."""

    writes: list[tuple[str, str, Any]]
    before: Callable[[str, str], Awaitable[None]] | None = None

    async def _perform(self, request: Request) -> Response:
        if request.target.method != "GET" and "/events" not in request.target.path:
            if self.before is not None:
                await self.before(request.target.method, request.target.path)
            self.writes.append(
                (request.target.method, request.target.path, msgspec.json.decode(request.body or b"null"))
            )
        return await super()._perform(request)


class NodeCluster:
    """Nodes of one test, and the controllers that look at them and at no others."""

    def __init__(self, client: Client, own: CountingClient) -> None:
        self.client, self.own = client, own
        self.mark = uuid.uuid4().hex[:8]
        self.cloud = ScriptedProvider("fake")
        self.nodes: Cache[core.Node] = Cache()
        self.registry = CollectorRegistry()
        self.made: list[str] = []

    def name(self, short: str) -> str:
        return f"{short}-{self.mark}"

    # What tests do to the cluster

    async def join(
        self, short: str, *, taints: tuple[dict[str, str], ...] = (TAINT,), ready: str = "True", **parts: Any
    ) -> core.Node:
        """A kubelet registers its node; the name as given, with the test's mark."""
        name = self.name(short)
        metadata = {"name": name, **parts.get("metadata", {})}
        metadata["labels"] = {LABEL: self.mark, **metadata.get("labels", {})}
        spec = {"taints": list(taints), **parts.get("spec", {})}
        self.made.append(name)
        # A kubelet registers with its status: one write, so that none of the controllers' comes in between.
        status = {"conditions": [{"type": "Ready", "status": ready, "reason": "Test"}], **parts.get("status", {})}
        return await self.client.create(NODES, {"metadata": metadata, "spec": spec, "status": status})

    async def report(self, short: str, ready: str, **status: Any) -> core.Node:
        """A kubelet reports its condition."""
        conditions = [{"type": "Ready", "status": ready, "reason": "Test"}]
        body = {"status": {"conditions": conditions, **status}}
        return await self.client.patch(NODES, self.name(short), body, subresource="status")

    async def get(self, short: str) -> core.Node:
        return await self.client.get(NODES, self.name(short))

    async def exists(self, short: str) -> bool:
        try:
            await self.get(short)
        except errors.NotFound:
            return False
        return True

    async def events(self, short: str, reason: str = "") -> list[core.Event]:
        selector = f"involvedObject.name={self.name(short)}"
        found = await self.client.list(EVENTS, "default", field_selector=selector)
        return [one for one in found.items if reason in ("", one.reason)]

    def writes(self, short: str) -> list[tuple[str, str, Any]]:
        """The controllers' writes to this node, apart from events."""
        name = self.name(short)
        return [one for one in self.own.writes if f"/nodes/{name}" in one[1]]

    async def initialised(self, short: str) -> core.Node:
        """Wait until a node has no uninitialized taint and its addresses."""

        async def is_done() -> core.Node | None:
            found = await self.get(short)
            is_tainted = any(taint.key == TAINT_UNINITIALIZED for taint in found.spec.taints)
            return None if is_tainted or not await self.events(short, "Synced") else found

        found: core.Node = await until(is_done)
        return await self.get(found.name.removesuffix(f"-{self.mark}"))

    # The controllers

    def clouds(self, *others: ScriptedProvider) -> Clouds:
        return Clouds([self.cloud, *others])

    @contextlib.asynccontextmanager
    async def node_controller(self, clouds: Clouds | None = None, **options: Any) -> AsyncIterator[None]:
        recorder = EventRecorder(self.client, node.COMPONENT)
        chosen = node.NodeOptions(**{"node_status_update_frequency_s": 0.5, **options})
        controller = node.NodeController(
            self.own, clouds or self.clouds(), self.nodes, recorder, chosen, registry=self.registry
        )
        async with self._running(recorder, controller.parts()):
            yield

    @contextlib.asynccontextmanager
    async def lifecycle(self, clouds: Clouds | None = None, **options: Any) -> AsyncIterator[None]:
        recorder = EventRecorder(self.client, lifecycle.COMPONENT)
        fast = {"node_monitor_period_s": 0.3, "node_startup_grace_period_s": 0.0}
        chosen = lifecycle.LifecycleOptions(**{**fast, **options})
        controller = lifecycle.LifecycleController(
            self.own, clouds or self.clouds(), self.nodes, recorder, chosen, registry=self.registry
        )
        async with self._running(recorder, controller.parts()):
            yield

    @contextlib.asynccontextmanager
    async def _running(self, recorder: EventRecorder, parts: list[Leading]) -> AsyncIterator[None]:
        reflector = Reflector(self.client, NODES, self.nodes, label_selector=f"{LABEL}={self.mark}")
        tasks = [asyncio.create_task(one.run()) for one in (reflector, recorder, *parts)]
        try:
            await self.nodes.synced.wait()
            yield
            for task in tasks:
                assert not task.done(), task
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def clean(self) -> None:
        for name in self.made:
            with contextlib.suppress(errors.NotFound):
                await self.client.delete(NODES, name)
