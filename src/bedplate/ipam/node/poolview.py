"""What this node knows of all pools: the pools' custom resources in, `PoolConfig`s out.

In: changes of IPPools and CIDRPools, as a cache tells them. Out: configurations by pool key, what is wrong with those
that have none, and which node's block holds an address. Asks nobody for anything.

A pool's status holds an entry for every node of the cluster and arrives with every change of any of them: only this
node's entry is decoded, and nothing is computed again while it and the spec stay as they were.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from bedplate.api import meta
from bedplate.core import logging
from bedplate.ipam.addresses import Address, parse_address
from bedplate.ipam.node import poolconfig
from bedplate.ipam.node.poolconfig import BadPool, PoolConfig
from bedplate.ipam.pools import (
    CIDRPOOLS,
    IPPOOLS,
    CIDRAllocation,
    CIDRPoolSpec,
    CIDRPoolStatus,
    IPAllocation,
    IPPoolSpec,
    IPPoolStatus,
    cidrpool_key,
)
from bedplate.ipam.validation import ippool_problems, summary
from bedplate.runtime.cache import Change

__all__ = ["LEAN_CIDRPOOLS", "LEAN_IPPOOLS", "LeanPool", "PoolView", "own_entry"]

A = TypeVar("A", IPAllocation, CIDRAllocation)
log = logging.get_logger("ipam.node.pools")
_EMPTY = msgspec.Raw(b"{}")


class LeanPool(meta.Object, frozen=True):
    """A pool whose spec and status stay bytes."""

    spec: msgspec.Raw = _EMPTY
    status: msgspec.Raw = _EMPTY

    def __post_init__(self) -> None:
        # Decoded, they are views of the whole answer of the server, and would keep it.
        msgspec.structs.force_setattr(self, "spec", self.spec.copy())
        msgspec.structs.force_setattr(self, "status", self.status.copy())


LEAN_IPPOOLS = IPPOOLS.with_model(LeanPool)
LEAN_CIDRPOOLS = CIDRPOOLS.with_model(LeanPool)


class _Kind(NamedTuple, Generic[A]):
    key: Callable[[str], str]
    spec: msgspec.json.Decoder[Any]
    entry: msgspec.json.Decoder[A]
    status: msgspec.json.Decoder[Any]
    config: Callable[[str, Any, A], PoolConfig]


def _kind(
    key: Callable[[str], str], spec: type, entry: type[A], status: type, config: Callable[[str, Any, A], PoolConfig]
) -> _Kind[A]:
    decoder = msgspec.json.Decoder
    return _Kind(key, decoder(spec), decoder(entry), decoder(status), config)


_IPPOOL = _kind(str, IPPoolSpec, IPAllocation, IPPoolStatus, poolconfig.ippool_config)
_CIDRPOOL = _kind(cidrpool_key, CIDRPoolSpec, CIDRAllocation, CIDRPoolStatus, poolconfig.cidrpool_config)


def own_entry(
    status: bytes, node_name: str, entry: msgspec.json.Decoder[A], whole: msgspec.json.Decoder[Any]
) -> A | None:
    """The first entry of this node: found by its text where that can be done, else by decoding everything."""
    if status == b"null":
        return None
    mark = b'"nodeName":' + msgspec.json.encode(node_name)
    at = status.find(mark)
    if at >= 0:
        start, end = status.rfind(b"{", 0, at), status.find(b"}", at)
        try:
            allocation = entry.decode(status[start : end + 1])
            if allocation.node_name == node_name:
                return allocation
        except msgspec.MsgspecError:
            pass
    return next(
        (allocation for allocation in whole.decode(status).allocations if allocation.node_name == node_name), None
    )


class _Known(NamedTuple):
    """What a configuration was made of."""

    name: str
    spec: bytes
    entry: IPAllocation | CIDRAllocation | None
    has_clash: bool


class PoolView:
    """The pools of this node."""

    def __init__(self, node_name: str, *, on_problem: Callable[[str, str], None] | None = None) -> None:
        self._node = node_name
        self._on_problem = on_problem
        self._objects: dict[str, LeanPool] = {}
        self._known: dict[str, _Known] = {}
        self._blocks: dict[str, tuple[str, list[tuple[int, int, int, str]]]] = {}
        self.configs: dict[str, PoolConfig] = {}
        self.problems: dict[str, str] = {}
        """Pools that cannot be used here, or whose spec is wrong, and why."""
        self.unusable: set[str] = set()
        """IPPools with an entry of this node from which nothing can be given."""

    def take_ippool(self, change: Change[LeanPool]) -> None:
        """Hear of a change of an IPPool."""
        self._take(_IPPOOL, change)

    def take_cidrpool(self, change: Change[LeanPool]) -> None:
        """Hear of a change of a CIDRPool."""
        self._take(_CIDRPOOL, change)

    def reference(self, key: str) -> meta.ObjectReference | None:
        """The pool's object, for an event."""
        pool = self._objects.get(key)
        if pool is None:
            return None
        kind = CIDRPOOLS if key.startswith(cidrpool_key("")) else IPPOOLS
        about = pool.metadata
        return meta.ObjectReference(
            api_version=kind.api_version,
            kind=kind.kind,
            name=about.name,
            namespace=about.namespace,
            uid=about.uid,
            resource_version=about.resource_version,
        )

    def node_of(self, key: str, address: Address) -> str | None:
        """The other node in whose block the address lies. Decodes the whole status, once for each version of it."""
        pool = self._objects.get(key)
        if pool is None or key.startswith(cidrpool_key("")):
            return None
        version = pool.metadata.resource_version
        if self._blocks.get(key, ("",))[0] != version:
            self._blocks[key] = (version, _blocks(bytes(pool.status)))
        blocks = self._blocks[key][1]
        at = bisect.bisect_right(blocks, (address.bits, address.value, 1 << 129, "")) - 1
        if at < 0:
            return None
        bits, start, end, node = blocks[at]
        return node if bits == address.bits and start <= address.value <= end and node != self._node else None

    def _take(self, kind: _Kind[A], change: Change[LeanPool]) -> None:
        pool = change.new if change.new is not None else change.old
        assert pool is not None, "a change is of something"
        key = kind.key(pool.name)
        if change.new is None:
            self._forget(key)
            for memory in (self._objects, self._known, self._blocks, self.problems):
                memory.pop(key, None)
            log.info("pool.removed", pool=key)
            return
        self._objects[key] = pool
        try:
            self._make(kind, key, pool)
        except msgspec.MsgspecError as err:
            self._reject(key, f"it cannot be read: {err}")

    def _make(self, kind: _Kind[A], key: str, pool: LeanPool) -> None:
        entry = own_entry(bytes(pool.status), self._node, kind.entry, kind.status)
        has_clash = isinstance(entry, CIDRAllocation) and _has_clash(bytes(pool.status), entry)
        known = _Known(pool.name, bytes(pool.spec), entry, has_clash)
        if self._known.get(key) == known:
            return
        self._known[key] = known
        if entry is None:
            self._forget(key)
            self.problems.pop(key, None)
            log.info("pool.no_block", pool=key, node=self._node)
            return
        spec = kind.spec.decode(pool.spec)
        try:
            if has_clash:
                raise BadPool(f"pool {key}: another entry has this node's prefix, gateway or name")
            config = kind.config(pool.name, spec, entry)
        except BadPool as err:
            self._reject(key, err.message, is_unusable=isinstance(entry, IPAllocation))
            return
        self.configs[key] = config
        self.unusable.discard(key)
        log.info("pool.block", pool=key, config=config.document)
        self._note_problems(key, summary(ippool_problems(pool.name, spec)) if isinstance(spec, IPPoolSpec) else "")

    def _note_problems(self, key: str, text: str) -> None:
        """The original's daemon never looked at an IPPool's spec: it is used all the same, and said once."""
        if text:
            log.warning("pool.invalid", pool=key, error=text, effect="the valid part is used")
            self._keep_problem(key, text)
        else:
            self.problems.pop(key, None)

    def _reject(self, key: str, text: str, *, is_unusable: bool = False) -> None:
        self._forget(key)
        if is_unusable:
            self.unusable.add(key)
        log.error("pool.unusable", pool=key, error=text)
        self._keep_problem(key, text)

    def _keep_problem(self, key: str, text: str) -> None:
        self.problems[key] = text
        if self._on_problem is not None:
            self._on_problem(key, text)

    def _forget(self, key: str) -> None:
        self.configs.pop(key, None)
        self.unusable.discard(key)


def _has_clash(status: bytes, own: CIDRAllocation) -> bool:
    """Whether another entry shares the node's name, its prefix or its gateway."""
    marks: Mapping[str, str] = {"nodeName": own.node_name, "prefix": own.prefix, "gateway": own.gateway}
    encoded = [f'"{name}":'.encode() + msgspec.json.encode(value) for name, value in marks.items() if value]
    if all(status.count(mark) <= 1 for mark in encoded):
        return False
    same = 0
    for allocation in _CIDRPOOL.status.decode(status).allocations:
        is_same = allocation.prefix == own.prefix or allocation.node_name == own.node_name
        same += is_same or (bool(own.gateway) and allocation.gateway == own.gateway)
    return same > 1


def _blocks(status: bytes) -> list[tuple[int, int, int, str]]:
    """Every block of an IPPool, sorted."""
    blocks = []
    for allocation in _IPPOOL.status.decode(status).allocations:
        start, end = parse_address(allocation.start_ip), parse_address(allocation.end_ip)
        if start is not None and end is not None and start.bits == end.bits:
            blocks.append((start.bits, start.value, end.value, allocation.node_name))
    return sorted(blocks)
