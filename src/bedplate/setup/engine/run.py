"""Executes the stages of a setup tool, resumes them after a kill, and takes them back.

In: stages, a journal, a reporter, what to do after an error. Out: the events of the run, the journal after every step,
and the status: `completed`, `failed`, `aborted` or `undone`, of which the first alone is exit code 0. The caller holds
the lock of the state folder (`lock.hold`).

A stage that fails lets those that run beside it finish; none is begun after it. SIGINT, SIGTERM and SIGHUP cancel the
running stages and end the run as `aborted`; a second one ends the process at once, which the journal survives.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.setup.engine import choices, order
from bedplate.setup.engine.events import Began, Failed, Finished, Line, Message, Progress, StageBegan
from bedplate.setup.engine.journal import Journal, StageState, Status
from bedplate.setup.engine.reporter import Reporter
from bedplate.setup.engine.said import Said
from bedplate.setup.engine.stage import Action, Context, Stage, StageFailed
from bedplate.setup.engine.turns import Turns

__all__ = ["EXIT_CODES", "Run"]

EXIT_CODES: dict[Status, int] = {"completed": 0, "failed": 1, "aborted": 1, "undone": 1}
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True)
class Run:
    """One run; `execute` for a new journal or one that is resumed, `undo` to take back what a journal has."""

    title: str
    stages: Sequence[Stage]
    journal: Journal
    reporter: Reporter
    clock: Clock
    chooser: choices.Chooser
    services: Any = None
    handles_signals: bool = True
    said: Said | None = None
    """Where what stages say is kept for those who are not at the terminal."""
    stop_after: str = ""
    """A stage after which the run ends as an interrupted one; those beside it finish."""
    _tasks: dict[asyncio.Task[None], Stage] = field(default_factory=dict)
    _waiting: asyncio.Task[str | None] | None = None
    _signal: str = ""
    _began: float = 0.0
    _percent: int = 0

    async def execute(self) -> Status:
        """Run every stage that the journal does not have as done."""
        order.check(self.stages)
        self._check_same_stages()
        self._began = self.clock.monotonic()
        with self._signals():
            self.reporter.emit(Began(self.title, len(self.stages), order.plugins(self.stages)))
            failures = await self._run_stages()
            self.reporter.display.hide()
            status = await self._settle(failures)
        return self._end(status)

    async def undo(self) -> Status:
        """Take back, in reverse order, every stage that was begun. Raises `Invalid` where none of them can be."""
        if self.journal.record.phase == "run" and self._is_final():
            raise errors.Invalid(
                f"what the {self.journal.record.operation} of the cluster {self.journal.record.cluster} did cannot be "
                "taken back; nothing was changed",
                hint=f"finish it with --resume --cluster {self.journal.record.cluster}",
            )
        self._began = self.clock.monotonic()
        with self._signals():
            status = await self._undo_stages()
        return self._end(status)

    def _is_final(self) -> bool:
        """Whether something was changed, and nothing of it can be taken back."""
        begun = {stage.name for stage in self.journal.record.stages if stage.is_begun}
        changed = [stage for stage in self.stages if stage.name in begun and stage.effects]
        return bool(changed) and all(stage.undo is None for stage in changed)

    def _check_same_stages(self) -> None:
        recorded = [stage.name for stage in self.journal.record.stages]
        if recorded != [stage.name for stage in self.stages]:
            raise errors.Invalid(
                f"the interrupted run for cluster {self.journal.record.cluster} has other stages than this version of "
                "the tool",
                hint="take it back with --undo, or resume it with the version that began it",
            )

    # Running

    async def _run_stages(self) -> list[StageFailed]:
        done = {stage.name for stage in self.journal.record.stages if stage.state == "done"}
        begun: set[str] = set()
        failures: list[StageFailed] = []
        turns = Turns(self.stages, self.reporter.emit)
        for stage in self.stages:
            if stage.name in done:
                turns.begin(stage)
                turns.say(stage, "Done by the run that was interrupted")
                turns.finish(stage)
        try:
            while True:
                for stage in [] if failures or self._signal else order.ready(self.stages, done, begun):
                    begun.add(stage.name)
                    self._start(stage, turns)
                self._percent = turns.percent
                if not self._tasks:
                    break
                self.reporter.display.show(turns.percent, [stage.title for stage in self._tasks.values()])
                finished, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(finished, key=lambda task: self.stages.index(self._tasks[task])):
                    stage = self._tasks.pop(task)
                    failure = self._finish(stage, task)
                    if failure is None:
                        done.add(stage.name)
                        turns.finish(stage)
                        if stage.name == self.stop_after and len(done) < len(self.stages):
                            self._signal = f"--stop-after {stage.name}"
                    else:
                        failures.append(failure)
        finally:
            await self._stop_all()
        turns.flush()
        if len(done) == len(self.stages):
            self._percent = 100
            self.reporter.emit(Progress(100))
        return failures

    def _start(self, stage: Stage, turns: Turns) -> None:
        was = self.journal.stage(stage.name).state
        self._mark(stage, "running")
        turns.begin(stage)
        context = self._context(stage, stage.run, functools.partial(turns.say, stage), is_resumed=was != "pending")
        self._tasks[asyncio.create_task(_perform(stage.run, context), name=stage.name)] = stage

    def _finish(self, stage: Stage, task: asyncio.Task[None]) -> StageFailed | None:
        error: BaseException | None = (
            errors.Terminal(f"interrupted by {self._signal or 'a cancellation'}")
            if task.cancelled()
            else task.exception()
        )
        if error is None:
            self._mark(stage, "done")
            return None
        self._mark(stage, "failed", self.reporter.masker(str(error) or type(error).__name__))
        return StageFailed(stage, error)

    async def _stop_all(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
            for task, stage in self._tasks.items():
                self._finish(stage, task)
            self._tasks.clear()

    def _mark(self, stage: Stage, state: StageState, error: str = "") -> None:
        self.journal.mark(stage.name, state, error, at=self.clock.now().isoformat(timespec="milliseconds"))

    def _keep(self, stage: Stage, text: str) -> None:
        """Keep what a stage says at once, also of one whose turn to be printed has not come."""
        if self.said is not None:
            self.said.add(stage.name, self.reporter.masker(text))

    def _context(self, stage: Stage, action: Action, say: Callable[[str], None], *, is_resumed: bool) -> Context:
        def say_and_keep(text: str) -> None:
            self._keep(stage, text)
            say(text)

        return Context(
            answers=self.journal.record.answers,
            notes=self.journal.notes,
            say=say_and_keep,
            log=self.reporter.stage_log(_module(action)),
            clock=self.clock,
            services=self.services,
            mask=self.reporter.masker.add,
            is_resumed=is_resumed,
        )

    # After an error

    async def _settle(self, failures: list[StageFailed]) -> Status:
        if self._signal:
            self.reporter.emit(Line(f"Interrupted by {self._signal}", "warning"))
            return "aborted"
        if not failures:
            return "completed"
        for failure in failures:
            self._tell(failure)
        while True:
            action = await self._unless_interrupted(self.chooser.choose())
            match action:
                case "undo" if self._is_final():
                    self.reporter.emit(Line("Nothing of this can be taken back", "warning"))
                    if not self.chooser.is_asking:
                        return "aborted"
                case "undo":
                    return await self._undo_stages()
                case "abort":
                    return "aborted"
                case _ if self._signal:
                    return "aborted"
                case "debug" | "remotedebug":
                    await self._unless_interrupted(self._inspect(failures[0], is_remote=action == "remotedebug"))
                    if not self.chooser.is_asking:
                        return "failed"
                case _:
                    return "failed"

    async def _unless_interrupted(self, waiting: Coroutine[Any, Any, str | None]) -> str | None:
        """The answer; None when a signal comes first."""
        task = asyncio.create_task(waiting)
        self._waiting = task
        try:
            await asyncio.wait([task])
        finally:
            self._waiting = None
            task.cancel()
        return None if task.cancelled() else task.result()

    def _tell(self, failure: StageFailed, mode: Any = "run") -> None:
        stage, cause = failure.stage, failure.cause
        text = errors.describe(cause).split("\n  next: ")[0]
        if not isinstance(cause, errors.BedplateError):
            text = f"{type(cause).__name__}: {text}"
        self.reporter.emit(Failed(stage.plugin, stage.name, text, failure.hint, mode))
        self._keep(stage, f"Error: {text}")
        if failure.hint:
            self._keep(stage, f"  next: {failure.hint}")
        self.reporter.log("error", __name__, choices.formatted(cause))

    async def _inspect(self, failure: StageFailed, *, is_remote: bool) -> str | None:
        self.reporter.emit(Line(choices.formatted(failure.cause), "error"))
        if is_remote:
            path = self.journal.file.parent / "debug.sock"

            def say(text: str) -> None:
                self.reporter.emit(Line(text))

            await choices.inspect_remotely(failure.cause, path, say)
        elif self.chooser.has_terminal:
            await asyncio.to_thread(choices.inspect_here, failure.cause)
        return None

    # Undoing

    async def _undo_stages(self) -> Status:
        self.journal.record.phase = "undo"
        self.journal.save()
        by_name = {stage.name: stage for stage in self.stages}
        names = [stage.name for stage in reversed(self.journal.record.stages) if stage.is_begun]
        plugins = order.plugins([by_name[name] for name in reversed(names) if name in by_name])
        self.reporter.emit(Began(self.title, len(names), plugins, "undo"))
        is_whole = True
        for index, name in enumerate(names):
            if self._signal:
                return "aborted"
            self._percent = order.percent(index, len(names))
            self.reporter.emit(Progress(self._percent))
            if name in by_name:
                is_whole &= await self._undo_stage(by_name[name])
            else:
                self.reporter.emit(Line(f"Warning: the stage {name!r} is not known to this version; what it did stays"))
                is_whole = False
        self.reporter.display.hide()
        if self._signal:
            self.reporter.emit(Line(f"Interrupted by {self._signal}; continue with --undo", "warning"))
            return "aborted"
        self._percent = 100
        self.reporter.emit(Progress(100))
        return "undone" if is_whole else "failed"

    async def _undo_stage(self, stage: Stage) -> bool:
        """Whether nothing of the stage is left, as far as it could be undone at all."""
        self.reporter.emit(StageBegan(stage.plugin, stage.name, "undo"))

        def say(text: str) -> None:
            self.reporter.emit(Message(stage.plugin, stage.name, text))

        if stage.undo is None:
            say(f"Warning: this stage has no undo; this stays: {stage.effects}" if stage.effects else "Nothing to undo")
            self._mark(stage, "undone")
            return True
        self._mark(stage, "undoing")
        context = self._context(stage, stage.undo, say, is_resumed=True)
        task = asyncio.create_task(_perform(stage.undo, context), name=stage.name)
        self._tasks[task] = stage
        self.reporter.display.show(self._percent, [f"undo: {stage.title}"])
        try:
            await asyncio.wait([task])
        finally:
            self._tasks.pop(task)
            if not task.done():
                task.cancel()
        if task.cancelled():
            return False
        error = task.exception()
        if error is None:
            self._mark(stage, "undone")
            return True
        self._tell(StageFailed(stage, error), "undo")
        return False

    # Ending

    def _end(self, status: Status) -> Status:
        self.reporter.display.hide()
        begun = {stage.name for stage in self.journal.record.stages if stage.is_begun}
        has_effects = any(stage.name in begun and (stage.effects or stage.undo) for stage in self.stages)
        is_over = status in ("completed", "undone") or (not has_effects and self.journal.record.phase == "run")
        masked = _masked(self.journal.record.answers, self.reporter.masker) if is_over else None
        if is_over:
            self.journal.record.notes = _masked(self.journal.record.notes, self.reporter.masker)
        self.journal.finish(status, self.clock.now().isoformat(timespec="seconds"), is_over=is_over, answers=masked)
        if status != "completed":
            self._advise(is_over=is_over)
        took_s = self.clock.monotonic() - self._began
        self.reporter.emit(Finished(self.title, status, self._percent, took_s))
        return status

    def _advise(self, *, is_over: bool) -> None:
        if is_over:
            if self.journal.record.phase == "over" and self.journal.record.status != "undone":
                self.reporter.emit(Line("Nothing was changed."))
        elif any(stage.state in ("undoing", "undone") for stage in self.journal.record.stages):
            self.reporter.emit(Line("Some stages could not be undone; try again with --undo"))
        elif self._is_final():
            self.reporter.emit(Line("Continue with --resume"))
        else:
            self.reporter.emit(Line("Continue with --resume, or take back what was done with --undo"))
        if self.reporter.log_path:
            self.reporter.emit(Line(f"The log is in {self.reporter.log_path}"))

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        if not self.handles_signals:
            yield
            return
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.interrupt, signal.Signals(number).name)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    def interrupt(self, name: str) -> None:
        """End the run: what a signal does. The next signal ends the process."""
        self._signal = name
        for task in self._tasks:
            task.cancel()
        if self._waiting is not None:
            self._waiting.cancel()
        if self.handles_signals:
            for number in _SIGNALS:
                asyncio.get_running_loop().remove_signal_handler(number)


async def _perform(action: Action, context: Context) -> None:
    await action(context)


def _module(action: Any) -> str:
    while isinstance(action, functools.partial):
        action = action.func
    return str(getattr(action, "__module__", __name__))


def _masked(value: Any, mask: Any) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {key: _masked(item, mask) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(item, mask) for item in value]
    return value
