"""A node to test agents on: a sandbox folder, services and packages that only remember, a head that is a variable."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from tests.waiting import until

from bedplate.agent.apply import Applier, Effects
from bedplate.agent.commands import Ended
from bedplate.agent.files import Root
from bedplate.agent.observe import Edits, Watch
from bedplate.agent.services import Status
from bedplate.agent.state import State
from bedplate.api import headapi
from bedplate.api.desired import Desired, File, Service
from bedplate.api.steps import Outcome
from bedplate.client import Wanted
from bedplate.core import errors
from bedplate.core.clock import ManualClock


class Services:
    """Services that run or do not; `broken` ones do not start."""

    def __init__(self) -> None:
        self.running: dict[str, int] = {}
        self.did: list[str] = []
        self.broken: dict[str, str] = {}
        self.enabled: set[str] = set()
        self._count = 0

    async def start(self, name: str, timeout_s: float = 90.0) -> str | None:
        return self._run("start", name) if name not in self.running else None

    async def stop(self, name: str, timeout_s: float = 90.0) -> str | None:
        self.did.append(f"stop {name}")
        self.running.pop(name, None)
        return None

    async def retire(self, name: str, timeout_s: float = 90.0) -> str | None:
        return await self.stop(name, timeout_s)

    async def restart(self, name: str, timeout_s: float = 90.0) -> str | None:
        return self._run("restart", name)

    async def reload(self, name: str, timeout_s: float = 90.0) -> str | None:
        self.did.append(f"reload {name}")
        return self.broken.get(name)

    async def enable(self, name: str) -> str | None:
        self.enabled.add(name)
        return None

    async def disable(self, name: str) -> str | None:
        self.enabled.discard(name)
        return None

    async def is_enabled(self, name: str) -> bool:
        return name in self.enabled

    async def reload_units(self) -> str | None:
        self.did.append("reload units")
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

    def _run(self, verb: str, name: str) -> str | None:
        self.did.append(f"{verb} {name}")
        if name in self.broken:
            return self.broken[name]
        self._count += 1
        self.running[name] = self._count
        return None


class Packages:
    """Packages that are there or not."""

    def __init__(self, *present: str) -> None:
        self.present = set(present)
        self.did: list[str] = []
        self.broken: dict[str, str] = {}

    async def installed(self, names: Iterable[str]) -> set[str]:
        return self.present & set(names)

    async def install(self, name: str) -> str | None:
        self.did.append(f"install {name}")
        if name not in self.broken:
            self.present.add(name)
        return self.broken.get(name)

    async def remove(self, name: str) -> str | None:
        self.did.append(f"remove {name}")
        self.present.discard(name)
        return None

    async def upgrade(self, name: str, version: str, *, only_fetch: bool = False) -> str | None:
        self.did.append(f"{'fetch' if only_fetch else 'upgrade'} {name} {version}")
        return self.broken.get(name)


class Commands:
    """Commands that are only remembered; `answers` by program."""

    def __init__(self) -> None:
        self.ran: list[list[str]] = []
        self.contents: list[str] = []
        self.answers: dict[str, Ended] = {}

    async def __call__(
        self, command: Sequence[str], *, timeout_s: float = 60.0, environ: Mapping[str, str] | None = None
    ) -> Ended:
        self.ran.append(list(command))
        last = command[-1]
        if last.startswith("/") and os.path.isfile(last):
            self.contents.append(Path(last).read_text())
        return self.answers.get(command[0], Ended(0))


class Machine:
    """A sandbox and what works on it."""

    def __init__(self, folder: Path, *, edits: Edits | None = None, packages: Packages | None = None) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.root = Root(str(folder), is_privileged=False)
        self.state = State(str(folder / "var/lib/bedplate-agent"))
        self.services = Services()
        self.packages = packages or Packages()
        self.commands = Commands()
        self.effects = Effects(
            self.root, self.state, self.services, self.packages, run=self.commands, edits=edits or Edits()
        )
        self.watch = Watch(self.root, self.state)
        self.applier = Applier(self.effects, self.watch)

    def at(self, path: str) -> Path:
        return self.folder / path.lstrip("/")

    def put(self, path: str, content: str, mode: int = 0o644) -> Path:
        place = self.at(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
        place.chmod(mode)
        return place

    async def apply(self, before: Desired | None, after: Desired) -> Outcome:
        self.state.open()
        outcome = await self.applier.apply(before, after, "etag")
        self.state.end()
        return outcome

    def tree(self, *without: str) -> dict[str, tuple[str, str]]:
        """Every file and folder but the agent's own: mode and content."""
        own = ("/var/lib/bedplate-agent", "/run/bedplate-agent", "/var/log/bedplate-agent", *without)
        found = {}
        for parent, folders, names in os.walk(self.folder):
            for name in (*folders, *names):
                place = os.path.join(parent, name)
                path = "/" + os.path.relpath(place, self.folder)
                if path.startswith(own) or any(one.startswith(path) for one in own):
                    continue
                about = os.lstat(place)
                if os.path.islink(place):
                    content = f"-> {os.readlink(place)}"
                elif os.path.isdir(place):
                    content = "folder"
                else:
                    content = f"{hashlib.sha256(Path(place).read_bytes()).hexdigest()} {about.st_mtime_ns}"
                found[path] = (oct(about.st_mode), content)
        return found


class FakeHead:
    """A head for one node: `state` is what it should be, `reports` what it said."""

    def __init__(self, state: Desired) -> None:
        self._changed = asyncio.Event()
        self.reports: list[headapi.ReportRequest] = []
        self.failing: errors.BedplateError | None = None
        self.polls = 0
        self.state = state

    def commit(self, state: Desired) -> None:
        self.state = msgspec.structs.replace(state, revision=self.state.revision + 1)
        self._changed.set()

    def wake(self) -> None:
        """End the poll that waits, without news."""
        self._changed.set()

    async def desired(self, etag: str, wait_s: float) -> Wanted | None:
        self.polls += 1
        if self.failing is not None:
            raise self.failing
        if etag == self.state.etag:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            if self.failing is not None:
                raise self.failing
        return None if etag == self.state.etag else Wanted(self.state.etag, self.state)

    async def report(self, report: headapi.ReportRequest) -> int:
        if self.failing is not None:
            raise self.failing
        self.reports.append(report)
        return self.state.revision

    def image(self, id_: str) -> Any:
        raise errors.NotFound(f"this head has no transfer {id_}")

    def archive(self, digest: str) -> Any:
        raise errors.NotFound(f"this head has no archive {digest}")

    @property
    def applied(self) -> int:
        return max((report.applied for report in self.reports), default=0)

    def told(self) -> list[str]:
        """Actions and failures in words."""
        words = []
        for report in self.reports:
            words += [f"{one.kind} {one.name} was {one.verb}" for one in report.actions]
            words += [f"{one.kind} {one.name} could not be {one.verb}" for one in report.failures]
        return words


def desired(*files: File, services: Sequence[str] = (), **more: Any) -> Desired:
    revision = more.pop("revision", 1)
    return Desired(
        node="node001",
        revision=revision,
        files=tuple(sorted(files, key=lambda file: file.path)),
        services=tuple(Service(name=name) for name in services),
        **more,
    )


_RESTING = 2
"""What sleeps while an agent has nothing to do: its upkeep and its news."""


async def elapse(clock: ManualClock, seconds: float) -> None:
    """Let time go by, then wait for the agent to be at rest: a check in a thread takes none of this clock's time."""
    await clock.advance(seconds)
    await until(lambda: clock.sleepers >= _RESTING, "the agent is at rest")


async def passing(clock: ManualClock, condition: Callable[[], bool]) -> None:
    """Let time go by until something holds."""

    async def passes() -> bool:
        await elapse(clock, 5)
        return condition()

    await until(passes)
