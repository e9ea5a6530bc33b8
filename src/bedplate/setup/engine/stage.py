"""A stage of a setup tool, and the context that it works in.

In: a plugin's functions. Out: `Stage` values, which `order` sorts and `run` executes. The rules for a plugin:

- `run` and `undo` may be killed at any point and are called again: both must be safe to repeat. Before something is
  made that `undo` could not find by itself, its name goes into `context.notes`, which is on disk when the
  assignment returns.
- `undo` is also called for a stage that failed or was killed half way, and must leave what the stage found.
- A stage without `undo` and without `effects` only looks. One with `effects` and without `undo` is reported when a run
  is undone.
- `needs` names stages that must be done first. None means all that are declared before it; `()` means none, so that
  independent stages run in parallel. What they say is printed in the declared order all the same.
- A stage that cannot do its work raises an error of `bedplate.core.errors`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from bedplate.core import errors
from bedplate.core.clock import Clock
from bedplate.setup.engine.journal import Notes

__all__ = ["Action", "Context", "Log", "Stage", "StageFailed"]


class Log(Protocol):
    """Lines for the log file alone; secrets are masked there as well."""

    def debug(self, text: str) -> None: ...

    def info(self, text: str) -> None: ...

    def warning(self, text: str) -> None: ...

    def error(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Context:
    """What a stage works with. One for each stage of a run; answers, notes and services are shared by all."""

    answers: Mapping[str, Any]
    """The answers, as the file has them: nested mappings, complete with defaults."""
    notes: Notes
    """A mapping that is on disk: what the stages of this run have made. Values are what JSON has."""
    say: Callable[[str], None]
    """Prints a message below the stage's line; a warning begins with `Warning: `."""
    log: Log
    clock: Clock
    services: Any
    """What the tool gives its stages: `bedplate.setup.services.Services` for cm-kubernetes-setup."""
    mask: Callable[[str], None]
    """Names a secret that was made in this run, so that it is a row of stars wherever it would be printed."""
    is_resumed: bool = False
    """Whether this stage was begun by an earlier process that did not finish it."""


Action = Callable[[Context], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Stage:
    """One named step of a setup."""

    name: str
    """In title case, as printed; unique within a run."""
    plugin: str
    run: Action
    undo: Action | None = None
    needs: tuple[str, ...] | None = None
    inputs: str = ""
    """What it reads, in a few words, for the plan."""
    effects: str = ""
    """What it changes, in a few words, for the plan; empty for a stage that only looks."""
    tags: frozenset[str] = field(default_factory=frozenset)
    """What the flags --skip-* remove: `packages`, `reboot`, `image-update`, `repos`, `docker`, `dns-check`, ..."""

    @property
    def title(self) -> str:
        return f"{self.plugin}: {self.name}"


class StageFailed(errors.Terminal):
    """A stage did not succeed; the cause is the error it raised."""

    def __init__(self, stage: Stage, cause: BaseException) -> None:
        super().__init__(f"stage '{stage.title}' failed: {_text(cause)}", hint=getattr(cause, "hint", ""))
        self.stage = stage
        self.cause = cause


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
