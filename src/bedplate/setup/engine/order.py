"""Which stages may start, which ones flags leave out, and the plan of a run as text. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from bedplate.core import errors
from bedplate.setup.engine.stage import Context, Stage

__all__ = ["check", "described", "failing", "named", "percent", "plugins", "ready", "without"]


def check(stages: Sequence[Stage]) -> None:
    """Refuse stages that could never all run: a mistake of a plugin."""
    seen: set[str] = set()
    for stage in stages:
        if stage.name in seen:
            raise errors.Invalid(f"two stages are named {stage.name!r}")
        unknown = sorted(set(stage.needs or ()) - seen)
        if unknown:
            raise errors.Invalid(f"the stage {stage.name!r} needs {unknown[0]!r}, which is not declared before it")
        seen.add(stage.name)


def without(stages: Sequence[Stage], tags: Collection[str]) -> list[Stage]:
    """The stages that carry none of these tags. What needed one that is gone needs instead what that one needed."""
    kept: list[Stage] = []
    dropped: dict[str, tuple[str, ...] | None] = {}
    for stage in stages:
        needs = _bridged(stage.needs, dropped)
        if stage.tags & set(tags):
            dropped[stage.name] = needs
        else:
            kept.append(_with_needs(stage, needs))
    return kept


def named(stages: Sequence[Stage], name: str | None, flag: str) -> str:
    """The name of a stage as it is written, for one that somebody typed; nothing for none. Raises `Invalid`."""
    if not name:
        return ""
    for stage in stages:
        if stage.name.lower() == name.strip().lower():
            return stage.name
    raise errors.Invalid(f"{flag}: there is no stage {name!r}", hint="--plan lists the stages")


def failing(stages: Sequence[Stage], name: str) -> list[Stage]:
    """The stages, one of which fails in place of what it does."""
    return [dataclasses.replace(stage, run=_fail) if stage.name == name else stage for stage in stages]


async def _fail(context: Context) -> None:
    raise errors.Terminal("it was asked to fail", hint="--fail-at is for development")


def _bridged(needs: tuple[str, ...] | None, dropped: dict[str, tuple[str, ...] | None]) -> tuple[str, ...] | None:
    if needs is None:
        return None
    names: list[str] = []
    for name in needs:
        if name not in dropped:
            names.append(name)
            continue
        beyond = dropped[name]
        if beyond is None:
            return None  # It waited for everything before it, so that everything is waited for here.
        names.extend(beyond)
    return tuple(dict.fromkeys(names))


def _with_needs(stage: Stage, needs: tuple[str, ...] | None) -> Stage:
    import dataclasses

    return stage if stage.needs == needs else dataclasses.replace(stage, needs=needs)


def ready(stages: Sequence[Stage], done: Collection[str], begun: Collection[str]) -> list[Stage]:
    """The stages that may start now, in the declared order."""
    names = [stage.name for stage in stages]
    return [
        stage
        for index, stage in enumerate(stages)
        if stage.name not in begun
        and stage.name not in done
        and all(name in done for name in (names[:index] if stage.needs is None else stage.needs))
    ]


def percent(index: int, count: int) -> int:
    """How far a run is before its stage with this index."""
    return 100 * index // count if count else 100


def plugins(stages: Sequence[Stage]) -> tuple[str, ...]:
    """The plugins in play, in the order in which they appear."""
    return tuple(dict.fromkeys(stage.plugin for stage in stages))


def described(stages: Sequence[Stage]) -> list[str]:
    """The plan: each stage with what it reads and changes, what it waits for, and whether it can be undone."""
    lines = []
    width = len(str(len(stages)))
    for number, stage in enumerate(stages, 1):
        lines.append(f"{number:>{width}}. {stage.title}")
        margin = " " * (width + 2)
        if stage.needs is not None and number > 1:
            after = ", ".join(stage.needs) if stage.needs else "nothing"
            lines.append(f"{margin}after:   {after}")
        if stage.inputs:
            lines.append(f"{margin}reads:   {stage.inputs}")
        lines.append(f"{margin}changes: {stage.effects or 'nothing'}")
        if stage.effects:
            lines.append(f"{margin}undo:    {'yes' if stage.undo is not None else 'no'}")
    return lines
