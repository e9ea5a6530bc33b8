"""The data of this node's member of etcd: a snapshot of it for the head, and one of the head in its place.

In: the settings of the member, a stream to the head. Out: what `etcdutl` says of a snapshot; or the member's data
replaced, in steps that can each be repeated and taken back:

    fetch      the snapshot comes to `restore` beside the data, is checked and unpacked there; the member runs on
    replace    the member stops, its data becomes `member.before-restore`, what was unpacked takes its place
    put_back   the other way round, as long as `restore` is there
    drop       `restore` goes; the former data stays until the next restore, or until the member is retired

A disk that is full, a damaged file or a kill during `fetch` leave the member's data as it is.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, BinaryIO, Protocol

import msgspec

from bedplate.agent.apply import Effects
from bedplate.agent.commands import Ended
from bedplate.agent.services.etcd import ETCD, LEFT, Settings, settings_of
from bedplate.client.http import Duplex, Lost
from bedplate.core import errors

__all__ = ["Data", "Line", "Told"]

_CHUNK = 1 << 20
_SAVE_S, _STATUS_S, _RESTORE_S = 900.0, 300.0, 1800.0
_LONGEST = 4096
_FORMER, _NEW = LEFT


class Line(Protocol):
    """The way to the head."""

    def snapshot(self, id_: str) -> AbstractAsyncContextManager[Duplex]: ...


class Told(errors.Terminal):
    """What was asked for could not be done; the text says why, for people."""


class Data:
    """The data of the member of this node. Every function raises `Told`."""

    def __init__(self, effects: Effects, line: Line, *, which: Callable[[str], str | None] = shutil.which) -> None:
        self._effects = effects
        self._line = line
        self._which = which

    async def give(self, id_: str) -> str:
        """Take a snapshot, check it, send it to the head; in words what it is."""
        settings = self._settings()
        file = os.path.join(self._effects.state.folder, "snapshot.db")
        try:
            _unlink(file)
            own = settings.clients.get(settings.name, "")
            tls = [f"--cacert={settings.ca}", f"--cert={settings.cert}", f"--key={settings.key}"] if settings.ca else []
            words = [self._program("etcdctl"), f"--endpoints={own}", *tls, "snapshot", "save", file]
            self._good(await self._effects.run(words, timeout_s=_SAVE_S, environ={"ETCDCTL_API": "3"}), "snapshot save")
            os.chmod(file, 0o600)
            about = await self._status(file)
            about |= {"size": _size(file), "sha256": _digest(file)}
            await self._send(id_, file, about)
        except OSError as err:
            raise Told(f"{file}: {(err.strerror or str(err)).lower()}") from err
        finally:
            _unlink(file)
        return f"revision {about['revision']}, {about['keys']} keys, {about['size']} bytes, hash {about['hash']:08x}"

    async def fetch(self, id_: str) -> str:
        """Get a snapshot of the head, check it and unpack it beside the data."""
        settings = self._settings()
        place = self._place(settings, _NEW)
        if self._is_begun(settings):
            raise Told(
                f"{place} is there from a restore that was not finished",
                hint="resume or undo it (cm-kubernetes-setup --resume, --undo); if there is none, remove that folder",
            )
        shutil.rmtree(place, ignore_errors=True)
        file = os.path.join(place, "snapshot.db")
        try:
            os.makedirs(place, mode=0o700)
            token = await self._receive(id_, file)
            about = await self._status(file)
            words = self._restore(settings, file, token)
            self._good(await self._effects.run(words, timeout_s=_RESTORE_S), "snapshot restore")
            _unlink(file)
            _own_alike(self._place(settings, "member"), os.path.join(place, "data"))
        except OSError as err:
            shutil.rmtree(place, ignore_errors=True)
            raise Told(f"{place}: {(err.strerror or str(err)).lower()}; the member's data was not changed") from err
        except Told:
            shutil.rmtree(place, ignore_errors=True)
            raise
        return f"unpacked revision {about['revision']}, {about['keys']} keys"

    async def replace(self) -> str:
        """Put what was unpacked in the place of the data, and start the member."""
        settings = self._settings()
        member, former, new = self._places(settings)
        if not self._is_begun(settings) and not _is_folder(new):
            raise Told("no snapshot is unpacked on this node", hint="fetch it first")
        await self._stop()
        try:
            if _is_folder(new):
                _touch(self._mark(settings))
                if _is_folder(member):
                    shutil.rmtree(former, ignore_errors=True)
                    os.rename(member, former)
                os.rename(new, member)
        except OSError as err:
            raise Told(f"the data of etcd cannot be replaced: {(err.strerror or str(err)).lower()}") from err
        await self._start()
        return f"etcd runs with the data of the snapshot; the former data is in {settings.data}/{_FORMER}"

    async def put_back(self) -> str:
        """Put the former data back, and start the member; nothing happens where nothing was replaced."""
        settings = self._settings()
        member, former, new = self._places(settings)
        if self._is_begun(settings):
            await self._stop()
            try:
                if _is_folder(member) and not _is_folder(new):
                    os.makedirs(os.path.dirname(new), exist_ok=True)
                    os.rename(member, new)
                if not _is_folder(member) and _is_folder(former):
                    os.rename(former, member)
            except OSError as err:
                raise Told(f"the data of etcd cannot be put back: {(err.strerror or str(err)).lower()}") from err
            _unlink(self._mark(settings))
        await self._start()
        return "etcd runs with the data that it had"

    async def drop(self) -> str:
        """Remove what a restore unpacked."""
        settings = settings_of(self._effects.root)
        if settings is not None and settings.data:
            shutil.rmtree(self._place(settings, _NEW), ignore_errors=True)
        return "nothing is unpacked"

    # Parts

    def _settings(self) -> Settings:
        settings = settings_of(self._effects.root)
        if settings is None or not settings.data:
            raise Told("this node is not a member of an etcd cluster of the head")
        return settings

    def _place(self, settings: Settings, name: str) -> str:
        return os.path.join(self._effects.root.place(settings.data), name)

    def _places(self, settings: Settings) -> tuple[str, str, str]:
        """The data, the former data, and what was unpacked."""
        new = os.path.join(self._place(settings, _NEW), "data", "member")
        return self._place(settings, "member"), self._place(settings, _FORMER), new

    def _mark(self, settings: Settings) -> str:
        """What is there from the moment before data is moved until that is taken back or the restore has ended: data
        of an earlier restore must never be taken for that of this one."""
        return os.path.join(self._place(settings, _NEW), "replaced")

    def _is_begun(self, settings: Settings) -> bool:
        return os.path.exists(self._mark(settings))

    def _program(self, name: str) -> str:
        path = self._which(name)
        if path is None:
            raise Told(f"{name} is not installed on this node", hint="it is part of etcd's package")
        return path

    def _utility(self) -> str:
        """What checks and unpacks snapshots: etcdutl since 3.5, etcdctl up to then."""
        return self._which("etcdutl") or self._program("etcdctl")

    async def _status(self, file: str) -> dict[str, Any]:
        words = [self._utility(), "snapshot", "status", file, "-w", "json"]
        ended = self._good(await self._effects.run(words, timeout_s=_STATUS_S), "snapshot status")
        try:
            output = msgspec.json.decode(ended.text)
            return {"hash": output["hash"], "revision": output["revision"], "keys": output["totalKey"]}
        except (msgspec.DecodeError, KeyError, TypeError) as err:
            raise Told(f"etcdutl snapshot status says something else than expected: {ended.text[:200]}") from err

    def _restore(self, settings: Settings, file: str, token: str) -> list[str]:
        """How the snapshot becomes data. The identity of the cluster follows from its members and the token: with a
        token of this restore alone, members that have changed over and members that have not yet refuse each other, so
        that nothing of the former data is taken for what the new one lacks."""
        program = self._utility()
        peers = ",".join(f"{name}={url}" for name, urls in settings.peers.items() for url in urls)
        words = [program, "snapshot", "restore", file, f"--name={settings.name}", f"--initial-cluster={peers}"]
        words += [f"--initial-cluster-token={settings.token} {token}", f"--data-dir={os.path.dirname(file)}/data"]
        words += [f"--initial-advertise-peer-urls={','.join(settings.peers.get(settings.name, ()))}"]
        if program.endswith("etcdutl"):
            # Whoever watches from a later revision must be told to list again, not wait for it to come round.
            words += ["--bump-revision=1000000000", "--mark-compacted"]
        return words

    def _good(self, ended: Ended, what: str) -> Ended:
        if not ended.is_good:
            raise Told(f"{what} failed: {ended.reason[-400:]}")
        return ended

    async def _send(self, id_: str, file: str, about: dict[str, Any]) -> None:
        try:
            async with self._line.snapshot(id_) as duplex:
                await duplex.send(msgspec.json.encode(about) + b"\n")
                for chunk in _chunks(file):
                    await duplex.send(chunk)
                await duplex.end()
                output = b""
                try:
                    async for data in duplex.chunks:
                        output = (output + data)[-_LONGEST:]
                except Lost:
                    raise Told(
                        f"the head did not keep it: {output.decode(errors='replace').strip() or 'it closed'}"
                    ) from None
        except (Lost, errors.BedplateError) as err:
            if isinstance(err, Told):
                raise
            raise Told(f"the head was lost: {err}") from err

    async def _receive(self, id_: str, file: str) -> str:
        """Write a snapshot as it comes; what tells this restore from others."""
        digest, size, about = hashlib.sha256(), 0, None
        try:
            async with self._line.snapshot(id_) as duplex:
                await duplex.end()
                with _private(file) as stream:
                    async for chunk in _after_line(duplex.chunks):
                        if about is None:
                            about = msgspec.json.decode(chunk)
                            continue
                        digest.update(chunk)
                        size += len(chunk)
                        stream.write(chunk)
                    stream.flush()
                    os.fsync(stream.fileno())
        except (Lost, msgspec.DecodeError) as err:
            raise Told(f"the snapshot did not arrive: {err}") from err
        except errors.BedplateError as err:
            raise Told(str(err)) from err
        if about is None or (about.get("size"), about.get("sha256")) != (size, digest.hexdigest()):
            raise Told("the snapshot that arrived is not the one that the head has")
        if not about.get("restore"):
            raise Told("the head did not say which restore this is; update the head")
        return str(about["restore"])

    async def _stop(self) -> None:
        if why := await self._effects.services.stop(ETCD):
            raise Told(f"etcd does not stop: {why}")

    async def _start(self) -> None:
        if why := await self._effects.services.start(ETCD):
            raise Told(f"etcd does not start: {why}")


async def _after_line(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The first line, then the rest as it comes."""
    first: bytes | None = b""
    async for chunk in chunks:
        if first is None:
            yield chunk
            continue
        first += chunk
        line, end, rest = first.partition(b"\n")
        if end:
            first = None
            yield line
            if rest:
                yield rest
        elif len(first) > _LONGEST:
            raise Lost("it does not begin with a line of JSON")


def _is_folder(path: str) -> bool:
    return os.path.isdir(path)


def _size(path: str) -> int:
    return os.path.getsize(path)


def _touch(path: str) -> None:
    with open(path, "w"):
        pass


def _chunks(file: str) -> Iterator[bytes]:
    with open(file, "rb") as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


def _private(file: str) -> BinaryIO:
    return open(file, "wb", opener=lambda path, flags: os.open(path, flags, 0o600))


def _digest(file: str) -> str:
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _own_alike(model: str, tree: str) -> None:
    """Give a tree to whom the data belongs."""
    try:
        owner = os.stat(model)
    except OSError:
        return
    for folder, _, names in os.walk(tree):
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            os.chown(path, owner.st_uid, owner.st_gid)


def _unlink(path: str) -> None:
    if os.path.lexists(path):
        os.unlink(path)
