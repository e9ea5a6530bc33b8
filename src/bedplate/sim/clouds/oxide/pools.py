"""IP pools of the simulated Oxide silo: which address comes from where, and who has it.

In: requests for an address (any, from a pool, of a family, this very one). Out: the address and its pool, or the
refusal that the API would give.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bedplate.sim.clouds.exchange import Refused

__all__ = ["Pool", "Pools"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(slots=True)
class Pool:
    """A range of addresses; `taken` are in use."""

    id: str
    name: str
    network: Network
    is_default: bool
    taken: set[str] = field(default_factory=set)
    _next: int = 1

    @property
    def version(self) -> str:
        return f"v{self.network.version}"

    def take(self) -> str:
        """The next free address, round the pool, so that one given back is not given out again at once."""
        size = self.network.num_addresses - 1
        for step in range(min(size, len(self.taken) + 1)):
            number = (self._next - 1 + step) % size + 1
            address = str(self.network[number])
            if address not in self.taken:
                self.taken.add(address)
                self._next = number + 1
                return address
        raise Refused(507, "No external IP addresses available", code="InsufficientCapacity")


class Pools:
    """All pools linked to the silo."""

    def __init__(self) -> None:
        self._pools: dict[str, Pool] = {}

    def __iter__(self) -> Iterator[Pool]:
        return iter(self._pools.values())

    def add(self, pool: Pool) -> None:
        self._pools[pool.id] = pool

    def find(self, ref: str) -> Pool:
        """By name or ID."""
        for pool in self:
            if ref in (pool.id, pool.name):
                return pool
        word = "id" if len(ref) == 36 else "name"
        raise Refused(404, f'not found: ip-pool with {word} "{ref}"', code="ObjectNotFound")

    def allocate(self, allocator: Mapping[str, Any]) -> tuple[str, Pool]:
        """What an AddressAllocator asks for."""
        if allocator.get("type") == "explicit":
            return self.claim(str(allocator["ip"]))
        selector = allocator.get("pool_selector") or {"type": "auto"}
        if selector.get("type") == "explicit":
            pool = self.find(str(selector["pool"]))
        else:
            pool = self.default(selector.get("ip_version"))
        return pool.take(), pool

    def default(self, version: str | None) -> Pool:
        """The silo's default pool; with one per family the caller has to say which."""
        defaults = [pool for pool in self if pool.is_default and version in (None, pool.version)]
        if not defaults:
            raise Refused(404, "not found: default IP pool for current silo", code="ObjectNotFound")
        if len(defaults) > 1:
            message = "multiple default IP pools exist: ip_version is required to choose between IPv4 and IPv6"
            raise Refused(400, message, code="InvalidRequest")
        return defaults[0]

    def claim(self, text: str) -> tuple[str, Pool]:
        """This very address, from the pool that holds it."""
        address = ipaddress.ip_address(text)
        for pool in self:
            if address.version == pool.network.version and address in pool.network:
                if str(address) in pool.taken:
                    raise Refused(400, "Requested external IP address not available", code="InvalidRequest")
                pool.taken.add(str(address))
                return str(address), pool
        raise Refused(400, "Requested external IP address is not in any pool", code="InvalidRequest")

    def release(self, address: str) -> None:
        """Nobody has it any longer."""
        for pool in self:
            pool.taken.discard(address)
