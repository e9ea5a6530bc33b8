"""HPACK (RFC 7541): the headers of HTTP/2, read in full and written plainly.

In: header blocks of one connection, in order. Out: names and values as bytes, or `HeaderError`. What this side writes
uses no state (literals and the static table), so any number of answers may share their bytes.

The Huffman code is canonical: symbols of one length have consecutive codes in the order of their values. The lengths
are all there is to know.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import lru_cache

__all__ = ["HeaderDecoder", "HeaderError", "literal"]

Header = tuple[bytes, bytes]

_STATIC_TEXT = """:authority|:method GET|:method POST|:path /|:path /index.html|:scheme http|:scheme https|:status 200
:status 204|:status 206|:status 304|:status 400|:status 404|:status 500|accept-charset|accept-encoding gzip, deflate
accept-language|accept-ranges|accept|access-control-allow-origin|age|allow|authorization|cache-control
content-disposition|content-encoding|content-language|content-length|content-location|content-range|content-type
cookie|date|etag|expect|expires|from|host|if-match|if-modified-since|if-none-match|if-range|if-unmodified-since
last-modified|link|location|max-forwards|proxy-authenticate|proxy-authorization|range|referer|refresh|retry-after
server|set-cookie|strict-transport-security|transfer-encoding|user-agent|vary|via|www-authenticate"""


def _static() -> Iterator[Header]:
    for word in _STATIC_TEXT.replace("\n", "|").split("|"):
        name, _, value = word.partition(" ")
        yield name.encode(), value.encode()


STATIC: tuple[Header, ...] = tuple(_static())
# The symbols by the length of their codes; 256, the end of a text, has 30 bits and never occurs.
_BY_LENGTH: dict[int, bytes] = {
    5: b"012aceiost",
    6: b" %-./3456789=A_bdfghlmnpru",
    7: b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: b"&*,;XZ",
    10: b'!"()?',
    11: b"'+|",
    12: b"#>",
    13: b"\0$@[]~",
    14: b"^}",
    15: b"<`{",
    19: bytes.fromhex("5cc3d0"),
    20: bytes.fromhex("808283a2b8c2e0e2"),
    21: bytes.fromhex("99a1a7acb0b1b3d1d8d9e3e5e6"),
    22: bytes.fromhex("81848586 8892 9a9c a0a3a4a9aaad b2b5b9babbbdbe c4c6 e4e8e9"),
    23: bytes.fromhex("01 8789 8a8b8c8d8f 93959697989b9d9e a5a6a8aeaf b4b6b7bcbf c5 e7ef"),
    24: bytes.fromhex("09 8e 9091949f ab ced7 e1eced"),
    25: bytes.fromhex("c7cfeaeb"),
    26: bytes.fromhex("c0c1c8c9cacd d2d5dadb ee f0f2f3ff"),
    27: bytes.fromhex("cbcc d3d4d6 dddedf f1f4f5f6f7f8fafbfcfdfe"),
    28: bytes.fromhex("02030405060708 0b0c0e0f 1011121314151718191a1b1c1d1e1f 7f dc f9"),
    30: bytes.fromhex("0a0d16"),
}
_MAX_TABLE = 4096
_ENTRY_OVERHEAD = 32
_CACHED = 512


class HeaderError(ValueError):
    """The block cannot be read; the connection cannot go on."""


def _levels() -> list[tuple[int, int, int, bytes]]:
    """(length, first code, first code beyond, symbols) in order of length."""
    levels, code, before = [], 0, 0
    for length, symbols in _BY_LENGTH.items():
        code <<= length - before
        levels.append((length, code, code + len(symbols), symbols))
        code += len(symbols)
        before = length
    return levels


_LEVELS = _levels()


def _next_symbol(number: int, bits: int) -> tuple[int, int] | None:
    """The symbol with which these bits begin, and its length; None when they hold no whole code."""
    for length, first, beyond, symbols in _LEVELS:
        if length > bits:
            return None
        code = number >> (bits - length)
        if code < beyond:
            return symbols[code - first], length
    return None


@lru_cache(maxsize=_CACHED)
def _unhuffman(packed: bytes) -> bytes:
    """The text of a Huffman-coded string; cached, for callers say the same on every connection."""
    bits, number, out = len(packed) * 8, int.from_bytes(packed, "big"), bytearray()
    while (decoded := _next_symbol(number, bits)) is not None:
        symbol, length = decoded
        out.append(symbol)
        bits -= length
        number &= (1 << bits) - 1
    if bits >= 8 or number != (1 << bits) - 1:
        raise HeaderError("a Huffman-coded string ends in the middle")
    return bytes(out)


class HeaderDecoder:
    """The reading side of one connection: remembers what the peer told it to remember."""

    __slots__ = ("_recent", "_room", "_size")

    def __init__(self) -> None:
        self._recent: deque[Header] = deque()
        self._size = 0
        self._room = _MAX_TABLE

    def decode(self, block: bytes) -> list[Header]:
        """The headers of a block. After an error nothing more can be decoded."""
        headers: list[Header] = []
        at, end = 0, len(block)
        while at < end:
            first = block[at]
            if first & 0x80:
                index, at = _integer(block, at, 7)
                headers.append(self._indexed(index))
            elif first & 0xC0 == 0x40:
                header, at = self._literal(block, at, 6)
                headers.append(header)
                self._remember(header)
            elif first & 0xE0 == 0x20:
                if headers:
                    raise HeaderError("the table's size changes inside a block")
                size, at = _integer(block, at, 5)
                if size > _MAX_TABLE:
                    raise HeaderError("the table's size is more than was offered")
                self._room = size
                self._forget(size)
            else:
                header, at = self._literal(block, at, 4)
                headers.append(header)
        return headers

    def _literal(self, block: bytes, at: int, prefix: int) -> tuple[Header, int]:
        index, at = _integer(block, at, prefix)
        if index:
            name = self._indexed(index)[0]
        else:
            name, at = _string(block, at)
        value, at = _string(block, at)
        return (name, value), at

    def _indexed(self, index: int) -> Header:
        if 0 < index <= len(STATIC):
            return STATIC[index - 1]
        position = index - len(STATIC) - 1
        if 0 <= position < len(self._recent):
            return self._recent[position]
        raise HeaderError(f"no header has the index {index}")

    def _remember(self, header: Header) -> None:
        size = _entry_size(header)
        self._forget(self._room - size)
        if size <= self._room:
            self._recent.appendleft(header)
            self._size += size

    def _forget(self, room: int) -> None:
        while self._recent and self._size > room:
            self._size -= _entry_size(self._recent.pop())


def _entry_size(header: Header) -> int:
    return len(header[0]) + len(header[1]) + _ENTRY_OVERHEAD


def _integer(block: bytes, at: int, prefix: int) -> tuple[int, int]:
    limit = (1 << prefix) - 1
    value = block[at] & limit
    at += 1
    if value < limit:
        return value, at
    shift = 0
    while True:
        if at >= len(block) or shift > 28:
            raise HeaderError("a number is cut off, or too large")
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    if at >= len(block):
        raise HeaderError("a string is missing")
    is_packed = block[at] & 0x80
    length, at = _integer(block, at, 7)
    end = at + length
    if end > len(block):
        raise HeaderError("a string is cut off")
    raw = block[at:end]
    return (_unhuffman(raw) if is_packed else raw), end


def literal(name: bytes, value: bytes) -> bytes:
    """A header as a literal that nobody remembers."""
    return b"\x00" + _counted(name) + _counted(value)


def _counted(text: bytes) -> bytes:
    length = len(text)
    if length < 127:
        return bytes((length,)) + text
    out, rest = bytearray((127,)), length - 127
    while rest >= 128:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out) + text
