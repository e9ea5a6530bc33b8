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
    "key_of",
]


class AlreadyReserved(errors.AlreadyExists):
    """The interface has an address in this pool; `pool` is its key."""

    def __init__(self, message: str, *, pool: str) -> None:
        super().__init__(message)
        self.pool = pool


class Exhausted(errors.Retryable):
    """No address of the block is free, or the one that was asked for is taken; `pool` is the pool's key."""

    def __init__(self, message: str, *, pool: str) -> None:
        super().__init__(message)
        self.pool = pool


class Refused(errors.Terminal):
    """A request that cannot be right."""


class StoreFailed(errors.Unavailable):
    """The store could not be opened, read or written. What the call asked for was not done."""


class StoreBusy(StoreFailed):
    """Another process holds the store; `pid` is its id where it is known."""

    def __init__(self, message: str, *, hint: str = "", pid: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.pid = pid


class StaticIPCheck(enum.Enum):
    """What happens to a wanted address that may be another's (W6, W23, Q6).

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
    """The pool's document (§6) when the address was given."""


class Proven(msgspec.Struct, frozen=True):
    """An address that a pod is known to have although the store lost it (W9): what its annotations say.

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
