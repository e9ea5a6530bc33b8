"""What a run has done, on disk before and after each stage, so that a killed run can be resumed or undone.

In: the state folder and the name of a cluster. Out: `<state>/<cluster>/journal.json`, replaced as a whole and synced
with every step, readable by its owner alone: until the run is over it has the answers with their secrets, without
which nothing could be resumed. When a run is over the secrets go, and the file stays as the record of the last run.
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
from collections.abc import Iterable, Iterator, MutableMapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from bedplate.api.headapi import NAME
from bedplate.core import errors

__all__ = [
    "RESERVED",
    "Journal",
    "Notes",
    "Record",
    "StageRecord",
    "StageState",
    "check_name",
    "folder_of",
    "known",
    "unfinished",
    "write_atomically",
]

StageState = Literal["pending", "running", "done", "failed", "undoing", "undone"]
Phase = Literal["run", "undo", "over"]
Status = Literal["", "completed", "failed", "aborted", "undone"]

FILE = "journal.json"
RESERVED = ("lock",)
"""What the tool itself has beside the folders of clusters."""


class StageRecord(msgspec.Struct):
    """How far a stage is."""

    name: str
    plugin: str
    state: StageState = "pending"
    error: str = ""
    began: str = ""
    """When it, or its undo, was last begun (ISO 8601)."""
    ended: str = ""

    @property
    def is_begun(self) -> bool:
        """Whether the stage may have changed something that an undo must take back."""
        return self.state in ("running", "done", "failed", "undoing")


class Record(msgspec.Struct):
    """The journal file. `status` is empty while nothing ended the run in an orderly way."""

    title: str
    operation: str
    cluster: str
    began: str
    pid: int
    stages: list[StageRecord]
    answers: dict[str, Any]
    phase: Phase = "run"
    status: Status = ""
    ended: str = ""
    notes: dict[str, Any] = {}
    version: int = 1


class Notes(MutableMapping[str, Any]):
    """The notes of a run. What is assigned is on disk when the assignment returns; what is read is a copy."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __getitem__(self, key: str) -> Any:
        return copy.deepcopy(self._journal.record.notes[key])

    def __setitem__(self, key: str, value: Any) -> None:
        # Through JSON and back, so that a resumed run reads the same kinds of values.
        value = msgspec.json.decode(msgspec.json.encode(value))
        notes = self._journal.record.notes
        if key in notes and notes[key] == value:
            return
        notes[key] = value
        self._journal.save()

    def __delitem__(self, key: str) -> None:
        del self._journal.record.notes[key]
        self._journal.save()

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._journal.record.notes))

    def __len__(self) -> int:
        return len(self._journal.record.notes)


class Journal:
    """The journal of one run. Only the process with the lock of the state folder may write it."""

    def __init__(self, file: Path, record: Record) -> None:
        self.file = file
        self.record = record
        self.notes = Notes(self)

    @classmethod
    def load(cls, state: Path, cluster: str) -> Journal | None:
        """The journal of the last run for a cluster, or None. Raises `Invalid` for a file that cannot be read."""
        file = folder_of(state, cluster) / FILE
        try:
            content = file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as err:
            raise errors.Invalid(f"the journal {file} cannot be read: {err.strerror}", hint="run as root") from err
        try:
            return cls(file, msgspec.json.decode(content, type=Record))
        except msgspec.MsgspecError as err:
            raise errors.Invalid(
                f"the journal {file} is damaged: {err}",
                hint="move the file away; cm-kubernetes-setup --remove then cleans up what is left of the cluster",
            ) from err

    @classmethod
    def begin(cls, state: Path, record: Record) -> Journal:
        """A new journal in place of the one of the last run, which must be over."""
        folder = folder_of(state, record.cluster)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        journal = cls(folder / FILE, record)
        journal.save()
        return journal

    @property
    def is_over(self) -> bool:
        return self.record.phase == "over"

    def save(self) -> None:
        """Write the record; it is durable on return."""
        write_atomically(self.file, msgspec.json.format(msgspec.json.encode(self.record), indent=1) + b"\n")

    def mark(self, name: str, state: StageState, error: str = "", *, at: str = "") -> None:
        """Note how far a stage is, and since when, durably."""
        stage = self.stage(name)
        is_begun = state in ("running", "undoing")
        if is_begun or (state == "undone" and stage.state != "undoing"):
            stage.began = at
        stage.ended = "" if is_begun else at
        stage.state, stage.error = state, error
        self.save()

    def stage(self, name: str) -> StageRecord:
        return next(stage for stage in self.record.stages if stage.name == name)

    def finish(self, status: Status, ended: str, *, is_over: bool, answers: dict[str, Any] | None = None) -> None:
        """Note how the run ended. `answers` are those without secrets, for a run that is over."""
        self.record.status, self.record.ended = status, ended
        if is_over:
            self.record.phase = "over"
            if answers is not None:
                self.record.answers = answers
        self.save()


def unfinished(state: Path) -> Iterable[Journal]:
    """The journals of runs that are not over, in the order of their clusters' names."""
    for cluster in known(state):
        if (state / cluster / FILE).is_file():
            journal = Journal.load(state, cluster)
            if journal is not None and not journal.is_over:
                yield journal


def check_name(cluster: str) -> str:
    """A name that is safe as that of a folder. Raises `Invalid`."""
    if cluster.startswith(".") or cluster in RESERVED or re.fullmatch(NAME, cluster) is None:
        raise errors.Invalid(f"{cluster!r} cannot be the name of a cluster")
    return cluster


def folder_of(state: Path, cluster: str) -> Path:
    """The folder of a cluster's runs, which need not exist. Raises `Invalid` for a name that cannot be one, and for a
    link: whoever could write the state folder must not choose which files the tool writes, maybe as root."""
    folder = state / check_name(cluster)
    if folder.is_symlink():
        raise errors.Invalid(f"{folder} is a symbolic link", hint="remove it")
    return folder


def known(state: Path) -> list[str]:
    """The names of the folders of clusters, in their order; what cannot be one is not read."""
    try:
        entries = sorted(state.iterdir())
    except OSError:
        return []
    clusters = []
    for entry in entries:
        with contextlib.suppress(errors.Invalid):
            if folder_of(state, entry.name).is_dir():
                clusters.append(entry.name)
    return clusters


def write_atomically(file: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file as a whole; old or new is there after a crash, and the new one once this returns."""
    temporary = file.with_name(f".{file.name}.new")
    temporary.unlink(missing_ok=True)  # of a process that was killed, or a link that leads elsewhere
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as out:
            os.fchmod(out.fileno(), mode)
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, file)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
