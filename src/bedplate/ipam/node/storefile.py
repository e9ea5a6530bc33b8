"""The store file's text: the original's format, byte for byte.

In: reservations, or the bytes of a file. Out: texts and the checksum over them; a `Document`, or `Corrupt` for
whatever the original's daemon would refuse. Pure but for the library; files are `storage.py`'s.

A document is head and body: `{"version":1,"checksum":N,"pools":` and the rest. The checksum is that of the text with
0 in place of N (FNV-1a, 32 bits), so the body is hashed once, going on from the sum of the head. The work is done by
`libstoresum.so` (crates/storesum), which lies beside this module or in the environment's `lib` and does not hold the
interpreter's lock; without it by Python, a hundred times slower, and the log says so once.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bedplate.core.logging import get_logger
from bedplate.ipam import addresses
from bedplate.ipam.node import gojson
from bedplate.ipam.node.gojson import Corrupt, Filler
from bedplate.ipam.node.reservations import Reservation

__all__ = [
    "VERSION",
    "Document",
    "Entry",
    "PoolRecord",
    "body_of",
    "decode",
    "decode_reservation",
    "encode",
    "encode_entry",
    "fnv1a32",
    "pool_head",
    "pool_tail",
    "seal",
]

VERSION = 1
LIBRARY = "libstoresum.so"
_BASIS, _PRIME, _MASK = 0x811C9DC5, 0x01000193, 0xFFFFFFFF

log = get_logger("ipam.node.checksum")


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A reservation and its text in a document, key included."""

    reservation: Reservation
    text: bytes


class PoolRecord(msgspec.Struct):
    """What a store knows of a pool."""

    name: str
    entries: dict[str, Entry] = {}
    config: str = ""
    pointer: str = ""


class Document(msgspec.Struct):
    """A store's content."""

    pools: dict[str, PoolRecord] = {}
    version: int = VERSION


@functools.lru_cache(maxsize=256)
def _quoted_config(document: str) -> str:
    return gojson.quote(document)


def encode_entry(key: str, reservation: Reservation) -> bytes:
    """`"key":{...}`."""
    quote = gojson.quote
    return (
        f'{quote(key)}:{{"container_id":{quote(reservation.container_id)},"interface_name":{quote(reservation.interface_name)},'
        f'"ip_address":"{reservation.address}","metadata":{{"create_time":{quote(reservation.create_time)},'
        f'"pod_uuid":{quote(reservation.pod_uid)},"pod_name":{quote(reservation.pod_name)},'
        f'"pod_namespace":{quote(reservation.pod_namespace)},"device_id":{quote(reservation.device_id)},'
        f'"pool_config_snapshot":{_quoted_config(reservation.config)}}}}}'
    ).encode()


def pool_head(key: str, name: str) -> bytes:
    """What stands before a pool's entries."""
    return f'{gojson.quote(key)}:{{"name":{gojson.quote(name)},"entries":{{'.encode()


def pool_tail(config: str, pointer: str) -> bytes:
    """What stands after them."""
    return f'}},"last_pool_config":{_quoted_config(config)},"last_reserved_ip":"{pointer}"}}'.encode()


def body_of(pools: Iterable[tuple[bytes, Sequence[bytes], bytes]]) -> bytes:
    """The body, from each pool's head, entries and tail, all sorted by key."""
    pieces = [b"{"]
    for head, entries, tail in pools:
        # One join for all: a large store is not copied more than once.
        between = [b","] * (2 * len(entries) - 1)
        between[::2] = entries
        pieces += (head, *between, tail, b",")
    if len(pieces) > 1:
        pieces.pop()
    pieces.append(b"}}")
    return b"".join(pieces)


def seal(body: bytes, version: int = VERSION) -> tuple[int, bytes]:
    """The checksum of the document with this body, and the head that goes before it."""
    total = fnv1a32(body, fnv1a32(b'{"version":%d,"checksum":0,"pools":' % version))
    return total, b'{"version":%d,"checksum":%d,"pools":' % (version, total)


def fnv1a32(data: bytes, start: int = _BASIS) -> int:
    """The checksum of `data`, going on from `start`."""
    native = _native()
    return slow_fnv1a32(data, start) if native is None else native(data, len(data), start)


def slow_fnv1a32(data: bytes, start: int = _BASIS) -> int:
    """The same in Python."""
    total = start
    for byte in data:
        total = ((total ^ byte) * _PRIME) & _MASK
    return total


@functools.cache
def _native() -> Callable[[bytes, int, int], int] | None:
    for folder in (Path(__file__).parent, Path(sys.prefix) / "lib"):
        path = folder / LIBRARY
        if not path.exists():
            continue
        try:
            function = ctypes.CDLL(str(path)).storesum_fnv1a32
        except (OSError, AttributeError) as error:
            log.warning("checksum.library_unusable", path=str(path), reason=str(error))
            continue
        function.argtypes = (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint32)
        function.restype = ctypes.c_uint32
        native: Callable[[bytes, int, int], int] = function
        return native
    log.warning("checksum.slow", reason=f"{LIBRARY} was not found", hint="`make` builds it")
    return None


def encode(document: Document) -> bytes:
    """The whole text."""
    body = body_of(
        (
            pool_head(key, pool.name),
            [pool.entries[key].text for key in sorted(pool.entries)],
            pool_tail(pool.config, pool.pointer),
        )
        for key, pool in sorted(document.pools.items())
    )
    return seal(body, document.version)[1] + body


def decode(content: bytes) -> tuple[Document, int]:
    """The document and its checksum. No bytes are an empty store, with checksum 0."""
    if not content:
        return Document(), 0
    return _decode_plain(content) or _decode_any(content)


def _decode_any(content: bytes) -> tuple[Document, int]:
    """Read a document however it is written, as long as the original reads it."""
    try:
        root = gojson.fill(gojson.parse(content), _ROOT, {})
    except Corrupt:
        raise
    except ValueError as error:
        raise Corrupt(f"it is not valid JSON: {error}") from error
    version, written, raw_pools = root.get("version", 0), root.get("checksum", 0), root.get("pools")
    if written == 0:
        raise Corrupt("it has no checksum")
    pools = {key: _pool(key, fields) for key, fields in (raw_pools or {}).items()}
    total = seal(b"null}" if raw_pools is None else _body(pools, raw_pools), version)[0]
    if total != written:
        raise Corrupt(f"its checksum is {written}, that of its content {total}")
    return Document(pools, version), written


class _Meta(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    create_time: str
    pod_uuid: str
    pod_name: str
    pod_namespace: str
    device_id: str
    pool_config_snapshot: str


class _Reservation(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    container_id: str
    interface_name: str
    ip_address: str
    metadata: _Meta


class _Pool(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    entries: dict[str, _Reservation]
    last_pool_config: str
    last_reserved_ip: str


class _Root(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    checksum: int
    pools: dict[str, _Pool]


_PLAIN = msgspec.json.Decoder(_Root)
_ENCODE = msgspec.json.Encoder().encode
# What the original writes in another way than the library that writes the text to compare with.
_OTHERWISE = (b"<", b">", b"&", "\u2028".encode(), "\u2029".encode())


def _decode_plain(content: bytes) -> tuple[Document, int] | None:
    """Read a document that is written exactly as it would be written now: many times faster. None: it is not, or it
    may not be."""
    try:
        root = _PLAIN.decode(content)
        pools = {key: _plain_pool(key, pool) for key, pool in root.pools.items()}
    except (ValueError, msgspec.MsgspecError):
        return None
    head = b'{"version":%d,"checksum":%d,"pools":' % (root.version, root.checksum)
    is_plain = (
        root.checksum != 0
        and _is_sorted(root.pools)
        and all(_is_sorted(pool.entries) for pool in root.pools.values())
        and not any(text in content for text in _OTHERWISE[: 3 if content.isascii() else None])
        and _ENCODE(root) == content
        and seal(content[len(head) :], root.version) == (root.checksum, head)
    )
    return (Document(pools, root.version), root.checksum) if is_plain else None


def _is_sorted(names: Mapping[str, object]) -> bool:
    return sorted(names) == list(names)


def _plain_pool(key: str, pool: _Pool) -> PoolRecord:
    entries = {}
    for name, entry in pool.entries.items():
        meta = entry.metadata
        reservation = Reservation(
            key,
            entry.container_id,
            entry.interface_name,
            _plain_address(entry.ip_address),
            meta.create_time,
            meta.pod_uuid,
            meta.pod_name,
            meta.pod_namespace,
            meta.device_id,
            sys.intern(meta.pool_config_snapshot),
        )
        entries[name] = Entry(reservation, b"%b:%b" % (_ENCODE(name), _ENCODE(entry)))
    return PoolRecord(pool.name, entries, sys.intern(pool.last_pool_config), _plain_address(pool.last_reserved_ip))


def _plain_address(text: str) -> str:
    address = addresses.parse_address(text) if text else None
    # There is one way to write an IPv4 address.
    if text and (address is None or (":" in text and str(address) != text)):
        raise Corrupt(f"{text!r} is not the canonical form of an address")
    return text


def decode_reservation(pool: str, tree: Any) -> Reservation:
    """The reservation of a parsed object."""
    return _reservation(pool, gojson.fill(tree, _RESERVATION, {}))


def _body(pools: Mapping[str, PoolRecord], raw: Mapping[str, Mapping[str, Any]]) -> bytes:
    """The body as the original writes it after reading: a list that was not there is `null`, not empty."""
    parts = []
    for key in sorted(pools):
        pool = pools[key]
        head, tail = pool_head(key, pool.name), pool_tail(pool.config, pool.pointer)
        if raw[key].get("entries") is None:
            head, tail = head[:-1] + b"null", tail[1:]
        parts.append((head, [pool.entries[key].text for key in sorted(pool.entries)], tail))
    return body_of(parts)


def _pool(key: str, fields: Mapping[str, Any]) -> PoolRecord:
    entries = {}
    for name, values in (fields.get("entries") or {}).items():
        reservation = _reservation(key, values)
        entries[name] = Entry(reservation, encode_entry(name, reservation))
    return PoolRecord(
        fields.get("name", ""),
        entries,
        sys.intern(fields.get("last_pool_config", "")),
        fields.get("last_reserved_ip", ""),
    )


def _reservation(pool: str, fields: Mapping[str, Any]) -> Reservation:
    meta: Mapping[str, str] = fields.get("metadata", {})
    return Reservation(
        pool=pool,
        container_id=fields.get("container_id", ""),
        interface_name=fields.get("interface_name", ""),
        address=fields.get("ip_address", ""),
        create_time=meta.get("create_time", ""),
        pod_uid=meta.get("pod_uuid", ""),
        pod_name=meta.get("pod_name", ""),
        pod_namespace=meta.get("pod_namespace", ""),
        device_id=meta.get("device_id", ""),
        # The same text stands in every reservation of a pool: it is kept once.
        config=sys.intern(meta.get("pool_config_snapshot", "")),
    )


def _address(value: Any, before: Any) -> Any:
    if value is None or value == "":
        return ""
    address = addresses.parse_address(value) if type(value) is str else None
    if address is None:
        raise Corrupt(f"{str(value)[:80]!r} is not an IP address")
    return str(address)


_META: dict[str, Filler] = dict.fromkeys(
    ("create_time", "pod_uuid", "pod_name", "pod_namespace", "device_id", "pool_config_snapshot"), gojson.text_field
)
_RESERVATION: dict[str, Filler] = {
    "container_id": gojson.text_field,
    "interface_name": gojson.text_field,
    "ip_address": _address,
    "metadata": lambda value, before: gojson.fill(value, _META, before or {}),
}
_POOL: dict[str, Filler] = {
    "name": gojson.text_field,
    "entries": gojson.objects_field(_RESERVATION),
    "last_pool_config": gojson.text_field,
    "last_reserved_ip": _address,
}
_ROOT: dict[str, Filler] = {
    "version": gojson.integer_field(-(1 << 63), (1 << 63) - 1),
    "checksum": gojson.integer_field(0, (1 << 32) - 1),
    "pools": gojson.objects_field(_POOL),
}
