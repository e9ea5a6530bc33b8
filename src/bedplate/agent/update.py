"""The agent replaces itself by the version that the head names, and goes back by itself when that one fails.

In: `agent_version` and `agent_archives` (architecture=SHA-256) of the desired state. Out: that version's folder beside
the present one, and `current` leading to it; the service manager starts the agent again. Nothing of an archive is used
before all of it is there with the digest that the desired state names, and its program has said its version.

    .trial    NEW PREVIOUS DIGEST STARTS, beside `current` from the switch until NEW has reported to the head

Each start of NEW counts one up (the launcher does, which is a few lines of shell: a version whose modules cannot be
imported is counted, too). After three the launcher starts PREVIOUS, which puts `current` back, remembers that the
archive failed, and reports it. A trial ends without a report after some minutes, and so counts as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import tarfile
import zlib
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import IO, NamedTuple, Protocol

from bedplate.agent.commands import Run, run
from bedplate.agent.placement import MACHINES, Placement
from bedplate.agent.state import Refused, State, StateProblem
from bedplate.client.http import Streamed
from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.core.logging import get_logger

__all__ = ["Source", "Trial", "Unreported", "Updates"]

_LOG = get_logger("agent.update")
_LARGEST = 512 << 20
_START_S = 60.0
_TRIAL_S = 300.0
_SIDE, _TRIAL = ".update", ".trial"


class Source(Protocol):
    """Where archives come from."""

    def archive(self, digest: str) -> AbstractAsyncContextManager[Streamed]: ...


class Unreported(errors.Terminal):
    """A new version could not tell the head anything: it ends, so that its start is counted."""


class Trial(NamedTuple):
    """A version that has yet to prove itself."""

    new: str
    previous: str
    digest: str
    starts: int


class Updates:
    """`version` is the one that runs, `home` its folder (None: it runs from a checkout), `is_kept` whether somebody
    starts the agent again when it ends. `is_placed`: another version is to be started now."""

    def __init__(
        self,
        placement: Placement,
        state: State,
        source: Source,
        *,
        version: str,
        home: str | None,
        is_kept: bool,
        run: Run = run,
        machine: str = "",
    ) -> None:
        self._placement, self._state, self._source, self._run = placement, state, source, run
        self._home, self._is_kept = home, is_kept
        self._architecture = MACHINES.get(machine or os.uname().machine, machine or os.uname().machine)
        self.version = version
        self.is_placed = False
        self._trial: Trial | None = None

    # A new version, or the one before it

    def recover(self) -> None:
        """Look at a trial when the agent starts: it is this version's, or this version is back because of it."""
        if self._home is None:
            return
        trial = self._read_trial()
        if trial is not None and trial.new == self.version:
            self._trial = trial
        elif trial is not None and trial.previous == self.version:
            try:
                self._go_back(trial)
            except (OSError, StateProblem) as err:
                # The next start tries again; meanwhile this version does its work.
                _LOG.warning("agent.update.stuck", error=str(err))

    def _go_back(self, trial: Trial) -> None:
        if trial.starts:
            why = f"{trial.new} did not report to the head after {trial.starts} starts; {self.version} runs again"
            self._state.save_refused(Refused(trial.digest, why))
            _LOG.warning("agent.update.back", version=trial.new, runs=self.version)
        self._placement.switch(self.version)
        self._forget_trial()

    async def limited(self, clock: Clock) -> None:
        """End a trial that does not report. Raises `Unreported`."""
        if self._trial is not None:
            await clock.sleep(_TRIAL_S)
        if self._trial is not None:
            raise Unreported(
                f"version {self.version} did not report to the head within {_TRIAL_S:.0f} s",
                hint=f"{self._trial.previous} runs again after a few starts",
            )

    def reported(self) -> None:
        """The head took a report: this version is good, and the one before its predecessor is not needed any more."""
        if self._trial is not None:
            trial, self._trial = self._trial, None
            self._forget_trial()
            self._placement.prune(self.version, trial.previous)
            shutil.rmtree(self._side, ignore_errors=True)
            _LOG.info("agent.update.good", version=self.version, before=trial.previous)

    # The next version

    async def follow(self, settings: Mapping[str, str]) -> str | None:
        """Put the version in place that the head names; None, or why that cannot be."""
        version = settings.get("agent_version", "")
        if version in ("", self.version):
            return None
        if self._home is None:
            return "this agent does not run from its archive, and is left as it is; make packages builds the archive"
        if not self._is_kept:
            return "this agent is not run as a service, and would not start again; bedplate-agent start runs it as one"
        archives = dict(word.split("=", 1) for word in settings.get("agent_archives", "").split(",") if "=" in word)
        digest = archives.get(self._architecture, "")
        if not digest:
            return (
                f"agentarchives has no archive for {self._architecture}; bedplate head agent-archive adds it, and says"
                " what to set"
            )
        refused = self._state.refused()
        if refused.digest == digest:
            return f"{refused.why}; set agentversion {self.version}, or another archive"
        try:
            await self._place(version, digest)
        except (errors.BedplateError, OSError, EOFError, zlib.error, tarfile.TarError) as err:
            return " ".join(str(err).split())[:400]
        finally:
            shutil.rmtree(self._side, ignore_errors=True)
        return None

    @property
    def _side(self) -> str:
        return os.path.join(self._placement.home, _SIDE)

    async def _place(self, version: str, digest: str) -> None:
        shutil.rmtree(self._side, ignore_errors=True)
        os.makedirs(self._side, mode=0o700)
        archive, tree = os.path.join(self._side, "archive"), os.path.join(self._side, "tree")
        await self._fetch(digest, archive)
        await asyncio.to_thread(_unpack, archive, tree, version)
        new = os.path.join(tree, version)
        ended = await self._run([os.path.join(new, "bin", "bedplate-agent"), "--version"], timeout_s=_START_S)
        if not ended.is_good or ended.text.strip() != f"bedplate-agent, version {version}":
            raise errors.Invalid(f"the archive does not start as {version}: {ended.reason or ended.text.strip()[:100]}")
        self._move(new, os.path.join(self._placement.home, version))
        await asyncio.to_thread(os.sync)
        self._write_trial(Trial(version, self.version, digest, 0))
        self._placement.switch(version)
        self.is_placed = True
        _LOG.info("agent.update.placed", version=version, before=self.version)

    def _move(self, new: str, place: str) -> None:
        if os.path.lexists(place):
            os.rename(place, os.path.join(self._side, "old"))
        os.rename(new, place)

    async def _fetch(self, digest: str, place: str) -> None:
        hashed, size = hashlib.sha256(), 0
        with _created(place) as stream:
            async with self._source.archive(digest) as answer:
                async for chunk in answer.chunks:
                    size += len(chunk)
                    if size > _LARGEST:
                        raise errors.Invalid(f"the archive is larger than {_LARGEST >> 20} MiB")
                    hashed.update(chunk)
                    stream.write(chunk)
        if hashed.hexdigest() != digest:
            raise errors.Invalid(
                f"what the head sent is not the archive that it names: its SHA-256 is {hashed.hexdigest()[:12]}…,"
                f" not {digest[:12]}…"
            )

    # The trial's file

    def _read_trial(self) -> Trial | None:
        try:
            with open(os.path.join(self._placement.home, _TRIAL)) as stream:
                new, previous, digest, starts = stream.read().split()
            return Trial(new, previous, digest, int(starts))
        except (OSError, ValueError):
            return None

    def _write_trial(self, trial: Trial) -> None:
        place = os.path.join(self._placement.home, _TRIAL)
        with open(f"{place}.new", "w") as stream:
            stream.write(" ".join(map(str, trial)) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(f"{place}.new", place)

    def _forget_trial(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._placement.home, _TRIAL))


def _created(place: str) -> IO[bytes]:
    return open(place, "xb")


def _unpack(archive: str, tree: str, version: str) -> None:
    """Unpack what belongs to one version. Nothing of it leads out of its folder."""
    with tarfile.open(archive, "r:gz") as opened:
        for member in opened:
            if member.name.partition("/")[0] != version:
                raise errors.Invalid(f"the archive is not one of version {version}: it has {member.name[:100]}")
            opened.extract(member, tree, filter="data")
