"""Nodes without a disk on the agent's own loop: thousands of agents in one process, each with its own link to the head.

In: a name, a login. Out: an `agent.loop.Agent` whose files are a dictionary, whose state is kept in memory, and whose
services and packages only remember what was done. Everything between the head and these four is the agent's own code:
polls, steps, the journal, drift, reports, turns. (`sim.agents` stands for many devices with one event stream instead,
which costs a head less than agents do.)
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from bedplate.agent.apply import Effects
from bedplate.agent.checks import FILES, SERVICES, Checks
from bedplate.agent.commands import Ended
from bedplate.agent.files import FileProblem, Present, Root, Written
from bedplate.agent.link import Link, Login
from bedplate.agent.loop import Agent
from bedplate.agent.node import Pace
from bedplate.agent.services import Status
from bedplate.agent.state import Change, Original, Record, State
from bedplate.api.desired import Desired
from bedplate.api.headapi import Result
from bedplate.api.steps import Step

__all__ = ["MemoryRoot", "MemoryState", "Node"]

T = TypeVar("T")


class MemoryRoot(Root):
    """Files by path; folders are there when they are needed. There are no links."""

    def __init__(self) -> None:
        super().__init__("/nowhere", is_privileged=False)
        self.files: dict[str, Present] = {}
        self._writes = 0

    def place(self, path: str) -> str:
        return path

    def read(self, path: str, *, follow: bool = False) -> Present:
        return self.files.get(path, Present("absent"))

    def stat(self, path: str) -> os.stat_result | None:
        present = self.files.get(path)
        if present is None:
            return None
        times = (present.mtime_ns // 10**9,) * 3
        return os.stat_result((stat.S_IFREG | present.mode, present.mtime_ns, 0, 1, 0, 0, len(present.content), *times))

    def missing_folders(self, path: str) -> tuple[str, ...]:
        return ()

    def write(
        self, path: str, content: bytes, written: Written, *, folder_mode: int | None = None, follow: bool = False
    ) -> None:
        if not path.startswith("/"):
            raise FileProblem(f"{path!r} is not the absolute path of a file")
        self._writes += 1
        self.files[path] = Present("file", content, written.mode, 0, 0, self._writes)

    @contextlib.contextmanager
    def trial(self, path: str, content: bytes, written: Written, *, folder_mode: int | None = None) -> Iterator[str]:
        yield path

    def put_back(self, path: str, present: Present) -> None:
        self.files[path] = present

    def remove(self, path: str) -> None:
        self.files.pop(path, None)

    def remove_folders(self, folders: tuple[str, ...]) -> None:
        return None


class MemoryState(State):
    """What the folder of an agent holds, as bytes by name."""

    def __init__(self) -> None:
        super().__init__("/nowhere")
        self._kept: dict[str, bytes] = {}
        self._originals: dict[str, Present] = {}
        self._records = {}

    def open(self) -> None:
        return None

    def close(self) -> None:
        return None

    def begin(self, change: Change) -> None:
        """A node without a disk is never resumed: its journal is not kept."""

    def resume(self) -> Change | None:
        return None

    def started(self, step: Step, instance: str = "") -> None:
        return None

    def ended(self, step: Step, why: str | None) -> None:
        return None

    def end(self) -> None:
        return None

    def save_record(self, record: Record) -> None:
        self._known()[record.path] = record

    def keep_edited(self, path: str, content: bytes) -> str:
        return ""

    def keep_original(self, path: str, present: Present) -> Original:
        self._originals[path] = present
        return super().keep_original(path, present)

    def original(self, record: Record) -> Present:
        return self._originals.get(record.path, Present("absent"))

    def forget(self, path: str) -> None:
        self._known().pop(path, None)

    def _read(self, name: str, kind: type[T]) -> T | None:
        content = self._kept.get(name)
        return None if content is None else msgspec.json.decode(content, type=kind)

    def _write(self, name: str, content: bytes) -> None:
        self._kept[name] = content


class _Services:
    """Services that run or do not, each run with a number."""

    def __init__(self) -> None:
        self.running: dict[str, int] = {}
        self._count = 0

    async def start(self, name: str, timeout_s: float = 90.0) -> str | None:
        if name not in self.running:
            self._count += 1
            self.running[name] = self._count
        return None

    async def stop(self, name: str, timeout_s: float = 90.0) -> str | None:
        self.running.pop(name, None)
        return None

    async def retire(self, name: str, timeout_s: float = 90.0) -> str | None:
        return await self.stop(name, timeout_s)

    async def restart(self, name: str, timeout_s: float = 90.0) -> str | None:
        await self.stop(name)
        return await self.start(name)

    async def reload(self, name: str, timeout_s: float = 90.0) -> str | None:
        return None

    async def enable(self, name: str) -> str | None:
        return None

    async def disable(self, name: str) -> str | None:
        return None

    async def is_enabled(self, name: str) -> bool:
        return True

    async def reload_units(self) -> str | None:
        return None

    async def status(self, names: Iterable[str]) -> Mapping[str, Status]:
        return {
            name: Status(name, "running", 1, str(self.running[name]))
            if name in self.running
            else Status(name, "stopped")
            for name in names
        }

    def ordered(self, names: Sequence[str]) -> Sequence[str]:
        return names


class _Packages:
    def __init__(self) -> None:
        self.present: set[str] = set()

    async def installed(self, names: Iterable[str]) -> set[str]:
        return self.present & set(names)

    async def install(self, name: str) -> str | None:
        self.present.add(name)
        return None

    async def remove(self, name: str) -> str | None:
        self.present.discard(name)
        return None

    async def upgrade(self, name: str, version: str, *, only_fetch: bool = False) -> str | None:
        return None


class _Checks(Checks):
    """Everything else is well."""

    async def measure(self, name: str, state: Desired | None) -> Result | None:
        if name in (SERVICES, FILES):
            return await super().measure(name, state)
        return Result(check=name, status="PASS")


async def _run(command: Sequence[str], *, timeout_s: float = 60.0, environ: Mapping[str, str] | None = None) -> Ended:
    return Ended(0)


@dataclass(slots=True)
class Node:
    """One node; `run` until cancelled. `agent` tells what holds."""

    login: Login
    pace: Pace = field(default_factory=Pace)
    root: MemoryRoot = field(default_factory=MemoryRoot)
    agent: Agent = field(init=False)
    _link: Link = field(init=False)

    def __post_init__(self) -> None:
        self._link = Link(self.login)
        services = _Services()
        effects = Effects(self.root, MemoryState(), services, _Packages(), _run)
        checks = _Checks(self.root, services, _run)
        self.agent = Agent(replace(effects, turns=self._link), self._link, checks=checks, pace=self.pace)

    async def run(self) -> None:
        async with self._link:
            await self.agent.run()
