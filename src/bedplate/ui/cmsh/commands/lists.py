"""`list`: the objects of a list as a table; `foreach`: commands for several of them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from bedplate.core import errors
from bedplate.head import Obj, Path
from bedplate.head.resolve import inherited
from bedplate.head.schema import tables
from bedplate.head.schema.entity import Field, Key, Row
from bedplate.head.schema.ranges import natural
from bedplate.ui.cmsh import completion
from bedplate.ui.cmsh.command import DELIMITER, VERBOSE, Arguments, Option, command, whole, worst
from bedplate.ui.cmsh.commands.clusters import users_table
from bedplate.ui.cmsh.commands.look import CATEGORY, NODES, cell, chosen, targets
from bedplate.ui.cmsh.commands.move import in_a_list
from bedplate.ui.cmsh.desk import Desk, Listed
from bedplate.ui.cmsh.language import Usage
from bedplate.ui.cmsh.layout import Cell, Table

__all__: list[str] = []


def _words(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    if args.waiting is CATEGORY:
        return [(key, "category") for key in desk.session.children(("category",))]
    if not desk.place:
        return ()
    if args.waiting in (_FORMAT, _SORT):
        return [(row.shell, row.doc) for entity in desk.submode(desk.list_here()).of for row in entity.rows]
    return completion.objects(desk, desk.list_here())


_FORMAT = Option(
    "-f", "--format", "Show these parameters instead: names with commas, NAME:WIDTH for a width", value="parameters"
)
_SORT = Option("-s", "--sort", "Sort by these parameters: names with commas, -NAME for downwards", value="parameters")


@command(
    "list",
    "List the objects of this list, or some of them",
    "list [OPTIONS] [<object, range or condition> ...]",
    options=[VERBOSE, DELIMITER, NODES, CATEGORY, _FORMAT, _SORT],
    examples=[
        ("list", "The objects of this list, or at the top the modes"),
        ("list -v", "Without truncating long cells"),
        ("list -d {2}", "As JSON, indented by 2"),
        ("list node00[1-3] head*", "Those objects"),
        ("list category=default ip!=", "Those with that value; * stands for anything; != for all others"),
        ("list -f hostname:20,ip -s -ip", "Names in 20 columns, and addresses, sorted by address downwards"),
    ],
    words=_words,
    most=None,
)
async def _list(desk: Desk, args: Arguments) -> None:
    if not desk.place:
        if args.words:
            raise Usage(f"there is no list of {args.words[0]!r} at the top", hint="enter a mode first: device list")
        desk.table(_modes(desk), args)
        return
    path = desk.list_here()
    objects = desk.children(path)
    paths = chosen(desk, args)
    if paths is not None:
        objects = {target[-1]: objects[target[-1]] for target in paths}
    if args.words:
        objects = _selected(desk, path, objects, args.words)
    table = None
    if path[0] == "kubernetes" and path[2:] == ("kubernetes_users",) and not (args.flag("format") or args.flag("sort")):
        table = await users_table(desk, path[1], objects)
    desk.table(table or _table(desk, path, objects, args.value("format"), args.value("sort")), args)
    if not objects and desk.is_interactive and not (args.words or paths is not None):
        entity = desk.submode(path).of[0]
        desk.note(f"(no {entity.noun} yet; help add shows how to make one)")


def _modes(desk: Desk) -> Table:
    counts = {name: len(desk.session.children((name,))) for name in desk.schema.modes}
    rows: list[list[Cell]] = [[name, counts[name], mode.doc] for name, mode in sorted(desk.schema.modes.items())]
    return Table(["Mode (key)", "Objects", "About"], rows, uncut=frozenset({0, 2}))


# Which objects

_CONDITION = re.compile(r"^([^=!~]+)(!=|=|~)(.*)$", re.DOTALL)


def _selected(desk: Desk, path: Path, objects: Mapping[str, Obj], words: Sequence[str]) -> dict[str, Obj]:
    """The objects that are named, and of those the ones that meet every condition. Raises `NotFound`, `Usage`."""
    names: set[str] = set()
    conditions, is_named = [], False
    for word in words:
        condition = _condition(desk, path, objects, word)
        if condition is not None:
            conditions.append(condition)
            continue
        is_named = True
        if any(sign in word for sign in "*?"):
            names.update(fnmatch.filter(objects, word))
        else:
            names.update(target[-1] for target in desk.several(path, word))
    return {
        key: obj
        for key, obj in objects.items()
        if (key in names or not is_named) and all(meets(obj) for meets in conditions)
    }


def _condition(desk: Desk, path: Path, objects: Mapping[str, Obj], word: str) -> Callable[[Obj], bool] | None:
    """Whether an object has a value: `category=gpu*`, `category!=gpu`, `ip~^10[.]`; None for a word that is a name."""
    match = _CONDITION.match(word)
    if match is None or word in objects:
        return None
    column = _column(desk, path, objects, match[1])
    sign, pattern = match[2], match[3]
    if sign == "~":
        try:
            expression = re.compile(pattern)
        except re.error as wrong:
            raise Usage(f"{pattern!r} is not a regular expression: {wrong}", hint="for example ip~^10[.]141") from None
        return lambda obj: any(expression.search(text) for text in column.texts(desk, obj))
    if sign == "=":
        return lambda obj: any(fnmatch.fnmatchcase(text, pattern) for text in column.texts(desk, obj))
    return lambda obj: not any(fnmatch.fnmatchcase(text, pattern) for text in column.texts(desk, obj))


# Which columns


class _Column(NamedTuple):
    """A parameter that is shown, sorted by or asked about: a row of the declaration, or an extra parameter."""

    name: str
    row: Row | None = None

    @property
    def header(self) -> str:
        if self.row is None:
            return self.name
        return f"{self.row.label} (key)" if isinstance(self.row, Key) else self.row.label

    def cell(self, desk: Desk, obj: Obj) -> Cell:
        row = self._of(desk, obj)
        return cell(desk, obj, row) if row is not None else obj.extras.get(self.name, "")

    def texts(self, desk: Desk, obj: Obj) -> Sequence[str]:
        """The value without where it comes from; of several values each."""
        row = self._of(desk, obj)
        if not isinstance(row, Field):
            return [row.show(obj) if row is not None else obj.extras.get(self.name, "")]
        value, _ = inherited(desk.session.tree, obj, row)
        if isinstance(value, tuple):
            return value or ("",)
        return [row.kind.show(value) if value is not None else ""]

    def order(self, desk: Desk, obj: Obj) -> tuple[object, ...]:
        """Numbers and addresses by their value, names as people count."""
        text = ",".join(self.texts(desk, obj))
        return (1,) if not text else (0, natural(text))

    def _of(self, desk: Desk, obj: Obj) -> Row | None:
        return desk.schema.of(obj).attributes.get(self.row.attribute) if self.row is not None else None


def _column(desk: Desk, path: Path, objects: Mapping[str, Obj], word: str) -> _Column:
    unknown: errors.NotFound | None = None
    for entity in desk.submode(path).of:
        try:
            return _Column(word, entity.row(word))
        except errors.NotFound as wrong:
            unknown = wrong
    if any(word in obj.extras for obj in objects.values()):
        return _Column(word)
    assert unknown is not None, "a list holds something"
    raise unknown


def _table(desk: Desk, path: Path, objects: Mapping[str, Obj], columns: str, sort: str) -> Table:
    """The table of a list; `columns` are parameters instead of the declared ones, `sort` those that it is sorted by."""
    submode = desk.submode(path)
    if len(path) == 1 and len(objects) == len(desk.session.tree.keys(path[0])):
        keys = list(desk.session.tree.keys(path[0]))
    else:
        keys = sorted(objects, key=int) if submode.indexed else sorted(objects)
    for word in reversed([word.strip() for word in sort.split(",") if word.strip()]):
        by = _column(desk, path, objects, word.removeprefix("-"))
        keys.sort(key=lambda key: by.order(desk, objects[key]), reverse=word.startswith("-"))
    if not columns:
        last = desk.listed.get(path)
        # Trees do not change: the same mapping has the same objects, and nothing is compared.
        if last is None or last.objects is not objects or last.keys != keys:
            last = Listed(objects, keys, *tables.list_table(submode, objects, keys, last.blocks if last else ()))
            desk.listed = {path: last}  # the last one: it is soon asked for again, with few changes
        return Table(last.headers, blocks=last.blocks)
    shown: list[_Column] = []
    widths: dict[int, int] = {}
    for word in (word.strip() for word in columns.split(",") if word.strip()):
        name, _, width = word.partition(":")
        if width:
            widths[len(shown)] = max(whole(width, f"--format {name}", "a width, for example name:20"), 2)
        shown.append(_column(desk, path, objects, name))
    rows = [[column.cell(desk, objects[key]) for column in shown] for key in keys]
    return Table([column.header for column in shown], rows, widths=widths)


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
