"""Looking: show, get, usedby."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bedplate.core import errors
from bedplate.head import Obj, Path
from bedplate.head.resolve import inherited
from bedplate.head.schema import tables
from bedplate.head.schema.entity import Field, Row, Submode, typed
from bedplate.head.schema.ranges import natural
from bedplate.ui.cmsh import completion
from bedplate.ui.cmsh.command import DELIMITER, VERBOSE, Arguments, Option, command
from bedplate.ui.cmsh.commands.move import in_a_list
from bedplate.ui.cmsh.desk import Desk
from bedplate.ui.cmsh.language import Usage
from bedplate.ui.cmsh.layout import Cell, Table, shown
from bedplate.ui.cmsh.wording import path_text

__all__ = ["CATEGORY", "NODES", "cell", "chosen", "targets"]

NODES = Option(
    "-n", "--nodes", "Apply to these objects: names separated by commas, ranges such as node00[1-4]", value="list"
)
CATEGORY = Option("-c", "--category", "Apply to the nodes of a category (device mode)", value="category")


def cell(desk: Desk, obj: Obj, row: Row) -> Cell:
    """A row's value as `show` prints it; an inherited one with where it comes from. Numbers and booleans stay."""
    if isinstance(row, Field) and row.inherits:
        value, source = inherited(desk.session.tree, obj, row)
        if source is not None and value not in (None, ""):
            assert value is not None
            return f"{row.kind.show(value)} ({source})"
    return tables.cell(row, obj)


def targets(desk: Desk, args: Arguments, *, least: int) -> tuple[list[Path], list[str]]:
    """The objects a command is about, and the words that are left.

    Chosen by option; else the selected one; else, at a list, those that the first word names. `least` words are for
    the command itself. Raises `Usage`, `NotFound`.
    """
    words = list(args.words)
    by_option = chosen(desk, args)
    if by_option is not None:
        return by_option, words
    if desk.is_at_object:
        if len(words) > least and not _is_parameter(desk, desk.place, words[0]):
            other = desk.named(desk.list_place, words[0])
            if other is not None:
                return [other], words[1:]
        return [desk.place], words
    if len(words) <= least and least:
        desk.here()
    if not words:
        return [desk.here()], words
    return desk.several(desk.list_here(), words[0]), words[1:]


def _is_parameter(desk: Desk, path: Path, word: str) -> bool:
    obj = desk.get(path)
    return word in obj.extras or any(row.shell == word.lower() for row in desk.schema.of(obj).rows)


def chosen(desk: Desk, args: Arguments) -> list[Path] | None:
    """The objects that -n or -c name; None without either. Raises `Usage`, `NotFound`."""
    here = desk.list_here()
    if args.flag("category"):
        if here != ("device",):
            raise Usage("-c chooses nodes by their category", hint="-c works in device mode; -n chooses by name")
        category = args.value("category")
        desk.session.find(("category",), category)
        named = desk.session.tree.referrers("category", category, "device")
        return [("device", name) for name in sorted(named)]
    if args.flag("nodes"):
        return desk.several(here, args.value("nodes"))
    return None


def _show_words(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    return completion.objects(desk, desk.list_here())


@command(
    "show",
    "Show the parameters of an object",
    "show [OPTIONS] [<object> ...]",
    options=[Option("-v", "--verbose", "Also describe each parameter"), DELIMITER],
    examples=[
        ("show", "Parameters of the selected object"),
        ("show -v", "With a description of each"),
        ("show default", "Parameters of the object default of this list"),
        ("show -d {}", "The same as JSON"),
    ],
    where=in_a_list,
    words=_show_words,
    most=None,
)
async def _show(desk: Desk, args: Arguments) -> None:
    here = desk.list_here()
    paths = [path for word in args.words for path in desk.several(here, word)] if args.words else [desk.here()]
    for path in paths:
        obj = desk.get(path)
        rows: list[list[Cell]] = [[name, text, "extra parameter"] for name, text in sorted(obj.extras.items())]
        rows += [[row.label, cell(desk, obj, row), row.doc] for row in desk.schema.of(obj).rows]
        width = 3 if args.flag("verbose") else 2
        headers = ["Parameter", "Value", "Meaning"][:width]
        desk.table(Table(headers, [row[:width] for row in rows], uncut=frozenset(range(width))), args)


def _get_words(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    return completion.parameters(desk, args, completion.is_readable)[0]


@command(
    "get",
    "Print the value of a parameter",
    "get [OPTIONS] <parameter>",
    "get [OPTIONS] <object> <parameter>",
    options=[NODES, CATEGORY],
    examples=[
        ("get softwareimage", "An inherited value shows where it comes from: default-image (category:default)"),
        ("get node001 category", "The value of an object of this list"),
        ("get trusteddomains", "Several values are printed one per line"),
    ],
    where=in_a_list,
    words=_get_words,
    least=1,
    most=2,
)
async def _get(desk: Desk, args: Arguments) -> None:
    paths, words = targets(desk, args, least=1)
    if len(words) != 1:
        raise Usage("get takes one parameter", hint="show lists the parameters")
    for path in paths:
        lines = _lines(desk, path, words[0])
        if isinstance(lines, str):
            desk.write(lines)
            if desk.is_interactive and lines and not lines.endswith("\n"):
                desk.write("\n")
            continue
        for line in lines:
            desk.say(f"{path[-1]}: {line}" if len(paths) > 1 else line)


def _lines(desk: Desk, path: Path, word: str) -> Sequence[str] | str:
    """What `get` prints: lines, or for a file its text as it is."""
    obj = desk.get(path)
    if word in obj.extras:
        return [obj.extras[word]]
    try:
        row = desk.schema.of(obj).row(word)
    except errors.NotFound as unknown:
        raise errors.NotFound(f"{path_text(path)} has no parameter {word!r}", hint=unknown.hint) from None
    if isinstance(row, Submode):
        return sorted(obj.below(row.attribute))
    value = row.value(obj) if isinstance(row, Field) else None
    if isinstance(row, Field) and row.kind.name == "file":
        return str(value or "")
    if isinstance(row, Field) and row.kind.multiple and value is not None and not row.inherits:
        return row.kind.lines(value)
    return [shown(cell(desk, obj, row))]


@command(
    "usedby",
    "List the objects that refer to an object, staged changes included",
    "usedby [OPTIONS] [<object> ...]",
    options=[VERBOSE, DELIMITER],
    examples=[
        ("usedby", "What refers to the selected object"),
        ("category usedby default", "What would have to change before default could be removed"),
    ],
    where=in_a_list,
    words=_show_words,
    most=None,
)
async def _usedby(desk: Desk, args: Arguments) -> None:
    here = desk.list_here()
    paths = [path for word in args.words for path in desk.several(here, word)] if args.words else [desk.here()]
    if len(here) > 1:
        raise Usage(
            f"nothing refers to objects of {desk.submode(here).shell}", hint="usedby works for objects of a mode"
        )
    tree = desk.session.tree
    rows = [
        [key, by, name, typed(way)]
        for mode, key in paths
        for by in tree.schema.modes
        for name, ways in sorted(tree.referrers(mode, key, by).items(), key=lambda entry: natural(entry[0]))
        for way in sorted(ways)
    ]
    desk.table(Table(["Object", "Mode", "Used by", "Parameter"], rows, uncut=frozenset({0, 1, 2})), args)
