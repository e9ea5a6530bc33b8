"""`list`: the objects of a list as a table; `foreach`: commands for several of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bedplate.core import errors
from bedplate.head import Obj
from bedplate.head.schema import tables
from bedplate.head.schema.entity import Entity, Key, Row
from bedplate.ui.cmsh import completion
from bedplate.ui.cmsh.command import DELIMITER, VERBOSE, Arguments, Option, command, worst
from bedplate.ui.cmsh.commands.look import CATEGORY, NODES, cell, chosen, targets
from bedplate.ui.cmsh.commands.move import in_a_list
from bedplate.ui.cmsh.desk import Desk
from bedplate.ui.cmsh.language import Usage
from bedplate.ui.cmsh.layout import Table

__all__ = ["list_table"]


def _words(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    if args.waiting is CATEGORY:
        return [(key, "category") for key in desk.session.children(("category",))]
    return ()


@command(
    "list",
    "List the objects of this list",
    "list [OPTIONS]",
    options=[
        VERBOSE,
        DELIMITER,
        NODES,
        CATEGORY,
        Option("-f", "--format", "Show these parameters instead, separated by commas", value="parameters"),
    ],
    examples=[
        ("list", "The objects of this list, or at the top the modes"),
        ("list -v", "Without truncating long cells"),
        ("list -d {2}", "As JSON, indented by 2"),
        ("device list -c default -f hostname,ip", "Names and addresses of a category's nodes"),
    ],
    words=_words,
)
async def _list(desk: Desk, args: Arguments) -> None:
    if not desk.place:
        desk.table(_modes(desk), args)
        return
    path = desk.list_here()
    objects = dict(desk.children(path))
    paths = chosen(desk, args)
    if paths is not None:
        objects = {target[-1]: objects[target[-1]] for target in paths}
    desk.table(list_table(desk, path, objects, args.value("format")), args)
    if not objects and desk.is_interactive:
        entity = desk.submode(path).of[0]
        desk.note(f"(no {entity.noun} yet; help add shows how to make one)")


def _modes(desk: Desk) -> Table:
    rows = [[name, str(len(desk.session.children((name,)))), mode.doc] for name, mode in desk.schema.modes.items()]
    return Table(["Mode (key)", "Objects", "About"], sorted(rows), uncut=frozenset({0, 2}))


def list_table(desk: Desk, path: tuple[str, ...], objects: Mapping[str, Obj], columns: str = "") -> Table:
    """The table of a list; `columns` are parameters' names instead of the declared ones."""
    submode = desk.submode(path)
    if not columns:
        return Table(*tables.list_table(desk.schema, submode, objects))
    chosen = [_column(submode.of, word) for word in columns.split(",") if word.strip()]
    headers = [f"{row.label} (key)" if isinstance(row, Key) else row.label for row in chosen]
    keys = sorted(objects, key=int) if submode.indexed else sorted(objects)
    return Table(headers, [[_cell(desk, objects[key], row) for row in chosen] for key in keys])


def _column(of: tuple[type[Entity], ...], word: str) -> Row:
    for entity in of:
        try:
            return entity.row(word.strip())
        except errors.NotFound as unknown:
            last = unknown
    raise last


def _cell(desk: Desk, obj: Obj, row: Row) -> str:
    own = desk.schema.of(obj).attributes.get(row.attribute)
    return cell(desk, obj, own) if own is not None else ""


_EVERY = "*"


def _foreach_words(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    return [*completion.objects(desk, desk.list_here()), (_EVERY, "every object of the list")]


@command(
    "foreach",
    "Run commands for several objects, as if each were selected; a failure does not stop the others",
    "foreach [OPTIONS] (<command>; ...)",
    "foreach <object> ... (<command>; ...)",
    "foreach * (<command>; ...)",
    options=[Option("-v", "--verbose", "Name each object before its output"), NODES, CATEGORY],
    examples=[
        ("foreach -n node00[1-4] (get softwareimage)", "For a range of nodes"),
        ("foreach -c default (set notes new; get notes)", "For the nodes of a category"),
        ("foreach * (get softwareimage) | sort", "For every object of this list"),
    ],
    where=in_a_list,
    words=_foreach_words,
    least=1,
    most=None,
    leading=True,
)
async def _foreach(desk: Desk, args: Arguments) -> int:
    body = args.words.pop()
    if not (body.startswith("(") and body.endswith(")")):
        raise Usage("foreach needs commands in parentheses", hint="for example: foreach -n node00[1-4] (get ip)")
    here, before = desk.list_here(), desk.place
    if args.flag("nodes") or args.flag("category"):
        paths = targets(desk, args, least=0)[0]
    elif args.words == [_EVERY]:
        paths = [(*here, key) for key in sorted(desk.children(here))]
    elif args.words:
        paths = [path for word in args.words for path in desk.several(here, word)]
    else:
        raise Usage("foreach needs objects", hint="-n LIST, -c CATEGORY, names, or * for all")
    codes = []
    try:
        for path in paths:
            if args.flag("verbose"):
                desk.say(f"{path[-1]}:")
            desk.place = path
            codes.append(await desk.run(body[1:-1]))
            if desk.is_over:
                break
    finally:
        desk.place = before
    return worst(codes)
