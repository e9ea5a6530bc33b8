"""Kubernetes protobuf bodies written by hand: just enough of the wire format to send what typed clients send."""

from __future__ import annotations

from collections.abc import Mapping

MAGIC = b"k8s\x00"
PROTOBUF = "application/vnd.kubernetes.protobuf"


def varint(value: int) -> bytes:
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, value: bytes | str) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(content)) + content


def mapping(field: int, entries: Mapping[str, str | bytes]) -> bytes:
    return b"".join(block(field, block(1, key) + block(2, value)) for key, value in entries.items())


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    """The object in Kubernetes' outer message, as it goes over the wire."""
    return MAGIC + block(1, block(1, api_version) + block(2, kind)) + block(2, raw) + block(3, "") + block(4, "")


def object_meta(name: str, labels: Mapping[str, str] | None = None, resource_version: str = "") -> bytes:
    version = block(6, resource_version) if resource_version else b""
    return block(1, name) + block(2, "") + version + mapping(11, labels or {})
