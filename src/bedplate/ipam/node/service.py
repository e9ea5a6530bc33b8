"""The calls of CNI plugins: from messages to the ledger, and from its answers to messages.

In: encoded requests. Out: encoded answers, or `Failed` with a gRPC code. Which address is given, and how it becomes
durable, is the ledger's; which reservations are dead is the collector's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from bedplate.core import errors
from bedplate.ipam import addresses
from bedplate.ipam.addresses import Network
from bedplate.ipam.node.grpcconnection import Call, Handler
from bedplate.ipam.node.http2 import Code, Failed
from bedplate.ipam.node.ledger import Ledger
from bedplate.ipam.node.pb import bedplate_ipam_pb2 as own_pb
from bedplate.ipam.node.pb import nvidia_ipam_pb2 as pb
from bedplate.ipam.node.poolconfig import PoolConfig
from bedplate.ipam.node.poolview import PoolView
from bedplate.ipam.node.readiness import Readiness
from bedplate.ipam.node.reservations import (
    AlreadyReserved,
    Exhausted,
    Owner,
    Refused,
    Reservation,
    StoreFailed,
    Wanted,
)
from bedplate.ipam.pools import cidrpool_key

__all__ = ["Collecting", "NodeService", "routes_of"]

M = TypeVar("M", bound=Message)
_PREFIX = b"/nvidia.ipam.node.v1.IPAMService/"
_OWN_PREFIX = b"/bedplate.ipam.node.v1.NodeService/"
_LONGEST_WAIT_S = 30.0
_UINT64 = (1 << 64) - 1
_CODES: Mapping[type[errors.BedplateError], Code] = {
    AlreadyReserved: Code.ALREADY_EXISTS,
    Exhausted: Code.RESOURCE_EXHAUSTED,
    Refused: Code.INVALID_ARGUMENT,
    StoreFailed: Code.INTERNAL,
}


class Collecting(Protocol):
    """Frees what is proven dead: `cleaner.Cleaner`."""

    async def collect(self, candidates: Sequence[Reservation]) -> int: ...


class NodeService:
    """Both services of the daemon."""

    def __init__(
        self,
        ledger: Ledger,
        view: PoolView,
        readiness: Readiness,
        collector: Collecting,
        *,
        on_exhausted: Callable[[str], None] | None = None,
    ) -> None:
        self._on_exhausted = on_exhausted
        self._ledger = ledger
        self._view = view
        self._readiness = readiness
        self._collector = collector

    def handlers(self) -> dict[bytes, Handler]:
        """What is served, by path."""
        methods: list[tuple[bytes, type[Message], Callable[[Any, Call], Awaitable[Message]]]] = [
            (_PREFIX + b"Allocate", pb.AllocateRequest, self.allocate),
            (_PREFIX + b"IsAllocated", pb.IsAllocatedRequest, self.is_allocated),
            (_PREFIX + b"Deallocate", pb.DeallocateRequest, self.deallocate),
            (_OWN_PREFIX + b"Collect", own_pb.CollectRequest, self.collect),
            (_OWN_PREFIX + b"Status", own_pb.StatusRequest, self.status),
        ]
        return {path: partial(_handle, kind, method) for path, kind, method in methods}

    async def allocate(self, request: pb.AllocateRequest, call: Call) -> pb.AllocateResponse:
        """ADD: an address of every pool, or none."""
        parameters = _checked(request)
        _note(call, parameters)
        keys = _pool_keys(parameters.pools, parameters.pool_type)
        configs = await self._known_pools(keys, call)
        _stop_if_gone(call)
        # The pools and their routes, as far as they were looked at.
        chosen: list[tuple[PoolConfig, tuple[str, ...]]] = []
        try:
            given = await self._ledger.allocate(_owner(parameters), self._in_turn(parameters, keys, configs, chosen))
        except Exhausted as err:
            if self._on_exhausted is not None:
                self._on_exhausted(err.pool)
            raise
        call.notes["addresses"] = [reservation.address for reservation in given]
        is_gateway = parameters.features.allocate_default_gateway
        kind = parameters.pool_type or pb.POOL_TYPE_IPPOOL
        return pb.AllocateResponse(
            allocations=[
                pb.AllocationInfo(
                    pool=name,
                    ip=f"{reservation.address}/{config.network.length}",
                    gateway="" if config.gateway is None or is_gateway else str(config.gateway),
                    pool_type=kind,
                    routes=[] if is_gateway else [pb.Route(dest=dest) for dest in routes],
                )
                for name, (config, routes), reservation in zip(parameters.pools, chosen, given, strict=True)
            ]
        )

    async def is_allocated(self, request: pb.IsAllocatedRequest, call: Call) -> pb.IsAllocatedResponse:
        """CHECK: whether every pool holds an address for the interface."""
        parameters = _checked(request)
        _note(call, parameters)
        _stop_if_gone(call)
        for name, key in zip(parameters.pools, _pool_keys(parameters.pools, parameters.pool_type), strict=True):
            if self._ledger.find(key, parameters.cni_containerid, parameters.cni_ifname) is None:
                raise Failed(Code.NOT_FOUND, f"pool {name!r} holds no address for this interface")
        return pb.IsAllocatedResponse()

    async def deallocate(self, request: pb.DeallocateRequest, call: Call) -> pb.DeallocateResponse:
        """DEL: container and interface are enough; without pools, in every pool."""
        parameters = request.parameters
        if not request.HasField("parameters"):
            raise _required("parameters")
        _check_interface(parameters, needs_pools=False)
        _note(call, parameters)
        _stop_if_gone(call)
        # A pool may be named twice.
        keys = set(_pool_keys(parameters.pools, parameters.pool_type)) if parameters.pools else None
        call.notes["released"] = await self._ledger.release(parameters.cni_containerid, parameters.cni_ifname, keys)
        return pb.DeallocateResponse()

    async def collect(self, request: own_pb.CollectRequest, call: Call) -> own_pb.CollectResponse:
        """GC: free what these pools hold for attachments that are not listed, and that are proven dead."""
        if not self._readiness.has_pods:
            raise Failed(Code.UNAVAILABLE, "pods have not been listed yet")
        valid = {(attachment.container_id, attachment.ifname) for attachment in request.valid}
        candidates = [
            reservation
            for key in dict.fromkeys(_pool_keys(request.pools, request.pool_type))
            for reservation in self._ledger.reservations(key)
            if (reservation.container_id, reservation.interface_name) not in valid
        ]
        released = await self._collector.collect(candidates) if candidates else 0
        call.notes.update(network=request.network, released=released, kept=len(candidates) - released)
        return own_pb.CollectResponse(released=released, kept=len(candidates) - released)

    async def status(self, request: own_pb.StatusRequest, call: Call) -> own_pb.StatusResponse:
        """STATUS: whether an ADD on these pools would be served."""
        if len(request.pools) > 2:
            raise Failed(Code.INVALID_ARGUMENT, "at most two pools are allowed")
        keys = _pool_keys(request.pools, request.pool_type)
        known = await self._known_pools(keys, call)
        configs = [self._config(key, known) for key in keys]
        usage = self._ledger.usage({config.key: config for config in configs})
        states = []
        for name, config in zip(request.pools, configs, strict=True):
            pool = usage[config.key]
            if not pool.free:
                raise Failed(Code.RESOURCE_EXHAUSTED, f"pool {name!r} has no free address on this node")
            states.append(
                own_pb.PoolState(
                    pool=name,
                    pool_type=request.pool_type or own_pb.POOL_TYPE_IPPOOL,
                    capacity=min(pool.capacity, _UINT64),
                    used=pool.held,
                    free=min(pool.free, _UINT64),
                )
            )
        return own_pb.StatusResponse(pools=states)

    async def _known_pools(self, keys: Sequence[str], call: Call) -> Mapping[str, PoolConfig | None]:
        """The pools that can be served. Waits for the first list of them, as long as the caller does; without one it
        is what the store remembers."""
        state = self._readiness
        if state.has_pools and not state.must_recover:
            return self._view.configs
        now = asyncio.get_running_loop().time()
        left = min(call.deadline - now, _LONGEST_WAIT_S) if call.deadline is not None else _LONGEST_WAIT_S
        # The answer has to arrive before the caller's patience ends.
        if not await state.wait(lambda: self._is_enough(keys), now + left * 0.9):
            raise Failed(Code.UNAVAILABLE, self._missing(keys))
        return self._view.configs if state.has_pools else self._ledger.pools()

    def _is_enough(self, keys: Sequence[str]) -> bool:
        state = self._readiness
        if state.must_recover:
            return False
        if state.has_pools:
            return True
        remembered = self._ledger.pools()
        return state.is_away and all(remembered.get(key) is not None for key in keys)

    def _missing(self, keys: Sequence[str]) -> str:
        if self._readiness.must_recover:
            return (
                "the store was damaged; no address is allocated until the API server reports which addresses pods hold"
            )
        if self._readiness.is_away:
            return f"the API server does not respond, and the store has no record of {', '.join(keys)}"
        return f"pools have not been listed yet{': ' if self._readiness.refusal else ''}{self._readiness.refusal}"

    def _config(self, key: str, known: Mapping[str, PoolConfig | None]) -> PoolConfig:
        config = known.get(key)
        if config is not None:
            return config
        if key in self._view.unusable:
            raise Failed(Code.INTERNAL, f"pool {key!r} cannot be used: {self._view.problems.get(key, '')}")
        why = self._view.problems.get(key) or "it does not exist, or this node has no block of it"
        raise Failed(Code.NOT_FOUND, f"pool {key!r} is not configured on this node: {why}")

    def _in_turn(
        self,
        parameters: pb.IPAMParameters,
        keys: Sequence[str],
        known: Mapping[str, PoolConfig | None],
        chosen: list[tuple[PoolConfig, tuple[str, ...]]],
    ) -> Iterator[Wanted]:
        """What is wanted, pool by pool: a pool is looked at only when those before it could give.

        So the first pool's refusal is what a caller hears, as from the original.
        """
        features = parameters.features
        requested = tuple(filter(None, map(addresses.parse_address, parameters.requested_ips)))
        index = features.allocate_ip_with_index if features.HasField("allocate_ip_with_index") else None
        for key in keys:
            config = self._config(key, known)
            # What cannot be answered is not given.
            chosen.append((config, _routes(config)))
            node_of = partial(self._view.node_of, key) if requested or index is not None else None
            yield Wanted(config, requested, features.allocate_default_gateway, index, node_of)


async def _handle(kind: type[M], method: Callable[[M, Call], Awaitable[Message]], message: bytes, call: Call) -> bytes:
    try:
        request = kind.FromString(message)
    except DecodeError as err:
        raise Failed(Code.INTERNAL, f"the request cannot be decoded: {err}") from None
    try:
        return (await method(request, call)).SerializeToString()
    except errors.BedplateError as err:
        code = next((code for kind, code in _CODES.items() if isinstance(err, kind)), Code.INTERNAL)
        raise Failed(code, str(err)) from err


def _stop_if_gone(call: Call) -> None:
    is_late = call.deadline is not None and asyncio.get_running_loop().time() >= call.deadline
    if call.is_gone or is_late:
        raise Failed(Code.CANCELLED, "the caller has disconnected")


def _note(call: Call, parameters: pb.IPAMParameters) -> None:
    call.notes.update(
        pools=list(parameters.pools),
        container=parameters.cni_containerid,
        interface=parameters.cni_ifname,
        pod=f"{parameters.metadata.k8s_pod_namespace}/{parameters.metadata.k8s_pod_name}",
    )


def _routes(config: PoolConfig) -> tuple[str, ...]:
    if config.gateway is None:
        return ()
    try:
        return routes_of(config.routes, config.default_gateway, config.network.bits)
    except ValueError as err:
        raise Failed(Code.INVALID_ARGUMENT, f"pool {config.key!r}: {err}") from None


def _route_order(network: Network) -> tuple[bytes, int]:
    return network.base.to_bytes(network.bits // 8), network.length


@lru_cache(maxsize=256)
def routes_of(written: tuple[str, ...], has_default: bool, bits: int) -> tuple[str, ...]:
    """Destinations as they are answered: masked, sorted by address and mask, each once."""
    networks: set[Network] = {Network(bits, 0, 0)} if has_default else set()
    for text in written:
        parsed = addresses.parse_network(text)
        if parsed is None:
            raise ValueError(f"route {text!r} must be a network in CIDR notation")
        networks.add(parsed[1])
    return tuple(str(network) for network in sorted(networks, key=_route_order))


# Checks of requests


def _checked(request: pb.AllocateRequest | pb.IsAllocatedRequest) -> pb.IPAMParameters:
    """The parameters of a request that has everything it must have; checked in the order of the original."""
    if not request.HasField("parameters"):
        raise _required("parameters")
    parameters = request.parameters
    _check_interface(parameters)
    if not parameters.HasField("metadata"):
        raise _required("parameters.metadata")
    if not parameters.metadata.k8s_pod_name:
        raise _required("parameters.metadata.k8s_pod_name")
    if not parameters.metadata.k8s_pod_namespace:
        raise _required("parameters.metadata.k8s_pod_namespace")
    for position, text in enumerate(parameters.requested_ips):
        if addresses.parse_address(text) is None:
            raise Failed(Code.INVALID_ARGUMENT, f"parameters.requested_ips[{position}] is not an IP address")
    if parameters.features.allocate_default_gateway and parameters.requested_ips:
        raise Failed(Code.INVALID_ARGUMENT, "allocate_default_gateway and requested_ips are mutually exclusive")
    return parameters


def _check_interface(parameters: pb.IPAMParameters, *, needs_pools: bool = True) -> None:
    """One or two pools are named, or none where none is needed; and whose interface it is."""
    if len(parameters.pools) > 2 or (needs_pools and not parameters.pools):
        raise Failed(Code.INVALID_ARGUMENT, "parameters.pools: one or two pools are needed")
    for position, name in enumerate(parameters.pools):
        if not name:
            raise Failed(Code.INVALID_ARGUMENT, f"parameters.pools[{position}] is empty")
    if not parameters.cni_containerid:
        raise _required("parameters.cni_containerid")
    if not parameters.cni_ifname:
        raise _required("parameters.cni_ifname")


def _required(field: str) -> Failed:
    """The failure of a request that lacks something."""
    return Failed(Code.INVALID_ARGUMENT, f"{field} is required")


def _pool_keys(names: Iterable[str], kind: int) -> list[str]:
    """The keys of pools; a type that is not CIDRPool is IPPool."""
    return list(map(cidrpool_key, names)) if kind == pb.POOL_TYPE_CIDRPOOL else list(names)


def _owner(parameters: pb.IPAMParameters) -> Owner:
    """Whose the address will be."""
    metadata = parameters.metadata
    return Owner(
        parameters.cni_containerid,
        parameters.cni_ifname,
        metadata.k8s_pod_uid,
        metadata.k8s_pod_name,
        metadata.k8s_pod_namespace,
        metadata.device_id,
    )
