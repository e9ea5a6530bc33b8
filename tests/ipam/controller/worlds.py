"""A corner of a shared API server for one test of the controller: a pools namespace, a label, nodes, and a controller.

In: a server. Out: `World`. Names of nodes get a prefix of the world's own, which keeps their order; every node has
the world's label, and `spec` adds it to a pool's selector, so that nodes of other tests are never selected. What was
made is deleted at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from tests import servers
from tests.waiting import until

from bedplate.api.resources import CRDS, EVENTS, LEASES, NAMESPACES, NODES, ResourceRef
from bedplate.ipam.controller import options
from bedplate.ipam.controller.assembly import LEASE, Assembly
from bedplate.ipam.pools import CIDRPOOLS, IPPOOLS
from bedplate.kube import Client, config
from bedplate.kube import errors as kube_errors
from bedplate.kube.options import PatchType
from bedplate.runtime.leaderelection import Timing

LABEL = "bedplate.test/world"
KINDS: dict[str, ResourceRef[Any]] = {"IPPool": IPPOOLS.raw(), "CIDRPool": CIDRPOOLS.raw()}
CRD_FILES = sorted((Path(__file__).parents[3] / "deploy" / "crds").glob("nv-ipam*.yaml"))


def loose(definition: dict[str, Any]) -> dict[str, Any]:
    """A definition without rules about the spec, as the original's: every mistake reaches webhook and controller."""
    (version,) = definition["spec"]["versions"]
    del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"]
    return definition


async def install_pools(client: Client) -> None:
    """The custom resources, which all tests on a server share."""
    for file in CRD_FILES:
        definition = loose(yaml.safe_load(file.read_text()))
        with contextlib.suppress(kube_errors.AlreadyExists):
            await client.create(CRDS, definition)
        name = definition["metadata"]["name"]

        async def is_served(name: str = name) -> bool:
            found = await client.get(CRDS, name)
            conditions = (found.get("status") or {}).get("conditions") or ()
            return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

        await until(is_served, f"{name} established")
    for ref in KINDS.values():

        async def is_listed(ref: ResourceRef[Any] = ref) -> bool:
            try:
                await client.list(ref, "default")
            except (kube_errors.NotFound, kube_errors.UnexpectedAnswer):
                return False
            return True

        await until(is_listed, f"{ref} served")


class World:
    """One test's nodes and pools."""

    def __init__(self, server: servers.Server, client: Client) -> None:
        self.server = server
        self.client = client
        self.id = uuid.uuid4().hex[:8]
        self.namespace = f"pools-{self.id}"
        self.nodes: list[str] = []
        self.assemblies: list[Assembly] = []

    async def __aenter__(self) -> World:
        await install_pools(self.client)
        await self.client.create(NAMESPACES, {"metadata": {"name": self.namespace}})
        return self

    async def __aexit__(self, *exc: object) -> None:
        for ref in KINDS.values():
            await self.client.delete_collection(ref, self.namespace)
        await self.client.delete_collection(NODES, label_selector=f"{LABEL}={self.id}")
        with contextlib.suppress(kube_errors.NotFound):
            await self.client.delete(LEASES, LEASE, self.namespace)
        await self.client.delete(NAMESPACES, self.namespace)

    # Nodes

    def node(self, name: str) -> str:
        """A node's name in this world."""
        return f"w{self.id}-{name}"

    def local(self, name: str) -> str:
        """And back."""
        return name.removeprefix(f"w{self.id}-")

    async def add(self, *names: str, labels: Mapping[str, str] | None = None) -> None:
        for name in names:
            metadata = {"name": self.node(name), "labels": {**(labels or {}), LABEL: self.id}}
            await self.client.create(NODES.raw(), {"metadata": metadata})

    async def remove(self, *names: str) -> None:
        for name in names:
            await self.client.delete(NODES, self.node(name))

    async def relabel(self, name: str, labels: Mapping[str, str], *, stays: bool = True) -> None:
        """Replace all labels; `stays`: the world's own among them."""
        wanted = {**labels, **({LABEL: self.id} if stays else {})}
        patch = [{"op": "add", "path": "/metadata/labels", "value": wanted}]
        await self.client.patch(NODES.raw(), self.node(name), patch, type=PatchType.JSON)

    async def beat(self, name: str, count: int) -> None:
        """What a kubelet does all the time."""
        condition = {"type": "Ready", "status": "True", "reason": "Test", "message": f"beat {count}"}
        body = {"status": {"conditions": [condition]}}
        await self.client.patch(NODES.raw(), self.node(name), body, subresource="status")

    # Pools

    def spec(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """A spec that selects nodes of this world alone."""
        own = {"key": LABEL, "operator": "In", "values": [self.id]}
        given = spec.get("nodeSelector")
        terms = given["nodeSelectorTerms"] if given else []
        # An empty term selects nothing, and must stay like that.
        mine = [self._term(term, own) if term else term for term in terms] if given else [{"matchExpressions": [own]}]
        made = {**spec, "nodeSelector": {"nodeSelectorTerms": mine}}
        if "staticAllocations" in made:
            made["staticAllocations"] = [
                {**one, "nodeName": self.node(one["nodeName"])} if one.get("nodeName") else one
                for one in made["staticAllocations"]
            ]
        return made

    def _term(self, term: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
        fields = [{**one, "values": [self.node(v) for v in one["values"]]} for one in term.get("matchFields", ())]
        made = {**term, "matchExpressions": [*term.get("matchExpressions", ()), own]}
        return {**made, "matchFields": fields} if fields else made

    async def pool(self, kind: str, name: str, spec: Mapping[str, Any], **metadata: Any) -> None:
        body = {"metadata": {"name": name, "namespace": self.namespace, **metadata}, "spec": self.spec(spec)}
        await self.client.create(KINDS[kind], body)

    async def edit(self, kind: str, name: str, spec: Mapping[str, Any]) -> None:
        """Replace the spec, also while other clients write the pool."""
        patch = [{"op": "replace", "path": "/spec", "value": self.spec(spec)}]
        await self.client.patch(KINDS[kind], name, patch, self.namespace, type=PatchType.JSON)

    async def damage(self, kind: str, name: str, allocations: Sequence[Mapping[str, Any]]) -> None:
        """Write the status as another client would."""
        mine = [{**one, "nodeName": self.node(one["nodeName"])} for one in allocations]
        patch = {"status": {"allocations": mine}}
        await self.client.patch(KINDS[kind], name, patch, self.namespace, subresource="status")

    async def get(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = await self.client.get(KINDS[kind], name, self.namespace)
        return found

    async def allocations(self, kind: str, name: str) -> list[dict[str, str]]:
        """The status, with the names that the test gave."""
        found = await self.get(kind, name)
        entries = (found.get("status") or {}).get("allocations") or []
        return [{**one, "nodeName": self.local(one["nodeName"])} for one in entries]

    async def blocks(self, kind: str, name: str) -> dict[str, str]:
        """Node to block, `first-last` or a prefix."""
        entries = await self.allocations(kind, name)
        return {one["nodeName"]: one.get("prefix") or f"{one['startIP']}-{one['endIP']}" for one in entries}

    async def settles(self, kind: str, name: str, wanted: Any) -> None:
        """Wait until the status is this: a list of entries, or node to block."""
        seen: list[Any] = [None]

        async def is_so() -> bool:
            read = self.allocations if isinstance(wanted, list) else self.blocks
            seen[0] = await read(kind, name)
            return bool(seen[0] == wanted)

        await until(is_so, f"{kind} {name} is {wanted}", describe=lambda: seen[0])

    async def events(self, name: str, reason: str = "") -> list[dict[str, Any]]:
        """The Events about a pool."""
        found = await self.client.list(EVENTS.raw(), self.namespace, field_selector=f"involvedObject.name={name}")
        return [one for one in found.items if not reason or one["reason"] == reason]

    async def told(self, name: str, reason: str, text: str = "") -> dict[str, Any]:
        """Wait for an Event."""
        seen: list[dict[str, Any]] = []

        async def is_there() -> bool:
            seen[:] = [one for one in await self.events(name, reason) if text in one["message"]]
            return bool(seen)

        await until(is_there, f"event {reason} {text}")
        return seen[0]

    # Controllers

    def options(self, **more: str) -> options.Options:
        """Flags that keep controllers of tests apart."""
        flags = {
            "kubeconfig": str(self.server.kubeconfig),
            "ippools-namespace": self.namespace,
            "leader-elect-namespace": self.namespace,
            "metrics-bind-address": "0",
            "health-probe-bind-address": "0",
            **{key.replace("_", "-"): value for key, value in more.items()},
        }
        read = options.read([f"--{key}={value}" for key, value in flags.items()])
        assert not read.problems, read.problems
        return read.options

    @contextlib.asynccontextmanager
    async def controller(self, *, timing: Timing | None = None, **more: str) -> AsyncIterator[Assembly]:
        """A controller in this process, which must not fail before the test ends."""
        assembly = Assembly(self.options(**more), {}, timing=timing)
        task = asyncio.create_task(assembly.run())
        try:
            yield assembly
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def world_on(server: servers.Server) -> AsyncIterator[World]:
    """A world on this server."""
    settings = config.load(server.kubeconfig, environ={}).with_rate(-1, 1)
    async with Client(settings) as client, World(server, client) as world:
        yield world
