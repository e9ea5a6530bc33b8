"""What the agent must not forget, in a folder that only it reads: kill -9 or a power cut at any moment loses nothing.

In: states, steps, records of files. Out: the same after a restart. Every file is replaced whole, never written over.

    held.json          the state that holds, the one that should, and the ETag it came with
    journal            a change under way: both states, then a line before and after each step
    files/KEY.json     a path that is managed: what was written there, and what was there before
    files/KEY.before   the bytes that were there before
    edited/            what people had written into managed files, the last few
    packages.json      packages that the agent installed
    enabled.json       services that it enabled
    flags.json         arguments of static pods that it changed, as they were
    errands.json       requests that were accepted, and how far each is: none is carried out twice
    membership.json    the Kubernetes cluster that kubeadm made the node part of
    boot.json          the run of the machine that was last reported
    refused.json       the archive of the agent that did not do, and why
    image.rules        what the last image update left alone, for rsync
    outbox.json        what the head has not been told yet

A record is written before the file it is about, so that the first look at a path is the one that counts: content that
the agent wrote itself is never taken for the original.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeVar

import msgspec

from bedplate.agent.files import Kind, Present
from bedplate.api import headapi
from bedplate.api.desired import Desired
from bedplate.api.desired import Errand as Asked
from bedplate.api.steps import Step
from bedplate.core import errors

__all__ = [
    "Boot",
    "Change",
    "Errand",
    "Held",
    "Membership",
    "Original",
    "Outbox",
    "Record",
    "Refused",
    "State",
    "StateProblem",
    "digest_of",
]

T = TypeVar("T")
_EDITED = 20
_ERRANDS = 100
_LARGEST_EDITED = 1 << 20


class StateProblem(errors.Terminal):
    """The agent's own folder cannot be read or written."""


class Held(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`state` holds on the node. `wanted` should, came with `etag` and has `digest`; `is_whole`: the two are the same,
    and `applied` is the newest revision of which that is known."""

    state: Desired | None = None
    wanted: Desired | None = None
    etag: str = ""
    digest: str = ""
    applied: int = 0
    is_whole: bool = False


class Original(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was at a path before; the bytes are in a file of their own."""

    kind: Kind = "absent"
    mode: int = 0
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    target: str = ""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A managed file as it was written: the digest is that of the file, or of the block in it. `folders` were made for
    it."""

    path: str
    digest: str
    mode: int
    owner: str
    group: str
    block: bool = False
    original: Original = Original()
    folders: tuple[str, ...] = ()


class Outbox(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is still to be told. Results carry the wall clock time at which they were measured."""

    actions: list[headapi.Action] = []
    failures: list[headapi.Failure] = []
    results: list[tuple[float, headapi.Result]] = []


class Errand(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request that was written down. `noted` comes first; `accepted` is what the head was told before it was carried
    out, in the run `boot` of the machine; `done` and `failed` are the end, which the head knows once it is `is_told`.
    `work` is what goes on after an interruption: a transfer of an image.
    """

    state: Literal["noted", "accepted", "done", "failed"]
    kind: str
    boot: str
    text: str = ""
    is_told: bool = False
    lines: tuple[str, ...] = ()
    work: Asked | None = None


class Membership(msgspec.Struct, frozen=True, omit_defaults=True):
    """The Kubernetes cluster that kubeadm is about to make the node part of, or has (`is_whole`)."""

    cluster: str = ""
    is_whole: bool = False


class Refused(msgspec.Struct, frozen=True, omit_defaults=True):
    """An archive of the agent that is not tried again, and why."""

    digest: str = ""
    why: str = ""


class Boot(msgspec.Struct, frozen=True):
    """The run of the machine, and the one that was last reported. Of a sandbox: the request that restarted it."""

    id: str = ""
    told: str = ""


class Change(NamedTuple):
    """A change that was under way: what to go on with. `etag` came with the state from the head; None: the change puts
    right what drifted. `started` is the step that was begun and not ended, with the run of the service that it found.
    """

    before: Desired | None
    after: Desired
    etag: str | None = None
    done: tuple[Step, ...] = ()
    started: Step | None = None
    instance: str = ""


class _Begin(msgspec.Struct, frozen=True, tag="begin", tag_field="line"):
    before: Desired | None
    after: Desired
    etag: str | None
    held: str


class _Start(msgspec.Struct, frozen=True, tag="start", tag_field="line"):
    step: Step
    instance: str = ""


class _End(msgspec.Struct, frozen=True, tag="end", tag_field="line"):
    step: Step
    why: str | None = None


_LINE: msgspec.json.Decoder[_Begin | _Start | _End] = msgspec.json.Decoder(_Begin | _Start | _End)


def digest_of(content: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


class State:
    """The folder. `open` makes it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._journal: int | None = None
        self._records: dict[str, Record] | None = None

    def open(self) -> None:
        """Make the folders, for nobody else to read. Raises `StateProblem`."""
        with _told(self.folder):
            for name in ("", "files", "edited"):
                os.makedirs(os.path.join(self.folder, name), mode=0o700, exist_ok=True)
            os.chmod(self.folder, 0o700)

    def close(self) -> None:
        if self._journal is not None:
            os.close(self._journal)
            self._journal = None

    # What holds

    def held(self) -> Held:
        """The held state; an empty one where nothing was ever done."""
        return self._read("held.json", Held) or Held()

    def save_held(self, new: Held) -> None:
        self._write("held.json", msgspec.json.encode(new))

    # The change under way

    def begin(self, change: Change) -> None:
        """Note that a change begins. It is on the disk when this returns."""
        self.close()
        line = msgspec.json.encode(_Begin(change.before, change.after, change.etag, self._mark())) + b"\n"
        self._write("journal", line)
        with _told(self.folder):
            self._journal = os.open(self._at("journal"), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def resume(self) -> Change | None:
        """The change that was under way, or None. Its journal stays open for the steps to come."""
        try:
            with open(self._at("journal"), "rb") as stream:
                lines = stream.read().split(b"\n")
        except FileNotFoundError:
            return None
        except OSError as err:
            raise _problem(self.folder, err) from err
        change = self._change(lines)
        if change is None:
            self.end()
            return None
        # A line that was cut off is ended, or the next one would be a part of it.
        with _told(self.folder):
            self._journal = os.open(self._at("journal"), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            os.write(self._journal, b"\n" if lines[-1] else b"")
        return change

    def _change(self, lines: Sequence[bytes]) -> Change | None:
        parsed = []
        for line in lines:
            with contextlib.suppress(msgspec.DecodeError):
                parsed.append(_LINE.decode(line))
        # A change that ended left its journal behind if the held state has moved on since.
        if not parsed or not isinstance(parsed[0], _Begin) or parsed[0].held != self._mark():
            return None
        begin, done, started = parsed[0], [], None
        for entry in parsed[1:]:
            if isinstance(entry, _Start):
                started = entry
            elif isinstance(entry, _End):
                started = None
                if entry.why is None:
                    done.append(entry.step)
        step, instance = (started.step, started.instance) if started is not None else (None, "")
        return Change(begin.before, begin.after, begin.etag, tuple(done), step, instance)

    def started(self, step: Step, instance: str = "") -> None:
        """Note that a step begins; `instance` is the present run of the service it is about."""
        self._append(_Start(step, instance))

    def ended(self, step: Step, why: str | None) -> None:
        self._append(_End(step, why))

    def end(self) -> None:
        """The change is over, and the held state is written."""
        self.close()
        with _told(self.folder), contextlib.suppress(FileNotFoundError):
            os.unlink(self._at("journal"))

    def _append(self, line: _Start | _End) -> None:
        if self._journal is None:
            return
        with _told(self.folder):
            os.write(self._journal, msgspec.json.encode(line) + b"\n")

    def _mark(self) -> str:
        """Which held state a journal starts from."""
        try:
            with open(self._at("held.json"), "rb") as stream:
                return digest_of(stream.read())
        except OSError:
            return ""

    # Files

    def record(self, path: str) -> Record | None:
        """What is known of a managed path."""
        return self._known().get(path)

    def records(self) -> list[Record]:
        """All managed paths, by path."""
        return [record for _, record in sorted(self._known().items())]

    def save_record(self, record: Record) -> None:
        self._write(f"files/{_key(record.path)}.json", msgspec.json.encode(record))
        self._known()[record.path] = record

    def _known(self) -> dict[str, Record]:
        """The records, read once: nobody else writes them."""
        if self._records is None:
            try:
                names = [name for name in os.listdir(self._at("files")) if name.endswith(".json")]
            except FileNotFoundError:
                names = []
            except OSError as err:
                raise _problem(self.folder, err) from err
            records = [self._read(f"files/{name}", Record) for name in names]
            self._records = {record.path: record for record in records if record is not None}
        return self._records

    def keep_original(self, path: str, present: Present) -> Original:
        """Keep what is at a path before it is written for the first time."""
        if present.kind == "file":
            self._write(f"files/{_key(path)}.before", present.content)
        return Original(
            kind=present.kind,
            mode=present.mode,
            uid=present.uid,
            gid=present.gid,
            mtime_ns=present.mtime_ns,
            target=present.target,
        )

    def original(self, record: Record) -> Present:
        """What was at a path before, with its bytes. Raises `StateProblem` when they are lost."""
        about, content = record.original, b""
        if about.kind == "file":
            with _told(self.folder), open(self._at(f"files/{_key(record.path)}.before"), "rb") as stream:
                content = stream.read()
        return Present(about.kind, content, about.mode, about.uid, about.gid, about.mtime_ns, about.target)

    def forget(self, path: str) -> None:
        """A path is not managed any more."""
        self._known().pop(path, None)
        with _told(self.folder):
            for ending in ("json", "before"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._at(f"files/{_key(path)}.{ending}"))

    def keep_edited(self, path: str, content: bytes) -> str:
        """Keep what people wrote into a managed file before it is written over; where it is, or nothing."""
        name = f"edited/{os.path.basename(path)[:80]}.{digest_of(content)[:12]}"
        if len(content) > _LARGEST_EDITED:
            return ""
        try:
            self._write(name, content)
            folder = self._at("edited")
            kept = sorted(os.listdir(folder), key=lambda entry: os.stat(os.path.join(folder, entry)).st_mtime_ns)
            for old in kept[:-_EDITED]:
                os.unlink(os.path.join(folder, old))
        except (OSError, StateProblem):
            # A copy is a kindness; a full disk must not keep the file from being put right.
            return ""
        return self._at(name)

    # Packages

    def installed(self) -> set[str]:
        """The packages that the agent installed, and may remove."""
        return set(self._read("packages.json", list[str]) or ())

    def save_installed(self, names: set[str]) -> None:
        self._write("packages.json", msgspec.json.encode(sorted(names)))

    def enabled(self) -> set[str]:
        """The services that start with the machine because of the agent."""
        return set(self._read("enabled.json", list[str]) or ())

    def save_enabled(self, names: set[str]) -> None:
        self._write("enabled.json", msgspec.json.encode(sorted(names)))

    def flags(self) -> dict[str, str]:
        """By flag the argument that was there before; empty for none."""
        return self._read("flags.json", dict[str, str]) or {}

    def save_flags(self, flags: dict[str, str]) -> None:
        self._write("flags.json", msgspec.json.encode(flags))

    # What is done once

    def boot(self) -> Boot:
        return self._read("boot.json", Boot) or Boot()

    def save_boot(self, boot: Boot) -> None:
        self._write("boot.json", msgspec.json.encode(boot))

    def errands(self) -> dict[str, Errand]:
        """The last requests by id, oldest first."""
        return self._read("errands.json", dict[str, Errand]) or {}

    def save_errand(self, id_: str, errand: Errand) -> None:
        """It is on the disk when this returns."""
        errands = {**self.errands(), id_: errand}
        kept = dict(list(errands.items())[-_ERRANDS:])
        self._write("errands.json", msgspec.json.encode(kept))

    def membership(self) -> Membership:
        """The Kubernetes cluster of the node, as far as kubeadm was asked by the head."""
        return self._read("membership.json", Membership) or Membership()

    def save_membership(self, membership: Membership) -> None:
        self._write("membership.json", msgspec.json.encode(membership))

    # The agent itself

    def refused(self) -> Refused:
        """The archive of the agent that did not do; an empty digest for none."""
        return self._read("refused.json", Refused) or Refused()

    def save_refused(self, refused: Refused) -> None:
        self._write("refused.json", msgspec.json.encode(refused))

    # What is to be told

    def outbox(self) -> Outbox:
        return self._read("outbox.json", Outbox) or Outbox()

    def save_outbox(self, outbox: Outbox) -> None:
        self._write("outbox.json", msgspec.json.encode(outbox))

    # Inside

    def _at(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _read(self, name: str, kind: type[T]) -> T | None:
        try:
            with open(self._at(name), "rb") as stream:
                return msgspec.json.decode(stream.read(), type=kind)
        except FileNotFoundError:
            return None
        except OSError as err:
            raise _problem(self.folder, err) from err
        except msgspec.DecodeError as err:
            raise StateProblem(
                f"{self._at(name)} cannot be read: {err}", hint="move it away; the head is asked for everything again"
            ) from err

    def _write(self, name: str, content: bytes) -> None:
        """Replace a file whole. A disk that is full leaves the old one; it is on the disk when this returns, so that no
        managed file is newer than its record after a power cut."""
        place = self._at(name)
        with _told(self.folder):
            new = f"{place}.new"
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                view = memoryview(content)
                while view:
                    view = view[os.write(handle, view) :]
                os.fsync(handle)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(new)
                raise
            finally:
                os.close(handle)
            os.rename(new, place)
            folder = os.open(os.path.dirname(place), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def _key(path: str) -> str:
    return digest_of(path.encode())[:32]


def _problem(folder: str, err: OSError) -> StateProblem:
    why = os.strerror(err.errno).lower() if err.errno else str(err)
    hint = "free space on its file system" if err.errno in (errno.ENOSPC, errno.EDQUOT) else "run the agent as root"
    return StateProblem(f"the agent's state in {folder} cannot be used: {why}", hint=hint)


@contextlib.contextmanager
def _told(folder: str) -> Iterator[None]:
    try:
        yield
    except OSError as err:
        raise _problem(folder, err) from err
