"""The reservations in memory: found by key, by address and in the order of the store file.

In: a loaded document; reservations as they are made and given up. Out: lookups, the next free address of a pool, and
the pieces of the store's text. It decides nothing and writes nothing; every change can be undone by its opposite.

Texts are kept in the order of their keys beside the reservations, so that a document is a join and not an encoding.
What is not free of a block is kept as spans that neither overlap nor touch: one search by halves finds the span a
number lies in, and its end is the next free one, however much is held and however large the block is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator

from bedplate.ipam import addresses
from bedplate.ipam.addresses import Address
from bedplate.ipam.node import storefile
from bedplate.ipam.node.poolconfig import PoolConfig
from bedplate.ipam.node.reservations import Reservation
from bedplate.ipam.node.storefile import Document, Entry, PoolRecord
from bedplate.ipam.ranges import Range, RangeSet

__all__ = ["Book", "FreeSet", "PoolPage", "Text", "free_set"]

Text = list[tuple[bytes, list[bytes], bytes]]
"""The pools of a document in order: head, entries, tail."""
_FRAME = len(b'{"version":,"checksum":,"pools":{}}')


def _runs(numbers: Iterable[int]) -> Iterator[Range]:
    """Numbers in any order as ranges: mostly many of them follow each other."""
    first = last = None
    for number in sorted(numbers):
        if last is None or first is None:
            first = last = number
        elif number > last + 1:
            yield Range(first, last)
            first = last = number
        else:
            last = number
    if first is not None and last is not None:
        yield Range(first, last)


class FreeSet:
    """The free numbers of [start, end]. Numbers outside may be taken and given back: that changes nothing."""

    __slots__ = ("_blocked", "_end", "_firsts", "_lasts", "_start", "capacity", "free")

    def __init__(self, start: int, end: int, never: Iterable[Range] = (), taken: Iterable[int] = ()) -> None:
        self._start, self._end = start, end
        self._blocked = RangeSet(RangeSet(never).within(Range(start, end)))
        self.capacity = end - start + 1 - self._blocked.total()
        """How many numbers may ever be given."""
        busy = self._blocked.union(RangeSet(_runs(number for number in taken if start <= number <= end)))
        self._firsts = [first for first, _ in busy]
        self._lasts = [last for _, last in busy]
        self.free = end - start + 1 - busy.total()
        """How many can be given now."""

    def after(self, pointer: int | None) -> int | None:
        """The next free number after the pointer, going round; from the start when the pointer is not in the block."""
        if not self.free:
            return None
        if pointer is not None and self._start <= pointer < self._end:
            number = self._next(pointer + 1)
            if number <= self._end:
                return number
        return self._next(self._start)

    def take(self, number: int) -> None:
        """The number is held now."""
        if not self._start <= number <= self._end:
            return
        at = bisect_right(self._firsts, number)
        if at and number <= self._lasts[at - 1]:
            return
        joins_left = at > 0 and self._lasts[at - 1] == number - 1
        joins_right = at < len(self._firsts) and self._firsts[at] == number + 1
        if joins_left and joins_right:
            self._lasts[at - 1] = self._lasts[at]
            del self._firsts[at], self._lasts[at]
        elif joins_left:
            self._lasts[at - 1] = number
        elif joins_right:
            self._firsts[at] = number
        else:
            self._firsts.insert(at, number)
            self._lasts.insert(at, number)
        self.free -= 1

    def give_back(self, number: int) -> None:
        """Nobody holds the number any more."""
        at = bisect_right(self._firsts, number) - 1
        if at < 0 or number > self._lasts[at] or number in self._blocked:
            return
        first, last = self._firsts[at], self._lasts[at]
        if first == last:
            del self._firsts[at], self._lasts[at]
        elif number == first:
            self._firsts[at] = number + 1
        elif number == last:
            self._lasts[at] = number - 1
        else:
            self._lasts[at] = number - 1
            self._firsts.insert(at + 1, number + 1)
            self._lasts.insert(at + 1, last)
        self.free += 1

    def _next(self, number: int) -> int:
        at = bisect_right(self._firsts, number) - 1
        return self._lasts[at] + 1 if at >= 0 and number <= self._lasts[at] else number


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
        parsed = (addresses.parse_address(reservation.address) for reservation in self.entries.values())
        self.held = Counter(address for address in parsed if address is not None)
        """How many reservations name an address: one, unless a store was made by hand."""
        self._free: FreeSet | None = None
        self._config: PoolConfig | None = None
        self._bits = 0

    def add(self, key: str, entry: Entry, address: Address | None) -> None:
        """Enter a reservation; its key is not there yet. A store may name one without an address."""
        at = bisect_left(self._keys, key)
        self._keys.insert(at, key)
        self._texts.insert(at, entry.text)
        self.entries[key] = entry.reservation
        self.size += len(entry.text) + 1
        if address is None:
            return
        self.held[address] += 1
        if self._free is not None and address.bits == self._bits:
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
            self._free, self._config, self._bits = free_set(config, self.held), config, config.network.bits
        return self._free

    def text(self) -> tuple[bytes, list[bytes], bytes]:
        """The pool's part of the document; its entries are those that later changes reach."""
        return self._head, self._texts, storefile.pool_tail(self.config, self.pointer)


def free_set(config: PoolConfig, taken: Iterable[Address]) -> FreeSet:
    """What a pool can give when these addresses are held."""
    never = list(config.exclusions)
    if config.gateway is not None and config.in_block(config.gateway):
        never.append(Range(config.gateway.value, config.gateway.value))
    return FreeSet(
        config.start, config.end, never, (address.value for address in taken if address.bits == config.network.bits)
    )


class Book:
    """All pools."""

    __slots__ = ("pages", "version")

    def __init__(self, document: Document) -> None:
        self.version = document.version
        self.pages = {key: PoolPage(key, document.pools[key]) for key in sorted(document.pools)}

    def length(self) -> int:
        """Bytes of the whole text, but for the digits of its version and checksum."""
        total = _FRAME
        for page in self.pages.values():
            head, texts, tail = page.text()
            # The comma that `size` has after the last entry is the one before the next pool.
            total += len(head) + page.size + len(tail) + (not texts)
        return total

    def reservations(self) -> Iterator[Reservation]:
        """Every reservation, pool by pool."""
        for page in list(self.pages.values()):
            yield from list(page.entries.values())

    def text(self) -> Text:
        """The pieces of the document as it stands: later changes do not reach them."""
        parts: Text = []
        for _, page in sorted(self.pages.items()):
            head, texts, tail = page.text()
            parts.append((head, texts.copy(), tail))
        return parts
