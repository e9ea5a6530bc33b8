"""Writes RPM packages: the format of version 4 (lead, signature, header, cpio payload), without rpmbuild.

In: a layer of files as `tools/rootfs.py` has them, what the package says of itself, its scripts. Out: the bytes of a
package that `rpm` checks, installs and removes. Equal input gives equal bytes. Packages are not signed; their digests
are those that rpm checks by itself.
"""

from __future__ import annotations

import gzip
import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import rootfs
from rootfs import Entry, Layer

ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
SCRIPTS = {"post": (1024, 1086, 10), "preun": (1025, 1087, 11), "postun": (1026, 1088, 12)}
"""By kind: the tags of a script and of its interpreter, and the bit that says what needs the interpreter."""
_INT16, _INT32, _STRING, _BINARY, _STRINGS, _TRANSLATED = 3, 4, 6, 7, 8, 9
_FORMATS = {_INT16: "H", _INT32: "I"}
_LEAD, _HEADER = b"\xed\xab\xee\xdb\x03\x00", b"\x8e\xad\xe8\x01\x00\x00\x00\x00"
_SIGNATURE_REGION, _HEADER_REGION = 62, 63
_SHA256 = 8
_CONFIG = 1 | 16
"""A settings file that is not replaced when somebody changed it."""
_INTERPRETER, _NEEDS = 1 << 8, 2 | 8 | 1 << 24
_FEATURES = {"CompressedFileNames": "3.0.4-1", "FileDigests": "4.6.0-1", "PayloadFilesHavePrefix": "4.0-1"}
Tags = dict[int, tuple[int, Any]]


@dataclass(frozen=True)
class About:
    """What a package says of itself. `owned` are folders that are its own, `settings` files that people change."""

    name: str
    version: str
    architecture: str
    summary: str
    description: str
    licence: str
    time_s: int
    scripts: Mapping[str, str] = field(default_factory=dict)
    owned: Sequence[str] = ()
    settings: Sequence[str] = ()
    release: str = "1"

    @property
    def full_version(self) -> str:
        return f"{self.version}-{self.release}"


def package(about: About, files: Layer) -> bytes:
    """The bytes of a package."""
    entries = sorted((files | _folders(files, about.owned)).items())
    payload = cpio(entries, about.time_s)
    packed = gzip.compress(payload, 6, mtime=0)
    header = _encoded(_described(about, entries, packed), _HEADER_REGION)
    signature: Tags = {
        269: (_STRING, hashlib.sha1(header).hexdigest()),
        273: (_STRING, hashlib.sha256(header).hexdigest()),
        1000: (_INT32, [len(header) + len(packed)]),
        1004: (_BINARY, hashlib.md5(header + packed).digest()),
        1007: (_INT32, [len(payload)]),
    }
    name = f"{about.name}-{about.full_version}".encode()[:65]
    lead = _LEAD + struct.pack(">HH66sHH16x", 0, 1, name, 1, 5)
    return lead + _padded(_encoded(signature, _SIGNATURE_REGION), 8) + header + packed


def _folders(files: Iterable[str], owned: Sequence[str]) -> Layer:
    names = {str(parent) for name in files for parent in map("/".join, _parents(name))}
    return {name: Entry(0o755) for name in names if any(f"{name}/".startswith(f"{top}/") for top in owned)}


def _parents(name: str) -> list[list[str]]:
    words = name.split("/")
    return [words[:count] for count in range(1, len(words))]


def cpio(entries: Sequence[tuple[str, Entry]], time_s: int) -> bytes:
    """An archive in the form that rpm reads ("newc"), paths from the root."""
    parts = []
    for number, (name, entry) in enumerate(entries, 1):
        parts.append(_member(number, f"./{name}", _mode(entry), _held(entry), time_s))
    parts.append(_member(0, "TRAILER!!!", 0, b"", 0))
    return b"".join(parts)


def _member(number: int, name: str, mode: int, content: bytes, time_s: int) -> bytes:
    fields = (number, mode, 0, 0, 1, time_s, len(content), 0, 0, 0, 0, len(name.encode()) + 1, 0)
    head = b"070701" + b"".join(b"%08x" % value for value in fields) + name.encode() + b"\0"
    return _padded(head, 4) + _padded(content, 4)


def _mode(entry: Entry) -> int:
    if entry.link:
        return 0o120777
    return (0o040000 if rootfs.content(entry) is None else 0o100000) | entry.mode


def _held(entry: Entry) -> bytes:
    return entry.link.encode() if entry.link else rootfs.content(entry) or b""


def _padded(data: bytes, to: int) -> bytes:
    return data + b"\0" * (-len(data) % to)


# Headers


def _described(about: About, entries: Sequence[tuple[str, Entry]], packed: bytes) -> Tags:
    return _identity(about, entries) | _scripts(about) | _needs(about) | _files(about, entries) | _payload(packed)


def _identity(about: About, entries: Sequence[tuple[str, Entry]]) -> Tags:
    texts = {
        1000: about.name,
        1001: about.version,
        1002: about.release,
        1007: "localhost",
        1014: about.licence,
        1021: "linux",
        1022: about.architecture,
        1044: f"{about.name}-{about.full_version}.src.rpm",
        1064: "4.14.0",
        5062: "utf-8",
    }
    translated = {1004: about.summary, 1005: about.description, 1016: "System Environment/Daemons"}
    size = sum(len(_held(entry)) for _, entry in entries)
    return (
        {100: (_STRINGS, ["C"]), 1006: (_INT32, [about.time_s]), 1009: (_INT32, [size])}
        | {tag: (_STRING, text) for tag, text in texts.items()}
        | {tag: (_TRANSLATED, [text]) for tag, text in translated.items()}
    )


def _scripts(about: About) -> Tags:
    tags: Tags = {}
    for kind, text in about.scripts.items():
        script, program, _ = SCRIPTS[kind]
        tags |= {script: (_STRING, text), program: (_STRING, "/bin/sh")}
    return tags


def _needs(about: About) -> Tags:
    needs = [(f"rpmlib({name})", version, _NEEDS) for name, version in _FEATURES.items()]
    needs += [("/bin/sh", "", _INTERPRETER | 1 << SCRIPTS[kind][2]) for kind in about.scripts]
    needs.sort()
    return {
        1047: (_STRINGS, [about.name]),
        1112: (_INT32, [8]),
        1113: (_STRINGS, [about.full_version]),
        1049: (_STRINGS, [name for name, _, _ in needs]),
        1050: (_STRINGS, [version for _, version, _ in needs]),
        1048: (_INT32, [flags for _, _, flags in needs]),
    }


def _files(about: About, entries: Sequence[tuple[str, Entry]]) -> Tags:
    folders = sorted({_folder(name) for name, _ in entries})
    count = len(entries)
    digests = [
        "" if content is None else hashlib.sha256(content).hexdigest()
        for content in (rootfs.content(entry) for _, entry in entries)
    ]
    return {
        1028: (_INT32, [4096 if _mode(entry) >> 12 == 4 else len(_held(entry)) for _, entry in entries]),
        1030: (_INT16, [_mode(entry) for _, entry in entries]),
        1033: (_INT16, [0] * count),
        1034: (_INT32, [about.time_s] * count),
        1035: (_STRINGS, digests),
        1036: (_STRINGS, [entry.link for _, entry in entries]),
        1037: (_INT32, [_CONFIG if name in about.settings else 0 for name, _ in entries]),
        1039: (_STRINGS, ["root"] * count),
        1040: (_STRINGS, ["root"] * count),
        1045: (_INT32, [0xFFFFFFFF] * count),
        1095: (_INT32, [1] * count),
        1096: (_INT32, list(range(1, count + 1))),
        1097: (_STRINGS, [""] * count),
        1116: (_INT32, [folders.index(_folder(name)) for name, _ in entries]),
        1117: (_STRINGS, [name.rpartition("/")[2] for name, _ in entries]),
        1118: (_STRINGS, folders),
        5011: (_INT32, [_SHA256]),
    }


def _folder(name: str) -> str:
    above = name.rpartition("/")[0]
    return f"/{above}/" if above else "/"


def _payload(packed: bytes) -> Tags:
    return {
        1124: (_STRING, "cpio"),
        1125: (_STRING, "gzip"),
        1126: (_STRING, "6"),
        5092: (_STRINGS, [hashlib.sha256(packed).hexdigest()]),
        5093: (_INT32, [_SHA256]),
    }


def _encoded(tags: Tags, region: int) -> bytes:
    """A header: an index of tags and what they stand for. The region says that it is one piece."""
    index, store = [], bytearray()
    for tag, (kind, value) in sorted(tags.items()):
        data, count = _data(kind, value)
        store += b"\0" * (-len(store) % struct.calcsize(_FORMATS.get(kind, "B")))
        index.append(struct.pack(">IIII", tag, kind, len(store), count))
        store += data
    entries = len(index) + 1
    index.insert(0, struct.pack(">IIII", region, _BINARY, len(store), 16))
    store += struct.pack(">IIiI", region, _BINARY, -entries * 16, 16)
    return _HEADER + struct.pack(">II", entries, len(store)) + b"".join(index) + bytes(store)


def _data(kind: int, value: Any) -> tuple[bytes, int]:
    if kind in _FORMATS:
        return struct.pack(f">{len(value)}{_FORMATS[kind]}", *value), len(value)
    if kind == _BINARY:
        return value, len(value)
    if kind == _STRING:
        return value.encode() + b"\0", 1
    return b"".join(text.encode() + b"\0" for text in value), len(value)
