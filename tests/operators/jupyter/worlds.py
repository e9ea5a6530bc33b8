"""A namespace of a shared API server with an operator for it alone; and what a kubelet would say about its pods.

In: a server. Out: `World`. The pods run nowhere: `runs` and `stops` write the statuses that a kubelet writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

from tests import servers
from tests.waiting import until

from bedplate.api.resources import CONFIG_MAPS, CRDS, EVENTS, NAMESPACES, PODS, SECRETS, SERVICES
from bedplate.kube import Client, config
from bedplate.kube import errors as kube_errors
from bedplate.operators.jupyter import crd, names, options
from bedplate.operators.jupyter.assembly import Assembly
from bedplate.operators.jupyter.kernel import KERNELS

IMAGE = "example/sidecar:1"
KINDS = {"Service": SERVICES.raw(), "ConfigMap": CONFIG_MAPS.raw(), "Secret": SECRETS.raw(), "Pod": PODS.raw()}


def spec(**changes: Any) -> dict[str, Any]:
    """The smallest spec, with these changes; None leaves a field out."""
    given = {
        "kernel_id": str(uuid.UUID(int=7)),
        "uid": 1000,
        "gid": 1000,
        "pod": {"containers": [{"name": "kernel", "image": "example/kernel:1"}]},
        **changes,
    }
    return {name: value for name, value in given.items() if value is not None}


async def install(client: Client) -> None:
    """The definition, which all tests on a server share."""
    with contextlib.suppress(kube_errors.AlreadyExists):
        await client.create(CRDS, crd.definition())

    async def is_served() -> bool:
        try:
            await client.list(KERNELS, "default")
        except (kube_errors.NotFound, kube_errors.UnexpectedAnswer):
            return False
        return True

    await until(is_served, f"{names.CRD} served")


class World:
    """One namespace with its kernels."""

    def __init__(self, server: servers.Server, client: Client) -> None:
        self.server = server
        self.client = client
        self.id = uuid.uuid4().hex[:8]
        self.namespace = f"kernels-{self.id}"

    @contextlib.asynccontextmanager
    async def operator(self, **flags: str) -> AsyncIterator[Assembly]:
        """The operator, for this namespace alone."""
        chosen = {
            "kubeconfig": str(self.server.kubeconfig),
            "namespace": self.namespace,
            "sidecar_image": IMAGE,
            "metrics_bind_address": "0",
            "health_probe_bind_address": "0",
            **flags,
        }
        reading = options.read([f"--{name.replace('_', '-')}={value}" for name, value in chosen.items()])
        assert not reading.problems
        assembly = Assembly(reading.options, {})
        running = asyncio.ensure_future(assembly.run())
        try:
            yield assembly
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def create(self, name: str, **changes: Any) -> dict[str, Any]:
        body = {"metadata": {"name": name}, "spec": spec(**changes)}
        return await self.client.create(KERNELS.raw(), body, self.namespace)

    async def kernel(self, name: str) -> dict[str, Any]:
        return await self.client.get(KERNELS.raw(), name, self.namespace)

    async def objects(self) -> dict[str, list[dict[str, Any]]]:
        """The objects of kernels, by kind."""
        selector = f"{names.LABEL_MANAGED_BY}={names.OPERATOR}"
        return {
            kind: (await self.client.list(ref, self.namespace, label_selector=selector)).items
            for kind, ref in KINDS.items()
        }

    async def made(self, name: str) -> dict[str, dict[str, Any]]:
        """The objects of this kernel, one of each kind, once they are all there."""

        async def complete() -> dict[str, dict[str, Any]] | None:
            own = {
                kind: [one for one in items if one["metadata"]["ownerReferences"][0]["name"] == name]
                for kind, items in (await self.objects()).items()
            }
            if not all(len(items) == 1 for items in own.values()):
                return None
            return {kind: items[0] for kind, items in own.items()}

        found = await until(complete, f"the objects of {name}")
        assert found is not None
        return found

    async def condition(self, name: str, status: str) -> dict[str, Any]:
        """The kernel's Ready condition, once it has this status."""

        async def ready() -> dict[str, Any] | None:
            shown = (await self.kernel(name)).get("status") or {}
            return next((one for one in shown.get("conditions", ()) if one["status"] == status), None)

        found = await until(ready, f"{name} Ready={status}")
        assert found is not None
        return found

    async def is_gone(self, name: str) -> bool:
        try:
            await self.kernel(name)
        except kube_errors.NotFound:
            return True
        return False

    async def is_empty(self) -> bool:
        """Whether no object of a kernel is left; a pod that no kubelet lets go of counts as gone once it is deleted."""
        return not any(one for items in (await self.objects()).values() for one in items if not _is_deleting(one))

    async def events(self, name: str) -> list[str]:
        """The reasons of the events about a kernel."""
        found = (await self.client.list(EVENTS, self.namespace)).items
        return [one.reason for one in found if one.involved_object.name == name]

    # What a kubelet does

    async def runs(self, pod: dict[str, Any], address: str = "10.1.2.3") -> None:
        states = [{"name": one["name"], "ready": True, "state": {"running": {}}} for one in pod["spec"]["containers"]]
        await self._status(pod, "Running", states, podIP=address, podIPs=[{"ip": address}])

    async def stops(self, pod: dict[str, Any], *containers: str, code: int = 1) -> None:
        states = []
        for one in pod["spec"]["containers"]:
            over = {"terminated": {"exitCode": code, "reason": "Error", "containerID": "test://1"}}
            stopped = one["name"] in containers
            states.append({"name": one["name"], "ready": not stopped, "state": over if stopped else {"running": {}}})
        await self._status(pod, "Running", states)

    async def _status(self, pod: dict[str, Any], phase: str, states: list[dict[str, Any]], **more: Any) -> None:
        full = [{"image": "x", "imageID": "x", "restartCount": 0, **state} for state in states]
        body = {"status": {"phase": phase, "containerStatuses": full, **more}}
        await self.client.patch(PODS.raw(), pod["metadata"]["name"], body, self.namespace, subresource="status")


def _is_deleting(obj: dict[str, Any]) -> bool:
    return "deletionTimestamp" in obj["metadata"]


@contextlib.asynccontextmanager
async def world_on(server: servers.Server) -> AsyncIterator[World]:
    """A world on a server; its namespace and what is in it are removed at the end."""
    settings = config.load(server.kubeconfig, environ={}).with_rate(-1, 1)
    async with Client(settings) as client:
        world = World(server, client)
        await install(client)
        await client.create(NAMESPACES, {"metadata": {"name": world.namespace}})
        try:
            yield world
        finally:
            await client.delete_collection(KERNELS, world.namespace)
            await client.delete_collection(PODS, world.namespace, grace_period_s=0)
            await client.delete(NAMESPACES, world.namespace)
