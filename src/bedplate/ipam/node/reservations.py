"""The values of the ledger: who asks, what is wanted, what was given, and why not.

In: nothing. Out: values and errors. `service.py` makes `Owner` and `Wanted` of a request and turns the errors into
gRPC codes; `ledger.py` makes `Reservation`.

    AlreadyReserved   the interface has an address in this pool        ALREADY_EXISTS
    Exhausted         no address is free, or the wanted one is taken    RESOURCE_EXHAUSTED
    Refused           the request cannot be right                       INVALID_ARGUMENT
    StoreFailed       the store cannot be opened, read or written       INTERNAL
    StoreBusy         another process holds the store
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import msgspec

from bedplate.core import errors
from bedplate.ipam import addresses
from bedplate.ipam.addresses import Address
from bedplate.ipam.node.poolconfig import PoolConfig

__all__ = [
    "AlreadyReserved",
    "Exhausted",
    "Owner",
    "Proven",
    "Refused",
    "Reservation",
    "StaticIPCheck",
    "StoreBusy",
    "StoreFailed",
    "Usage",
    "Wanted",
    "choose_static",
    "foreign_node",
    "key_of",
]


class AlreadyReserved(errors.AlreadyExists):
    """The interface has an address in this pool; `pool` is its key."""

    def __init__(self, message: str, *, pool: str) -> None:
        super().__init__(message)
        self.pool = pool


class Exhausted(errors.Retryable):
    """No address of the block is free, or the requested one is in use; `pool` is the pool's key."""

    def __init__(self, message: str, *, pool: str) -> None:
        super().__init__(message)
        self.pool = pool


class Refused(errors.Terminal):
    """An invalid request."""


class StoreFailed(errors.Unavailable):
    """The store could not be opened, read or written. The call had no effect."""


class StoreBusy(StoreFailed):
    """Another process has locked the store; `pid` is its id if known."""

    def __init__(self, message: str, *, hint: str = "", pid: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.pid = pid


class StaticIPCheck(enum.Enum):
    """What happens to a wanted address that may be another's.

    Only `OFF` gives out the network's own and its broadcast address, as the original does.
    """

    REFUSE = "refuse"
    WARN = "warn"
    OFF = "off"


class Owner(msgspec.Struct, frozen=True, gc=False):
    """The interface that asks, and its pod."""

    container_id: str
    interface_name: str
    pod_uid: str = ""
    pod_name: str = ""
    pod_namespace: str = ""
    device_id: str = ""


class Wanted(msgspec.Struct, frozen=True):
    """What is asked of one pool.

    `requested` are all requested addresses of the call: the first that lies in the pool's subnet is meant for it.
    `node_of` names the other node whose block holds an address, if any: asked for static addresses only.
    """

    config: PoolConfig
    requested: tuple[Address, ...] = ()
    is_gateway: bool = False
    index: int | None = None
    node_of: Callable[[Address], str | None] | None = None


class Reservation(msgspec.Struct, frozen=True, gc=False):
    """One address of one interface, as it stands in the store."""

    pool: str
    container_id: str
    interface_name: str
    address: str
    """Without a length; empty where a store names none."""
    create_time: str
    pod_uid: str
    pod_name: str
    pod_namespace: str
    device_id: str
    config: str
    """The pool's document when the address was given."""


class Proven(msgspec.Struct, frozen=True):
    """An address that a pod is known to have although the store lost it: what its annotations say.

    `container_id` is empty where nobody knows it: then only the cleaner can free the address.
    """

    config: PoolConfig
    address: Address
    interface_name: str
    pod_uid: str
    pod_name: str
    pod_namespace: str
    container_id: str = ""
    device_id: str = ""


class Usage(msgspec.Struct, frozen=True):
    """How full a pool is on this node. Without a known block there is nothing but `held`."""

    held: int
    """Reservations, those outside the block too."""
    capacity: int = 0
    """Addresses of the block that may be given without being asked for."""
    free: int = 0


def key_of(container_id: str, interface_name: str) -> str:
    """What a reservation is called in the store."""
    return f"{container_id}_{interface_name}"


# Which address a request names


def choose_static(request: Wanted, check: StaticIPCheck) -> Address | None:
    """The address that is asked for. Of several rules the last one counts."""
    config = request.config
    chosen = next((address for address in request.requested if config.network.holds(address)), None)
    if request.is_gateway:
        if config.gateway is None:
            raise Refused(f"pool {config.key} has no gateway to allocate")
        if not config.network.holds(config.gateway):
            raise Refused(f"the gateway {config.gateway} of pool {config.key} is outside its network")
        chosen = config.gateway
    if request.index is not None:
        chosen = _with_index(config, request.index)
    if chosen is not None and chosen != config.gateway and check is not StaticIPCheck.OFF:
        _refuse_ends(config, chosen)
    return chosen


def _with_index(config: PoolConfig, index: int) -> Address:
    address = Address(config.network.bits, config.start + index)
    if address == config.gateway:
        raise Refused(f"index {index} is the gateway of pool {config.key}: use allocateDefaultGateway for it")
    if not config.in_block(address):
        raise Refused(f"index {index} is outside the node's block of pool {config.key}")
    return address


def _refuse_ends(config: PoolConfig, address: Address) -> None:
    network = config.network
    if addresses.is_small(network):
        return
    if address.value == network.base:
        raise Refused(f"{address} is the address of network {network} itself, not one for an interface")
    if addresses.has_broadcast(network) and address.value == network.top:
        raise Refused(f"{address} is the broadcast address of {network}")


def foreign_node(request: Wanted, address: Address, check: StaticIPCheck) -> str | None:
    """The other node whose block holds the address. Refuses where that is asked for."""
    if check is StaticIPCheck.OFF or request.node_of is None or request.config.in_block(address):
        return None
    node = request.node_of(address)
    if node is not None and check is StaticIPCheck.REFUSE:
        raise Refused(f"{address} is in the block of node {node}")
    return node
