"""Starts cm-kubernetes-setup for people at the page, as a process of its own, and tells when a run moves on.

In: the head, its data folder. Out: an implementation of `bedplate.head.setups.Setups`. The process has a session of its
own, reads nothing, and writes to files beside its journal: the daemon may end, start again or be killed meanwhile, and
the run goes on. What the daemon knows of it, it reads from there; so runs of terminals are shown as well, and nothing
has to be taken over by the next daemon. Answers go to the tool in a file that its owner alone can read, never in words
of the command line.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from bedplate.api.setups import SetupActionName, SetupForm, SetupRun
from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock
from bedplate.core.logging import get_logger
from bedplate.head import Head, Tree
from bedplate.head.folder.datafolder import Folder
from bedplate.head.setups import Busy
from bedplate.setup.answers import document, fitting
from bedplate.setup.answers import site as sites
from bedplate.setup.engine import lock
from bedplate.setup.engine.journal import folder_of, write_atomically
from bedplate.setup.serving import form as forms
from bedplate.setup.serving import runs
from bedplate.setup.tool import heads
from bedplate.setup.tool.output import LOG_FILE

__all__ = ["KubernetesSetups"]

_LOG = get_logger("head.setup")
_ANSWERS = "answers.yaml"
_LOOK_S = 0.5
_PROGRAM = (sys.executable, "-m", "bedplate.apps.kubernetessetup")
_NOUNS = {"deploy": "deployment", "remove": "removal", "resume": "resumption", "undo": "undo"}


_Prepare = Callable[[], list[str]]
"""Makes what the tool reads; the words of its command line."""


class KubernetesSetups:
    """The tool of one head. `program` is how it is called."""

    def __init__(
        self,
        head: Head,
        data: Path,
        name: str,
        *,
        program: Sequence[str] = _PROGRAM,
        clock: Clock | None = None,
    ) -> None:
        self._head = head
        self._data = data.absolute()
        self._name = name
        self._program = tuple(program)
        self._clock = clock or SystemClock()
        self._state = heads.state_folder(None, self._data)
        self._starting = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._site: tuple[Tree, sites.Site] | None = None

    # The form

    def form(self, typed: Mapping[str, str], prefilled: Mapping[str, str]) -> SetupForm:
        return forms.of_typed(self._current_site(), typed, prefilled, self._clock)

    def check(self, answers: bytes) -> SetupForm:
        loaded = document.load(answers, "the body").values
        with contextlib.suppress(errors.Invalid):
            # With the names that aliases stand for, which the tool resolves as well.
            loaded = fitting.complete(loaded, self._current_site())
        return forms.of_answers(self._current_site(), loaded, self._clock)

    def _current_site(self) -> sites.Site:
        tree = self._head.tree
        if self._site is None or self._site[0] is not tree:
            self._site = tree, sites.of_tree(tree, self._name)
        return self._site[1]

    # Runs

    def runs(self) -> Sequence[SetupRun]:
        listed = []
        for cluster in runs.clusters(self._state):
            with contextlib.suppress(errors.NotFound):  # a terminal's run that has just begun
                listed.append(self.run(cluster))
        listed.sort(key=lambda run: (run.status in ("starting", "running"), run.began), reverse=True)
        return [msgspec.structs.replace(run, stages=[]) for run in listed]

    def run(self, cluster: str) -> SetupRun:
        self._reap()
        return runs.read(self._state, cluster, lock.holder(self._state), self._clock.now())

    async def deploy(self, form: SetupForm, by: str) -> SetupRun:
        folder = self._folder(form.cluster)

        def prepare() -> list[str]:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(folder / _ANSWERS, form.answers.encode())
            return ["-c", str(folder / _ANSWERS)]

        return await self._start(form.cluster, "deploy", prepare, by)

    async def act(self, cluster: str, action: SetupActionName, by: str) -> SetupRun:
        folder = self._folder(cluster)
        if action == "abort":
            return self._abort(cluster, by)
        if action == "remove":
            words = ["--remove", "--yes-i-really-mean-it", "--cluster", cluster]
        else:
            words = [f"--{action}", "--cluster", cluster]
            self._refuse_busy()
            known = self.run(cluster)
            if action not in known.actions:
                raise errors.Conflict(
                    f"the {known.operation} of the cluster {cluster} is {known.status}; it cannot be {_done(action)}",
                    hint="load the page again",
                )

        def prepare() -> list[str]:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return words

        return await self._start(cluster, action, prepare, by)

    def _folder(self, cluster: str) -> Path:
        return folder_of(self._state, cluster)

    async def _start(self, cluster: str, action: str, prepare: _Prepare, by: str) -> SetupRun:
        async with self._starting:
            self._refuse_busy()
            self._forget_answers()  # of a run that outlived the daemon that started it
            try:
                self._process = self._spawned(cluster, prepare())
                start = runs.Start(self._process.pid, by, action, self._clock.now().isoformat(timespec="milliseconds"))
                write_atomically(self._folder(cluster) / runs.START, msgspec.json.encode(start))
            except OSError as err:
                raise errors.Unavailable(
                    f"the {_NOUNS[action]} of the cluster {cluster} could not be started: {err.strerror}",
                    hint=f"look at {self._state}",
                ) from err
        _LOG.info("head.setup_started", cluster=cluster, action=action, by=by, pid=start.pid)
        return self.run(cluster)

    def _spawned(self, cluster: str, words: Sequence[str]) -> subprocess.Popen[bytes]:
        # A service may not write to /var/log, where the log of terminals is.
        log = str(self._state / LOG_FILE.name)
        common = ["--json", "--data", str(self._data), "--state", str(self._state), "--log-file", log]
        holder = Folder(self._data).holder()
        if holder is not None and holder.url:
            # Should this daemon be killed now, the tool must not keep the next one out of its folder.
            common.append("--served")
        file = self._folder(cluster) / runs.OUTPUT
        file.unlink(missing_ok=True)
        output = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            # Not asyncio's: that one kills its children when its loop is closed.
            return subprocess.Popen(
                [*self._program, *words, *common],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd="/",
                env={name: value for name, value in os.environ.items() if not name.startswith("BEDPLATE_")},
            )
        finally:
            os.close(output)

    def _refuse_busy(self) -> None:
        """Raise `Busy` while a run is under way, or one that was started here has not come so far."""
        self._reap()
        holder = lock.holder(self._state)
        if holder is not None:
            start = runs.read_start(self._state, holder.cluster) if holder.cluster else None
            by = f", started by {start.by}" if start is not None and start.pid == holder.pid else ""
            raise Busy(
                f"another setup is running: {holder.what}{by}, process {holder.pid}, since {holder.since}",
                cluster=holder.cluster,
                hint="wait until it has ended",
            )
        for run in self.runs():
            if run.status in ("starting", "running"):
                raise Busy(
                    f"another setup is running: {run.operation} of the cluster {run.cluster}, started by {run.by}, "
                    f"process {run.process}",
                    cluster=run.cluster,
                    hint="wait until it has ended",
                )

    def _abort(self, cluster: str, by: str) -> SetupRun:
        holder = lock.holder(self._state)
        if holder is None or holder.cluster != cluster:
            raise errors.Conflict(f"no run for the cluster {cluster} is under way", hint="load the page again")
        if not runs.is_tool(holder.pid):
            raise errors.Unavailable(
                f"process {holder.pid}, which runs it, is not to be seen from here", hint="press Ctrl-C at its terminal"
            )
        try:
            os.kill(holder.pid, signal.SIGTERM)
        except OSError as err:
            raise errors.Unavailable(
                f"process {holder.pid} cannot be ended: {err.strerror}", hint="press Ctrl-C at its terminal"
            ) from err
        _LOG.info("head.setup_aborted", cluster=cluster, by=by, pid=holder.pid)
        return self.run(cluster)

    def _reap(self) -> None:
        """Take leave of a process of ours that has ended, and of the answers that it has read."""
        if self._process is not None and self._process.poll() is not None:
            self._process = None
            self._forget_answers()

    def _forget_answers(self) -> None:
        for cluster in runs.clusters(self._state):
            with contextlib.suppress(OSError):
                (self._state / cluster / _ANSWERS).unlink()

    # What moves on

    async def changes(self) -> AsyncGenerator[str]:
        seen = self._moment()
        while True:
            await self._clock.sleep(_LOOK_S)
            now = self._moment()
            for cluster in sorted(name for name in {*seen, *now} if seen.get(name) != now.get(name)):
                yield cluster
            seen = now

    def _moment(self) -> dict[str, tuple[object, ...]]:
        """What changes whenever a run does, by cluster."""
        self._reap()
        try:
            holder = lock.holder(self._state)
        except errors.Invalid:
            holder = None
        moment: dict[str, tuple[object, ...]] = {}
        for cluster in runs.clusters(self._state):
            start = runs.read_start(self._state, cluster)
            is_held = holder is not None and holder.cluster == cluster
            is_alive = start is not None and runs.is_tool(start.pid)
            moment[cluster] = (is_held, is_alive, *(_touched(self._state / cluster / file) for file in runs.FILES))
        return moment


def _touched(file: Path) -> tuple[int, int]:
    try:
        stat = file.stat()
    except OSError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size


def _done(action: str) -> str:
    return {"resume": "resumed", "undo": "undone"}.get(action, action)
