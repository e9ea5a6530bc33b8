"""A plugin whose world is a folder, for tests of the engine."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bedplate.core import errors
from bedplate.core.clock import Clock, ManualClock
from bedplate.setup.engine import Context, Journal, Stage
from bedplate.setup.engine.choices import Chooser
from bedplate.setup.engine.formats import Format, console
from bedplate.setup.engine.journal import Record, StageRecord
from bedplate.setup.engine.logfile import LogFile
from bedplate.setup.engine.reporter import NoDisplay, Reporter
from bedplate.setup.engine.run import Run

TITLE = "Kubernetes Setup"


async def make(folder: Path, name: str, step: Callable[[], None], context: Context) -> None:
    """Two files, noted before they are made; safe to repeat."""
    context.notes[f"made.{name}"] = [f"{name}.1", f"{name}.2"]
    (folder / f"{name}.1").write_text("1")
    step()
    await asyncio.sleep(0)
    (folder / f"{name}.2").write_text("2")


async def unmake(folder: Path, name: str, step: Callable[[], None], context: Context) -> None:
    for file in context.notes.get(f"made.{name}", ()):
        (folder / file).unlink(missing_ok=True)
        step()


async def look(context: Context) -> None:
    context.say("Looked around")


async def refuse(context: Context) -> None:
    raise errors.Unavailable("the disk is full", hint="free some space")


def stages(folder: Path, step: Callable[[], None] = lambda: None) -> list[Stage]:
    """One that looks, two that may run in parallel, one after all of them."""

    def maker(name: str, plugin: str, needs: tuple[str, ...] | None) -> Stage:
        return Stage(
            name,
            plugin,
            functools.partial(make, folder, name, step),
            functools.partial(unmake, folder, name, step),
            needs,
            effects="two files",
        )

    return [
        Stage("Get Kube Cluster", "kubernetes", look),
        maker("Make Etcd", "kubernetes", ("Get Kube Cluster",)),
        maker("Make Docker", "docker", ("Get Kube Cluster",)),
        maker("Make Cluster", "kubernetes", None),
    ]


def record(stages: Sequence[Stage], answers: dict[str, Any] | None = None, cluster: str = "default") -> Record:
    rows = [StageRecord(stage.name, stage.plugin) for stage in stages]
    return Record(TITLE, "deploy", cluster, "2026-01-01T00:00:00+00:00", 1, rows, answers or {})


class Bench:
    """Runs stages, and has what was printed."""

    def __init__(self, state: Path, clock: Clock | None = None) -> None:
        self.state = state
        self.clock = clock or ManualClock()
        self.printed = ""

    def _write(self, text: str) -> None:
        self.printed += text

    @property
    def lines(self) -> list[str]:
        return self.printed.splitlines()

    def run(
        self,
        stages: Sequence[Stage],
        *,
        on_error: str | None = None,
        journal: Journal | None = None,
        format_: Format = console,
        chooser: Chooser | None = None,
        secrets: Sequence[str] = (),
        answers: dict[str, Any] | None = None,
        log: LogFile | None = None,
    ) -> Run:
        reporter = Reporter(NoDisplay(self._write), self.clock, format_=format_, log=log)
        for secret in secrets:
            reporter.masker.add(secret)
        journal = journal or Journal.begin(self.state, record(stages, answers))
        chosen = chooser or Chooser(on_error)
        return Run(TITLE, stages, journal, reporter, self.clock, chosen, handles_signals=False)


def content(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in sorted(folder.iterdir())}
