"""`help`: what is offered here, and the page of a command, a mode or a parameter."""

from __future__ import annotations

from collections.abc import Iterable

from bedplate.core import errors
from bedplate.head.schema.entity import Field, Row
from bedplate.ui.cmsh import completion
from bedplate.ui.cmsh.command import COMMANDS, LEFT_OUT, Arguments, command, is_left_out
from bedplate.ui.cmsh.desk import Desk
from bedplate.ui.cmsh.layout import help_page

__all__: list[str] = []


def _words(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    if args.words:
        return
    yield from ((name, declared.about) for name, declared in COMMANDS.items())
    if desk.is_at_object:
        yield from ((row.shell, row.doc) for row in desk.entity(desk.place).rows)


@command(
    "?",
    "Show the commands available here, or describe one: the same as help",
    "? [<command or parameter>]",
    examples=[("?", "The commands available here"), ("? set", "The page of a command")],
    words=_words,
    most=1,
)
@command(
    "help",
    "Show the commands available here, or describe a command or a parameter",
    "help [<command or parameter>]",
    examples=[
        ("help", "The commands available here"),
        ("help set", "The page of a command"),
        ("help softwareimage", "What a parameter of the selected object means"),
    ],
    words=_words,
    most=1,
)
async def _help(desk: Desk, args: Arguments) -> None:
    if not args.words:
        desk.write(_overview(desk))
        return
    word = args.words[0].lower()
    declared = COMMANDS.get(word)
    if declared is not None:
        desk.write(help_page(declared))
        return
    if desk.is_at_object:
        for row in desk.entity(desk.place).rows:
            if row.shell == word:
                desk.write(_parameter(row))
                return
    if word in desk.schema.modes:
        desk.say(f"{word} - {desk.schema.modes[word].doc}; {word} list shows them, {word} use NAME selects one")
        return
    if word in LEFT_OUT:
        raise is_left_out(word.lower())
    raise errors.NotFound(f"there is no help for {word!r}", hint=completion.advice(desk, word))


def _overview(desk: Desk) -> str:
    """Commands, submodes and modes that can be typed here."""
    commands = [(entry.name, entry.about) for entry in COMMANDS.values() if not entry.where(desk)]
    elsewhere = [(entry.name, entry.about) for entry in COMMANDS.values() if entry.where(desk)]
    submodes: list[tuple[str, str]] = []
    if desk.is_at_object:
        submodes = [(row.shell, row.doc) for row in desk.entity(desk.place).submodes]
    modes = [(name, mode.doc) for name, mode in desk.schema.modes.items()]
    parts = [
        (
            "Commands",
            [
                *sorted(commands),
                ("!<command>", "Run a command of the host"),
                ("<command> | <filter>", ""),
                ("<command> > <file>", ""),
            ],
        )
    ]
    parts += [("Submodes", submodes)] if submodes else []
    parts += [("Modes", modes)]
    parts += [("Commands of other places", sorted(elsewhere))] if elsewhere else []
    width = max(len(name) for _, rows in parts for name, _ in rows)
    lines: list[str] = []
    for title, rows in parts:
        lines += [f"{title}:", *(f"        {name.ljust(width)}  {about}".rstrip() for name, about in rows), ""]
    lines.append("help COMMAND explains one; TAB completes; a * in the prompt marks uncommitted changes.")
    return "\n".join(lines) + "\n"


def _parameter(row: Row) -> str:
    lines = [f"{row.label} ({row.shell}) - {row.doc}"]
    if isinstance(row, Field):
        lines.append(f"        kind: {row.kind.name}")
        if row.kind.choices():
            lines.append(f"        one of: {', '.join(row.kind.choices())}")
        if row.default not in (None, "", ()) and not row.kind.secret:
            assert row.default is not None
            lines.append(f"        default: {row.kind.show(row.default)}")
        if row.kind.target_mode:
            lines.append(f"        refers to objects of the mode {row.kind.target_mode}")
        if row.inherits:
            lines.append(f"        if not set here, inherited from the object's {row.inherits}")
    return "\n".join(lines) + "\n"
