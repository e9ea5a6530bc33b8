"""The reservations in memory: found by key, by address and in the order of the store file.

In: a loaded document; reservations as they are made and given up. Out: lookups, the next free address of a pool, and
the pieces of the store's text. It decides nothing and writes nothing; every change can be undone by its opposite.

Texts are kept in the order of their keys beside the reservations, so that a document is a join and not an encoding.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from bedplate.ipam import addresses
from bedplate.ipam.addresses import Address
from bedplate.ipam.node import storefile
from bedplate.ipam.node.freeset import FreeSet
from bedplate.ipam.node.poolconfig import PoolConfig
from bedplate.ipam.node.reservations import Reservation
from bedplate.ipam.node.storefile import Document, Entry, PoolRecord

__all__ = ["Book", "PoolPage", "Text", "free_set"]

Text = list[tuple[bytes, list[bytes], bytes]]
"""The pools of a document in order: head, entries, tail."""
_FRAME = len(b'{"version":,"checksum":,"pools":{}}')


class PoolPage:
    """One pool."""

    __slots__ = (
        "_bits",
        "_config",
        "_free",
        "_head",
        "_keys",
        "_texts",
        "config",
        "entries",
        "held",
        "key",
        "name",
        "pointer",
        "size",
    )

    def __init__(self, key: str, record: PoolRecord) -> None:
        self.key, self.name = key, record.name
        self._head = storefile.pool_head(key, record.name)
        self.config, self.pointer = record.config, record.pointer
        self._keys = sorted(record.entries)
        self._texts = [record.entries[key].text for key in self._keys]
        self.entries = {key: record.entries[key].reservation for key in self._keys}
        self.size = sum(map(len, self._texts)) + len(self._texts)
        """Bytes of the entries' texts, a comma after each."""
        self.held: dict[Address, int] = {}
        """How many reservations name an address: one, unless a store was made by hand."""
        for reservation in self.entries.values():
            self._hold(addresses.parse_address(reservation.address))
        self._free: FreeSet | None = None
        self._config: PoolConfig | None = None
        self._bits = 0

    def _hold(self, address: Address | None) -> None:
        if address is not None:
            self.held[address] = self.held.get(address, 0) + 1

    def add(self, key: str, entry: Entry, address: Address | None) -> None:
        """Enter a reservation; its key is not there yet. A store may name one without an address."""
        at = bisect_left(self._keys, key)
        self._keys.insert(at, key)
        self._texts.insert(at, entry.text)
        self.entries[key] = entry.reservation
        self.size += len(entry.text) + 1
        self._hold(address)
        if address is not None and self._free is not None and address.bits == self._bits:
            self._free.take(address.value)

    def remove(self, key: str) -> Entry:
        """Strike a reservation out."""
        at = bisect_left(self._keys, key)
        del self._keys[at]
        entry = Entry(self.entries.pop(key), self._texts.pop(at))
        self.size -= len(entry.text) + 1
        address = addresses.parse_address(entry.reservation.address)
        if address is None:
            return entry
        if self.held[address] > 1:
            self.held[address] -= 1
            return entry
        del self.held[address]
        if self._free is not None and address.bits == self._bits:
            self._free.give_back(address.value)
        return entry

    def free(self, config: PoolConfig) -> FreeSet:
        """What is free under this configuration: computed again only when it has changed."""
        if self._free is None or (self._config is not config and self._config != config):
            self._free, self._config, self._bits = free_set(config, self.held), config, config.bits
        return self._free

    def text(self) -> tuple[bytes, list[bytes], bytes]:
        """The pool's part of the document."""
        return self._head, self._texts.copy(), storefile.pool_tail(self.config, self.pointer)

    def length(self) -> int:
        """Bytes of that part, the comma before the next pool included."""
        return len(self._head) + self.size + len(storefile.pool_tail(self.config, self.pointer)) + (not self.entries)


def free_set(config: PoolConfig, counts: dict[Address, int]) -> FreeSet:
    """What a pool can give when these addresses are held."""
    never = list(config.exclusions)
    if config.gateway is not None and config.in_block(config.gateway):
        never.append((config.gateway.value, config.gateway.value))
    return FreeSet(
        config.start, config.end, never, (address.value for address in counts if address.bits == config.bits)
    )


class Book:
    """All pools."""

    __slots__ = ("pages", "version")

    def __init__(self, document: Document) -> None:
        self.version = document.version
        self.pages = {key: PoolPage(key, document.pools[key]) for key in sorted(document.pools)}

    def length(self) -> int:
        """Bytes of the whole text, but for the digits of its version and checksum."""
        return _FRAME + sum(page.length() for page in self.pages.values())

    def reservations(self) -> Iterator[Reservation]:
        """Every reservation, pool by pool."""
        for page in list(self.pages.values()):
            yield from list(page.entries.values())

    def text(self) -> Text:
        """The pieces of the document as it stands: later changes do not reach them."""
        return [self.pages[key].text() for key in sorted(self.pages)]
