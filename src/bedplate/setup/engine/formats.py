"""The events of a run as lines. Pure.

In: an event, and the time. Out: the lines of one of three forms. `console` is for people. `as_json` has one object in
each line. `as_runner` is what the daemon's remote execution reads: five fields with a tab between them, which are kind,
percent, plugin, stage, text, so that no line needs a parser.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime

from bedplate.setup.engine.events import (
    Began,
    Event,
    Failed,
    Finished,
    Line,
    Message,
    Output,
    Progress,
    StageBegan,
)

__all__ = ["Format", "as_json", "as_runner", "console"]

Format = Callable[[Event, datetime], list[str]]


def console(event: Event, now: datetime) -> list[str]:
    """The lines of the console, as the documentation of the tool shows them."""
    match event:
        case Line(text) | Message(_, _, text) | Output(text):
            return text.splitlines() or [""]
        case Began(title, count, plugins, "run"):
            noun = "stage" if count == 1 else "stages"
            return [
                f"Executing {count} {noun}",
                f"##### Starting execution for '{title}'",
                *(f"- {plugin}" for plugin in plugins),
            ]
        case Began(title, count, plugins):
            noun = "stage" if count == 1 else "stages"
            return [f"Undoing {count} {noun}", f"##### Starting undo for '{title}'", *(f"- {name}" for name in plugins)]
        case Progress(percent):
            return [f"## Progress: {percent}"]
        case StageBegan(plugin, name, mode):
            return [f"#### {'stage' if mode == 'run' else 'undo'}: {plugin}: {name}"]
        case Failed(plugin, stage, text, hint, mode):
            what = "stage" if mode == "run" else "undo of stage"
            message = f"Error: {what} '{plugin}: {stage}' failed: {text}"
            return [*message.splitlines(), *([f"  next: {hint}"] if hint else [])]
        case Finished(title, status, percent, took_s):
            minutes, seconds = divmod(int(took_s), 60)
            return [
                "",
                f"Took:      {minutes:02}:{seconds:02} min.",
                f"Progress: {percent}/100",
                f"##### Finished execution for '{title}', status: {status}",
                "",
                f"{title} finished!" if status == "completed" else f"{title} {status}!",
            ]


def as_json(event: Event, now: datetime) -> list[str]:
    """One object with the kind of the event, its values and the time (ISO 8601, with the zone)."""
    values = asdict(event)
    kind = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in type(event).__name__).lstrip("_")
    level = values.pop("level", "error" if isinstance(event, Failed) else "info")
    return [json.dumps({"time": now.isoformat(timespec="milliseconds"), "level": level, "event": kind, **values})]


def as_runner(event: Event, now: datetime) -> list[str]:
    """Lines `kind<TAB>percent<TAB>plugin<TAB>stage<TAB>text`; what an event does not have is empty."""
    match event:
        case Line(text) | Output(text):
            return _rows("message", "", "", "", text)
        case Began(title, count, plugins, mode):
            return _rows("began", "0", ",".join(plugins), "", f"{mode} {count} {title}")
        case Progress(percent):
            return _rows("progress", str(percent), "", "", "")
        case StageBegan(plugin, name, mode):
            return _rows("stage" if mode == "run" else "undo", "", plugin, name, "")
        case Message(plugin, stage, text):
            return _rows("message", "", plugin, stage, text)
        case Failed(plugin, stage, text, hint):
            return _rows("error", "", plugin, stage, f"{text}; next: {hint}" if hint else text)
        case Finished(title, status, percent, took_s):
            return _rows("finished", str(percent), "", "", f"{status} {int(took_s)} {title}")


def _rows(kind: str, percent: str, plugin: str, stage: str, text: str) -> list[str]:
    parts = [" ".join(line.split("\t")) for line in text.splitlines()] or [""]
    return ["\t".join((kind, percent, plugin, stage, part)) for part in parts]
