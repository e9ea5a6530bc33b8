"""What was: history, audit."""

from __future__ import annotations

import re
from collections.abc import Iterable

from bedplate.api.headapi import Change
from bedplate.core import errors
from bedplate.head import Path
from bedplate.ui.cmsh import completion, wording
from bedplate.ui.cmsh.command import DELIMITER, VERBOSE, Arguments, Option, command
from bedplate.ui.cmsh.desk import Desk
from bedplate.ui.cmsh.layout import Cell, Table

__all__ = ["object_path"]

_NUMBER = Option("-n", "--number", "How many at most (20)", value="count")
_QUALIFIED = re.compile(r"^([a-z]+)(?:\[(.+)\]|/(.+))$")


def object_path(desk: Desk, word: str) -> Path:
    """The object a word means, which may be gone: `.`, `mode`, `mode[object]`, `mode/object`, one of this list, or the
    only one of that name."""
    if word == ".":
        return desk.place
    if word in desk.schema.modes:
        return (word,)
    qualified = _QUALIFIED.match(word)
    if qualified and qualified[1] in desk.schema.modes:
        return qualified[1], qualified[2] or qualified[3]
    here = desk.list_place
    path = desk.named(here, word) if here else None
    if path is not None:
        return path
    modes = [mode for mode in desk.schema.modes if desk.named((mode,), word) is not None]
    if len(modes) == 1:
        return desk.find((modes[0],), word)
    if modes:
        named = ", ".join(f"{mode}/{word}" for mode in modes)
        raise errors.Invalid(f"there are several objects {word!r}", hint=f"say which one: {named}")
    if here:
        return (*here, word)
    raise errors.NotFound(
        f"there is no object {word!r}", hint="one that is gone is named with its mode, for example category/default"
    )


def _words(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    if desk.place:
        yield from completion.objects(desk, desk.list_place)
    for mode in desk.schema.modes:
        yield from ((f"{mode}/{key}", mode) for key in desk.session.children((mode,)))


@command(
    "history",
    "List the newest revisions: number, time, author, objects, summary",
    "history [OPTIONS] [<object>]",
    options=[_NUMBER, VERBOSE, DELIMITER],
    examples=[
        ("history", "The newest 20 revisions"),
        ("history -n 5 category/default", "The newest 5 that touched an object"),
        ("history .", "Those that touched what is selected"),
    ],
    words=_words,
    most=1,
)
async def _history(desk: Desk, args: Arguments) -> None:
    path = object_path(desk, args.words[0]) if args.words else ()
    revisions = await desk.backend.log(args.number("number", 20), path)
    rows: list[list[Cell]] = [
        [
            revision.number,
            revision.time,
            revision.author,
            ",".join(wording.objects_of(revision)),
            wording.summary(desk.schema, revision),
        ]
        for revision in revisions
    ]
    headers = ["Revision", "Time", "Author", "Objects", "Summary"]
    desk.table(Table(headers, rows, uncut=frozenset({0, 1, 2}), times=frozenset({1})), args)


@command(
    "audit",
    "List who changed which parameter when, newest first",
    "audit [OPTIONS] [<object>]",
    options=[_NUMBER, VERBOSE, DELIMITER],
    examples=[
        ("audit", "The newest 20 changes; where an object is selected, those of that object"),
        ("audit -n 100 device/node001", "Of one object"),
    ],
    words=_words,
    most=1,
)
async def _audit(desk: Desk, args: Arguments) -> None:
    here = desk.place if desk.is_at_object else ()
    path = object_path(desk, args.words[0]) if args.words else here
    rows: list[list[Cell]] = []
    for entry in await desk.backend.audit(path, args.number("number", 20)):
        change = Change(entry.path, entry.old, entry.new)
        rows += [[entry.revision, entry.time, entry.author, *row] for row in wording.rows(desk.schema, [change])]
    headers = ["Revision", "Time", "Author", "Object", "Parameter", "Old", "New"]
    desk.table(Table(headers, rows, uncut=frozenset({0, 1, 2, 3, 4}), times=frozenset({1})), args)
