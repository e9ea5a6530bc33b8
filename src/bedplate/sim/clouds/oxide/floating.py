"""Floating IPs of the simulated Oxide cloud, their whole life, and the IP pools that they come from.

In: create, update, attach, detach, delete; requests for an address (any, from a pool, of a family, this very one). Out:
rows in the index, or the refusal the API gives. Attaching and detaching take `transition_s`; meanwhile the address is
busy and answers 503 to every other request. As in the real server the address names its instance from the start of an
attachment to the end of a detachment.
"""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bedplate.sim.clouds.exchange import Refused
from bedplate.sim.clouds.index import Row
from bedplate.sim.clouds.oxide import payloads

if TYPE_CHECKING:
    from bedplate.sim.clouds.oxide.cloud import OxideCloud

__all__ = ["MAX_EXTERNAL_IPS", "Attachment", "FloatingIps", "Pool", "Pools"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
MAX_EXTERNAL_IPS = 32
# In these an address can be neither attached nor detached, but soon will: the caller is told to come again.
_PASSING = frozenset({"starting", "stopping", "rebooting", "migrating"})
_REFUSING = frozenset({"creating", "failed", "destroyed", "repairing"})


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


class Attachment(enum.Enum):
    """Where a floating IP stands between two instances."""

    DETACHED = "detached"
    ATTACHING = "attaching"
    ATTACHED = "attached"
    DETACHING = "detaching"


class FloatingIps:
    """All floating IPs of one cloud."""

    def __init__(self, cloud: OxideCloud) -> None:
        self._cloud = cloud
        self._attachments: dict[str, Attachment] = {}

    def create(self, project_id: str, name: str, description: str, allocator: Mapping[str, Any]) -> Row:
        """A new one, attached to nothing."""
        self._check_name_is_free(project_id, name)
        address, pool = self._cloud.pools.allocate(allocator)
        identifier = self._cloud.new_id()
        self._attachments[identifier] = Attachment.DETACHED
        now = self._cloud.now()
        data = payloads.floating_ip(identifier, name, description, project_id, address, pool.id, now)
        return self._cloud.floating_ips.put(identifier, data)

    def update(self, row: Row, name: str | None, description: str | None) -> Row:
        """Change what is not None."""
        if name is not None and name != row.data["name"]:
            self._check_name_is_free(row.data["project_id"], name)
        changes = {"name": name, "description": description}
        return self._put(row, **{key: value for key, value in changes.items() if value is not None})

    def attach(self, row: Row, instance: Row) -> Row:
        """Begin to attach; idempotent for the same instance."""
        state = self._attachments[row.key]
        if row.data["instance_id"] == instance.key and state in (Attachment.ATTACHING, Attachment.ATTACHED):
            return row
        if state is Attachment.ATTACHED:
            message = "floating IP cannot be attached to one instance while still attached to another"
            raise Refused(400, message, code="InvalidRequest")
        if state is not Attachment.DETACHED:
            raise _busy("attach")
        self._check_instance(instance, "attach", "to")
        self._check_room(row, instance)
        self._attachments[row.key] = Attachment.ATTACHING
        changed = self._put(row, instance_id=instance.key)
        self._cloud.agenda.after(self._cloud.conditions.transition_s, lambda: self._attached(row.key))
        return self._cloud.floating_ips.get(row.key) or changed

    def detach(self, row: Row) -> Row:
        """Begin to detach."""
        state, instance = self._attachments[row.key], self._cloud.instances.get(row.data["instance_id"] or "")
        if state is Attachment.DETACHING:
            return row
        if state is Attachment.ATTACHING:
            raise _busy("detach")
        if state is Attachment.DETACHED:
            raise Refused(400, "This Floating IP is not attached to a resource", code="InvalidRequest")
        if instance is not None:
            self._check_instance(instance, "detach", "from")
        self._attachments[row.key] = Attachment.DETACHING
        self._cloud.agenda.after(self._cloud.conditions.transition_s, lambda: self._detached(row.key))
        return self._cloud.floating_ips.get(row.key) or row

    def delete(self, row: Row) -> None:
        """Remove it; refused while it is attached."""
        if self._attachments[row.key] is not Attachment.DETACHED:
            message = "Floating IP cannot be deleted while attached to an instance"
            raise Refused(400, message, code="InvalidRequest")
        self._cloud.floating_ips.drop(row.key)
        self._cloud.pools.release(row.data["ip"])
        del self._attachments[row.key]

    def detach_all_of(self, instance_id: str) -> None:
        """An instance is gone: its addresses are free at once."""
        for row in self.of(instance_id):
            self._detached(row.key)

    def of(self, instance_id: str) -> list[Row]:
        """The floating IPs that name this instance."""
        return [row for row in self._cloud.floating_ips if row.data["instance_id"] == instance_id]

    def attachment(self, identifier: str) -> Attachment:
        return self._attachments[identifier]

    def _attached(self, identifier: str) -> None:
        if self._attachments.get(identifier) is Attachment.ATTACHING:
            self._attachments[identifier] = Attachment.ATTACHED

    def _detached(self, identifier: str) -> None:
        row = self._cloud.floating_ips.get(identifier)
        if row is not None and self._attachments[identifier] is not Attachment.DETACHED:
            self._attachments[identifier] = Attachment.DETACHED
            self._put(row, instance_id=None)

    def _put(self, row: Row, **changes: Any) -> Row:
        return self._cloud.floating_ips.put(row.key, {**row.data, **changes, "time_modified": self._cloud.now()})

    def _check_name_is_free(self, project_id: str, name: str) -> None:
        if self._cloud.floating_ip_named(project_id, name) is not None:
            raise Refused(400, f'already exists: floating-ip "{name}"', code="ObjectAlreadyExists")

    def _check_instance(self, instance: Row, verb: str, word: str) -> None:
        state = instance.data["run_state"]
        if state in _PASSING:
            message = f"can't {verb} in-flight: instance is {state}; the request is safe to retry"
            raise Refused(503, message, code="ServiceNotAvailable")
        if state in _REFUSING:
            message = f"cannot {verb} floating IP {word} instance in {state} state"
            raise Refused(400, message, code="InvalidRequest")

    def _check_room(self, row: Row, instance: Row) -> None:
        ephemeral = self._cloud.ephemeral_ips_of(instance.key)
        if len(self.of(instance.key)) + len(ephemeral) >= MAX_EXTERNAL_IPS:
            message = f"an instance may not have more than {MAX_EXTERNAL_IPS} external IP addresses"
            raise Refused(400, message, code="InvalidRequest")
        version = payloads.family(row.data["ip"])
        if version not in {payloads.family(address) for address in self._cloud.private_ips_of(instance.key)}:
            message = f"cannot attach an IP{version} floating IP: the instance has no such address"
            raise Refused(400, message, code="InvalidRequest")


def _busy(verb: str) -> Refused:
    message = f"tried to {verb} floating IP mid-attach/detach: it is safe to retry once that has completed"
    return Refused(503, message, code="ServiceNotAvailable")
