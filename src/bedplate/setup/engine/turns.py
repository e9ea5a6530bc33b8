"""Stages that run in parallel, printed one after the other in the declared order.

In: what happens in each stage, in any order. Out: events in the order in which the stages are declared. What a stage
says before its turn is kept until then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bedplate.setup.engine import order
from bedplate.setup.engine.events import Event, Message, Progress, StageBegan
from bedplate.setup.engine.stage import Stage

__all__ = ["Turns"]


class Turns:
    """The printed side of a run."""

    def __init__(self, stages: Sequence[Stage], emit: Callable[[Event], None]) -> None:
        self._stages = stages
        self._emit = emit
        self._turn = 0
        self._is_open = False
        self._finished: set[str] = set()
        self._begun: set[str] = set()
        self._kept: dict[str, list[str]] = {}

    @property
    def percent(self) -> int:
        return order.percent(self._turn, len(self._stages))

    def begin(self, stage: Stage) -> None:
        self._begun.add(stage.name)
        self._advance()

    def say(self, stage: Stage, text: str) -> None:
        if self._is_open and self._stages[self._turn] is stage:
            self._emit(Message(stage.plugin, stage.name, text))
        else:
            self._kept.setdefault(stage.name, []).append(text)

    def finish(self, stage: Stage) -> None:
        self._finished.add(stage.name)
        self._advance()

    def flush(self) -> None:
        """Print what is kept of stages whose turn never came, because one before them was not begun."""
        for stage in self._stages[self._turn + self._is_open :]:
            if stage.name in self._begun:
                self._emit(StageBegan(stage.plugin, stage.name))
                self._say_kept(stage)

    def _advance(self) -> None:
        while self._turn < len(self._stages):
            stage = self._stages[self._turn]
            if not self._is_open:
                if stage.name not in self._begun:
                    return
                self._emit(Progress(self.percent))
                self._emit(StageBegan(stage.plugin, stage.name))
                self._is_open = True
                self._say_kept(stage)
            if stage.name not in self._finished:
                return
            self._is_open = False
            self._turn += 1

    def _say_kept(self, stage: Stage) -> None:
        for text in self._kept.pop(stage.name, []):
            self._emit(Message(stage.plugin, stage.name, text))
