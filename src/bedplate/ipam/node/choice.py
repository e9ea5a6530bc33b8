"""Which address a call asks for by itself (§8.2): requested, the gateway, or one with an index.

In: a `Wanted`. Out: the address, None when any will do, or `Refused`. Whether it is free is not asked here. Pure.
"""

from __future__ import annotations

from bedplate.ipam import addresses
from bedplate.ipam.addresses import Address
from bedplate.ipam.node.poolconfig import PoolConfig
from bedplate.ipam.node.reservations import Refused, StaticIPCheck, Wanted

__all__ = ["choose_static", "foreign_node"]


def choose_static(wanted: Wanted, check: StaticIPCheck) -> Address | None:
    """The address that is asked for. Of several rules the last one counts."""
    config = wanted.config
    chosen = next((one for one in wanted.requested if config.network.holds(one)), None)
    if wanted.is_gateway:
        if config.gateway is None:
            raise Refused(f"pool {config.key} has no gateway that could be allocated")
        if not config.network.holds(config.gateway):
            raise Refused(f"the gateway {config.gateway} of pool {config.key} is outside its network")
        chosen = config.gateway
    if wanted.index is not None:
        chosen = _with_index(config, wanted.index)
    if chosen is not None and chosen != config.gateway and check is not StaticIPCheck.OFF:
        _refuse_ends(config, chosen)
    return chosen


def _with_index(config: PoolConfig, index: int) -> Address:
    address = Address(config.bits, config.start + index)
    if address == config.gateway:
        raise Refused(f"index {index} is the gateway of pool {config.key}: allocateDefaultGateway asks for that")
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


def foreign_node(wanted: Wanted, address: Address, check: StaticIPCheck) -> str | None:
    """The other node whose block holds the address. Refuses where that is asked for."""
    if check is StaticIPCheck.OFF or wanted.node_of is None or wanted.config.in_block(address):
        return None
    node = wanted.node_of(address)
    if node is not None and check is StaticIPCheck.REFUSE:
        raise Refused(f"{address} lies in the block of node {node}")
    return node
