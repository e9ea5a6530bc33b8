"""Snapshots of the etcd of clusters, in the data folder of the head: `etcd-snapshots/CLUSTER/NAME.db`.

In: bytes that the agent of a member sends, with what it says of them. Out: files for the owner alone, each beside a
`NAME.json` with its size, its SHA-256 and what `etcdutl` says of it; a file appears whole and checked, or not at all.
etcd ends a snapshot with the SHA-256 of what is before, so that also a file from elsewhere can be checked here.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final, Literal

import msgspec

from bedplate.core import errors
from bedplate.core.clock import rfc3339

__all__ = ["FOLDER", "Origin", "Snapshot", "Snapshots", "check", "name_at", "origin"]

FOLDER: Final = "etcd-snapshots"
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,99}")
_SUM = 32
_PAGE = 512
"""The database before the sum is made of pages, so that what has a sum is longer by it than a multiple of this."""
_CHUNK = 1 << 20
_OBJECTS, _AUTHORITY = b"/registry/", b"/registry/configmaps/kube-system/kube-root-ca.crt"
"""Where the API server keeps its objects in etcd, and the one that every cluster has its authority in."""
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----\s+(.+?)\s+-----END CERTIFICATE-----", re.DOTALL)
_SPARE = 256 << 20
"""So much of the disk stays free: the head's own database may be on it."""

Origin = Literal["own", "other", "unknown", "not Kubernetes"]


class Snapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a snapshot; `hash`, `revision` and `keys` are as `etcdutl snapshot status` says."""

    name: str = ""
    size: int = 0
    sha256: str = ""
    taken: str = ""
    member: str = ""
    revision: int = 0
    keys: int = 0
    hash: int = 0


def name_at(now: datetime) -> str:
    """The name of a snapshot of that time."""
    return now.strftime("%Y-%m-%dT%H-%M-%SZ")


def check(file: Path) -> Snapshot:
    """Size and SHA-256 of a snapshot. Raises `Invalid` for a file that is none, or is damaged or cut off."""
    whole, body = hashlib.sha256(), hashlib.sha256()
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            if size <= _SUM or size % _PAGE != _SUM:
                raise errors.Invalid(
                    f"{file} is not a snapshot of etcd, or was cut off: it does not end with a SHA-256",
                    hint="take it with --etcd-snapshot, or with etcdctl snapshot save",
                )
            left = size - _SUM
            while left:
                chunk = stream.read(min(left, _CHUNK))
                if not chunk:
                    raise errors.Invalid(f"{file} became shorter while it was read", hint="retry with a file at rest")
                left -= len(chunk)
                whole.update(chunk)
                body.update(chunk)
            last = stream.read(_SUM)
            whole.update(last)
    except OSError as err:
        raise errors.Invalid(f"{file} cannot be read: {err.strerror}", hint="use another snapshot") from err
    if last != body.digest():
        raise errors.Invalid(f"{file} is damaged: its SHA-256 is not the one at its end", hint="use another snapshot")
    return Snapshot(size=size, sha256=whole.hexdigest())


def origin(file: Path, authority: bytes) -> Origin:
    """Whose snapshot a file is, by the certificate of a cluster's authority (PEM), which each of its namespaces has in
    a ConfigMap. Raises `Invalid` for a file that cannot be read."""
    pem = _PEM.search(authority)
    own = b"\n".join(pem[1].split()) if pem is not None else b""
    try:
        present = _present(file, [_OBJECTS, _AUTHORITY, *([own] if own else [])])
    except OSError as err:
        raise errors.Invalid(f"{file} cannot be read: {err.strerror}", hint="use another snapshot") from err
    if own in present:
        return "own"
    if _OBJECTS not in present:
        return "not Kubernetes"
    return "other" if own and _AUTHORITY in present else "unknown"


def _present(file: Path, texts: Iterable[bytes]) -> set[bytes]:
    """Those of the texts that are in a file."""
    left, present, end = set(texts), set[bytes](), b""
    longest = max(map(len, left))
    with file.open("rb") as stream:
        while left and (chunk := stream.read(_CHUNK)):
            window = end + chunk
            present |= {text for text in left if text in window}
            left -= present
            end = window[-longest:]
    return present


class Snapshots:
    """Those of all clusters, below a data folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER

    def place(self, cluster: str, name: str) -> Path:
        """Where a snapshot is, or would be. Raises `Invalid` for what cannot be the name of one."""
        if not _NAME.fullmatch(name) or not _NAME.fullmatch(cluster):
            raise errors.Invalid(f"{name!r} is not the name of a snapshot", hint="see --etcd-snapshots")
        return self._folder / cluster / f"{name}.db"

    def list(self, cluster: str) -> Sequence[Snapshot]:
        """The snapshots of a cluster, oldest first."""
        listed = []
        for file in sorted(self.place(cluster, "x").parent.glob("*.db")):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                about = msgspec.json.decode(file.with_suffix(".json").read_bytes(), type=Snapshot)
                listed.append(msgspec.structs.replace(about, name=file.stem, size=file.stat().st_size))
        return listed

    def get(self, cluster: str, name: str) -> Snapshot:
        """Raises `NotFound`, `Invalid`."""
        self.place(cluster, name)
        known = {each.name: each for each in self.list(cluster)}
        if name not in known:
            raise errors.NotFound(
                f"there is no snapshot {name} of the cluster {cluster}", hint=f"there are: {', '.join(known) or 'none'}"
            )
        return known[name]

    async def receive(self, cluster: str, name: str, about: Snapshot, chunks: AsyncIterator[bytes]) -> Snapshot:
        """Write a snapshot as it comes, check it, and keep it. Raises `Invalid`, `Unavailable` when the disk is full;
        nothing is left then."""
        with self._new(cluster, name) as part:
            _refuse_full(part.parent, about.size)
            with _told(part), _new_file(part) as stream:
                async for chunk in chunks:
                    stream.write(chunk)
                stream.flush()
                os.fsync(stream.fileno())
            return await asyncio.to_thread(self._keep, cluster, name, part, about)

    def adopt(self, cluster: str, file: Path, now: datetime) -> Snapshot:
        """Copy a snapshot from elsewhere. Raises `Invalid`, `Unavailable`."""
        about, name = msgspec.structs.replace(check(file), taken=rfc3339(now)), f"{name_at(now)}-from-file"
        with self._new(cluster, name) as part:
            with _told(part), _new_file(part) as stream, file.open("rb") as source:
                shutil.copyfileobj(source, stream, _CHUNK)
                stream.flush()
                os.fsync(stream.fileno())
            return self._keep(cluster, name, part, about)

    def copy(self, cluster: str, name: str, file: Path) -> None:
        """Give a copy to somebody else's file, which appears whole. Raises `Unavailable`."""
        part = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            with _told(file), _new_file(part) as stream:
                with self.place(cluster, name).open("rb") as source:
                    shutil.copyfileobj(source, stream, _CHUNK)
                stream.flush()
                os.fsync(stream.fileno())
            check(part)
            os.replace(part, file)
        finally:
            part.unlink(missing_ok=True)

    def prune(self, cluster: str, keep: int) -> Sequence[str]:
        """Remove all but the newest ones; the names of what went."""
        gone = [each.name for each in self.list(cluster)[:-keep]] if keep > 0 else []
        for name in gone:
            self.remove(cluster, name)
        return gone

    def remove(self, cluster: str, name: str) -> None:
        """Remove one; nothing happens where it is not there."""
        file = self.place(cluster, name)
        file.unlink(missing_ok=True)
        file.with_suffix(".json").unlink(missing_ok=True)

    @contextlib.contextmanager
    def _new(self, cluster: str, name: str) -> Iterator[Path]:
        file = self.place(cluster, name)
        part = file.with_name(f".{name}.{os.getpid()}.part")
        with _told(file):
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        try:
            yield part
        finally:
            part.unlink(missing_ok=True)

    def _keep(self, cluster: str, name: str, part: Path, about: Snapshot) -> Snapshot:
        own = check(part)
        if (about.size, about.sha256) != (own.size, own.sha256):
            raise errors.Invalid(f"the snapshot {name} is not what its member sent", hint="retry; see the network")
        kept, file = msgspec.structs.replace(about, name=name), self.place(cluster, name)
        with _told(file):
            note = file.with_suffix(".json.part")
            with open(note, "wb", opener=_private) as stream:
                stream.write(msgspec.json.encode(kept) + b"\n")
            os.replace(note, file.with_suffix(".json"))
            os.replace(part, file)
        return kept


def _refuse_full(folder: Path, size: int) -> None:
    with _told(folder):
        free = shutil.disk_usage(folder).free
    if free - size < _SPARE:
        raise errors.Unavailable(
            f"{folder} has room for {max(free - _SPARE, 0)} bytes, and the snapshot has {size}",
            hint="free space there; no snapshot was changed",
        )


def _new_file(path: Path) -> BinaryIO:
    return open(path, "xb", opener=_private)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@contextlib.contextmanager
def _told(file: Path) -> Iterator[None]:
    """A disk that is full, or a folder that cannot be written, in words."""
    try:
        yield
    except OSError as err:
        raise errors.Unavailable(
            f"{file} cannot be written: {(err.strerror or str(err)).lower()}",
            hint="free space there, or see its permissions; no snapshot was changed",
        ) from err
