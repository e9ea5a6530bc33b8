"""A cloud in memory for tests of controllers: machines that one adds, stops and removes, and answers one can script.

`ScriptedProvider("fake")` answers for `fake://<id>`. `fault` is asked before every call and may return an exception to
raise; `hold` makes every call wait until it is set again. `calls` records (operation, node, fresh).
`FAULTS` holds every kind of failure a cloud can have that is not absence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp

from bedplate.api import core, meta
from bedplate.cloud.errors import AmbiguousInstance, CloudError, InstanceNotFound, RetryError
from bedplate.cloud.interface import (
    Address,
    InstanceMetadata,
    Instances,
    LegacyInstances,
    Listing,
    LoadBalancers,
    Routes,
)
from bedplate.core import errors

FAULTS: dict[str, Callable[[], Exception]] = {
    "timeout": TimeoutError,
    "reset": ConnectionResetError,
    "tls": lambda: aiohttp.ClientError("certificate verify failed"),
    "401": lambda: errors.Denied("401 unauthorized"),
    "403": lambda: errors.Denied("403 forbidden"),
    "404-route": lambda: errors.NotFound("404 the requested path could not be found"),
    "404-cloud": lambda: CloudError("404 page of a proxy"),
    "408": lambda: errors.Unavailable("408 request timeout"),
    "409": lambda: errors.Conflict("409 conflict"),
    "429": lambda: RetryError("429 slow down", 30.0),
    "500": lambda: CloudError("500 internal error"),
    "503": lambda: errors.Unavailable("503 unavailable"),
    "bad-json": lambda: ValueError("the body is not JSON"),
    "bug": lambda: KeyError("id"),
    "ambiguous": lambda: AmbiguousInstance("two instances of that name"),
}


@dataclass
class Machine:
    """One machine of the cloud."""

    id: str
    name: str = ""
    type: str = "small"
    addresses: tuple[Address, ...] = (Address("InternalIP", "10.0.0.1"),)
    zone: str = "zone-a"
    region: str = "region-1"
    labels: Mapping[str, str] = field(default_factory=dict)
    is_off: bool = False


class ScriptedProvider:
    """A provider with instances alone; tests set `load_balancers` or `routes` when they need them."""

    has_cluster_id = True
    legacy: LegacyInstances | None = None
    load_balancers: LoadBalancers | None = None
    routes: Routes | None = None

    def __init__(self, name: str = "fake", schemes: tuple[str, ...] = ()) -> None:
        self.name = name
        self.schemes = schemes or (name,)
        self.machines: dict[str, Machine] = {}
        self.foreign: dict[str, str] = {}
        self.fault: Callable[[str, core.Node], Exception | None] = lambda operation, node: None
        self.hold = asyncio.Event()
        self.hold.set()
        self.calls: list[tuple[str, str, bool]] = []
        self.listed_without: set[str] = set()
        self.gives_none = False
        self.gives_no_id = False
        self.instances: Instances | None = ScriptedInstances(self)

    def add(self, id: str, name: str = "", **fields: Any) -> Machine:
        self.machines[id] = Machine(id, name or id, **fields)
        return self.machines[id]

    def provider_id(self, id: str) -> str:
        return f"{self.schemes[0]}://{id}"

    def asked(self, operation: str, name: str = "") -> int:
        """How often an operation was called (for one node)."""
        return sum(call[0] == operation and name in ("", call[1]) for call in self.calls)

    async def start(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def check_ready(self) -> None:
        return None

    def is_foreign(self, provider_id: str) -> str:
        return self.foreign.get(provider_id, "")

    async def find(self, operation: str, node: core.Node, fresh: bool) -> Machine:
        self.calls.append((operation, node.name, fresh))
        await self.hold.wait()
        if (failure := self.fault(operation, node)) is not None:
            raise failure
        if node.spec.provider_id:
            found = self.machines.get(node.spec.provider_id.partition("://")[2])
        else:
            found = next((one for one in self.machines.values() if one.name == node.name), None)
        if found is None:
            raise InstanceNotFound(f"{self.name} has no instance of {node.name}")
        return found


class ScriptedInstances:
    """The provider's machines, as controllers ask for them."""

    def __init__(self, cloud: ScriptedProvider) -> None:
        self._cloud = cloud

    async def exists(self, node: core.Node, *, fresh: bool = False) -> bool:
        await self._cloud.find("exists", node, fresh)
        return True

    async def is_shutdown(self, node: core.Node, *, fresh: bool = False) -> bool:
        return (await self._cloud.find("is_shutdown", node, fresh)).is_off

    async def metadata(self, node: core.Node) -> InstanceMetadata | None:
        found = await self._cloud.find("metadata", node, False)
        if self._cloud.gives_none:
            return None
        provider_id = "" if self._cloud.gives_no_id else self._cloud.provider_id(found.id)
        return InstanceMetadata(provider_id, found.type, found.addresses, found.zone, found.region, found.labels)

    def was_absent(self, name: str, within_s: float) -> bool:
        return name in self._cloud.listed_without

    async def listing(self, nodes: Sequence[core.Node]) -> Listing:
        self._cloud.calls.append(("listing", "", True))
        await self._cloud.hold.wait()
        if (failure := self._cloud.fault("listing", node())) is not None:
            raise failure
        there = {self._cloud.provider_id(id) for id in self._cloud.machines}
        return Listing(len(there), frozenset(one.name for one in nodes if one.spec.provider_id in there))


def node(
    name: str = "n1",
    *,
    provider_id: str = "",
    uid: str = "",
    ready: str | None = "False",
    taints: tuple[core.Taint, ...] = (),
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    addresses: tuple[tuple[str, str], ...] = (),
    created: datetime = datetime(2025, 1, 1, tzinfo=UTC),
    deleted: datetime | None = None,
    version: str = "1",
) -> core.Node:
    """A Node as a cache would have it; `ready` None: without the condition."""
    conditions = (meta.Condition(type="Ready", status=ready),) if ready is not None else ()
    return core.Node(
        metadata=meta.ObjectMeta(
            name=name,
            uid=uid or f"uid-{name}",
            resource_version=version,
            labels=dict(labels or {}),
            annotations=dict(annotations or {}),
            creation_timestamp=created,
            deletion_timestamp=deleted,
        ),
        spec=core.NodeSpec(provider_id=provider_id, taints=taints),
        status=core.NodeStatus(
            conditions=conditions, addresses=tuple(core.NodeAddress(type=one, address=two) for one, two in addresses)
        ),
    )


class Events:
    """A recorder that keeps what it is told: (node, type, reason, message)."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str, str]] = []

    def event(self, regarding: meta.ObjectReference, type: str, reason: str, message: str) -> None:
        self.told.append((regarding.name, type, reason, message))

    def of(self, reason: str, name: str = "") -> list[str]:
        """The messages of that reason (about one node)."""
        return [one[3] for one in self.told if one[2] == reason and name in ("", one[0])]
