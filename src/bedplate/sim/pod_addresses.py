"""The addresses of simulated pods: every pod of a fleet has one of its own, from its machine's range.

In: which pods have which address already, and who needs one. Out: addresses. Pure memory: what an earlier run gave away
is learnt from the pods themselves.
"""

from __future__ import annotations

import ipaddress

from bedplate.core import errors

__all__ = ["Addresses"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
# The first two addresses of a range are the network's and the machine's own.
_FIRST = 2


class Addresses:
    """Who has which address. Keys are those of pods (`namespace/name`)."""

    def __init__(self) -> None:
        self._by_key: dict[str, str] = {}
        self._taken: set[str] = set()

    def learn(self, key: str, address: str) -> None:
        """A pod has this address: it was given in an earlier run, or just now."""
        if self._by_key.get(key) != address:
            self.free(key)
            self._by_key[key] = address
            self._taken.add(address)

    def take(self, key: str, network: Network) -> str:
        """The pod's address: the one it has, or the lowest in the range that no other pod has."""
        known = self._by_key.get(key)
        if known is not None and ipaddress.ip_address(known) in network:
            return known
        for number in range(_FIRST, network.num_addresses - 1):
            address = str(network[number])
            if address not in self._taken:
                self.learn(key, address)
                return address
        raise errors.Unavailable(f"no address in {network} is free for pod {key}")

    def free(self, key: str) -> None:
        """The pod is gone or has ended: its address may be given to another."""
        address = self._by_key.pop(key, None)
        if address is not None:
            self._taken.discard(address)
