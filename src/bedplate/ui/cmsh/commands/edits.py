"""Staging values: set, append, removefrom, clear."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bedplate.core import errors
from bedplate.head import Path
from bedplate.head.schema.entity import Field, Key
from bedplate.ui.cmsh import completion
from bedplate.ui.cmsh.command import Arguments, Option, command
from bedplate.ui.cmsh.commands.look import CATEGORY, NODES, targets
from bedplate.ui.cmsh.commands.move import in_a_list
from bedplate.ui.cmsh.desk import Desk
from bedplate.ui.cmsh.language import Usage
from bedplate.ui.cmsh.machine import read_file
from bedplate.ui.cmsh.wording import path_text

__all__: list[str] = []


def _words(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    parameters, path = completion.parameters(desk, args, completion.is_settable)
    if path is None or not args.words:
        return parameters
    return completion.values(desk, path, args.words[0], args.partial)


@command(
    "set",
    "Stage a value of a parameter",
    "set [OPTIONS] <parameter> [<value>]",
    "set [OPTIONS] <object> <parameter> [<value>]",
    options=[
        Option("-e", "--extra", "Create or change a free parameter that the object does not define"),
        Option("-f", "--file", "Take the value from a file", value="path"),
        NODES,
        CATEGORY,
    ],
    examples=[
        ("set iptables no", "Stage a value of the selected object"),
        ("set calico_typha_replicas value 3", "The same for an object of this list"),
        ("set config plugin.yaml", "Load a file; set config alone opens an editor"),
        ("set kubecakey", "A secret without a value is prompted for and not shown"),
        ("set -e ingress_proxy_enable true", "A free parameter"),
        ("set -n node00[1-4] softwareimage my-image", "Stage a value of several objects"),
    ],
    where=in_a_list,
    words=_words,
    least=1,
    most=None,
    leading=True,
)
async def _set(desk: Desk, args: Arguments) -> None:
    paths, words = targets(desk, args, least=1)
    if not words:
        raise Usage("set needs a parameter", hint="show lists the parameters")
    name, values = words[0], words[1:]
    if args.flag("extra"):
        text = read_file(args.value("file")) if args.flag("file") else " ".join(values)
        if not values and not args.flag("file"):
            raise Usage(f"set -e {name} needs a value", hint=f"clear {name} removes it")
        for path in paths:
            desk.session.set_extra(desk.editable(path), name, text)
        return
    for path in paths:
        await _set_one(desk, path, name, values, args)


async def _set_one(desk: Desk, path: Path, name: str, values: Sequence[str], args: Arguments) -> None:
    field = _field(desk, path, name)
    if field is None:
        if not values:
            raise Usage(f"set {name} needs a value", hint=f"clear {name} removes the extra parameter")
        desk.session.set_extra(desk.editable(path), name, " ".join(values))
        return
    text = read_file(args.value("file")) if args.flag("file") else await _value(desk, path, field, values)
    if text is None:
        return
    notice = desk.session.set(desk.editable(path), name, text)
    if notice:
        desk.note(f"note: {field.shell} {notice}")
    _warn_of_missing(desk, path, field)


def _field(desk: Desk, path: Path, name: str) -> Field | None:
    """The row of a name; None for an extra that is there already. Raises `NotFound`, `Invalid`."""
    obj = desk.get(path)
    entity = desk.schema.of(obj)
    if name in obj.extras and not any(row.shell == name.lower() for row in entity.rows):
        return None
    try:
        row = entity.row(name)
    except errors.NotFound as unknown:
        hint = f"{unknown.hint}{'' if unknown.hint.endswith('?') else ';'} set -e creates a free parameter"
        raise errors.NotFound(f"{path_text(path)} has no parameter {name!r}", hint=hint) from None
    if isinstance(row, Field) and not row.readonly:
        return row
    if isinstance(row, Key):
        raise errors.Invalid(f"the name of {path_text(path)} is not set", hint="rename NEWNAME renames it")
    hint = f"enter it with {row.shell}" if not isinstance(row, Field) else "it is derived from other objects"
    raise errors.Invalid(f"{row.shell} of {path_text(path)} cannot be set", hint=hint)


async def _value(desk: Desk, path: Path, field: Field, values: Sequence[str]) -> str | None:
    """The text a field is to hold: typed, loaded, edited or asked for; None leaves it as it is."""
    if field.kind.name == "file":
        return read_file(values[0]) if values and values[0] else "" if values else await _edited(desk, path, field)
    if values:
        return (",".join if field.kind.multiple else " ".join)(values)
    if field.kind.secret:
        text = await desk.host.secret(f"{field.label}: ")
        if text is None:
            raise Usage(
                f"{field.shell}: cannot prompt for a value: this is not a terminal",
                hint=f"set -f FILE {field.shell} reads it from a file",
            )
        return text
    choices = ", ".join(field.kind.choices())
    raise Usage(f"set {field.shell} needs a value", hint=f"one of {choices}" if choices else field.doc)


async def _edited(desk: Desk, path: Path, field: Field) -> str | None:
    before = str(field.value(desk.get(path)) or "")
    after = await desk.host.edit(before, f".{field.shell}")
    if after is None:
        raise errors.Invalid(
            f"{field.shell} of {path_text(path)} was not edited: no editor, or it failed",
            hint=f"set EDITOR, or load a file with set {field.shell} FILE",
        )
    return None if after == before else after


def _warn_of_missing(desk: Desk, path: Path, field: Field) -> None:
    """Say at once what a commit would refuse; it may still be made before."""
    if desk.session.tree.find(path[0], path[1]) is None:
        # What was typed took back the only change of an object that somebody else removed meanwhile.
        if desk.is_interactive:
            desk.note(f"note: {path_text(path)} was removed by somebody else; no change of yours is left")
        return
    mode = field.kind.target_mode
    value = field.value(desk.get(path))
    missing = [key for key in field.targets(value) if desk.session.tree.find(mode, key) is None] if value else []
    if missing and desk.is_interactive:
        desk.note(f"note: there is no {mode} {missing[0]!r} yet; create it before you commit")


@command(
    "append",
    "Add to a parameter with several values",
    "append [OPTIONS] <parameter> <value> ...",
    "append [OPTIONS] <object> <parameter> <value> ...",
    options=[NODES, CATEGORY],
    examples=[
        ("append categories gpu-nodes", "Existing values stay; duplicates are ignored"),
        ("append nodes node00[4-6]", "A range of nodes"),
    ],
    where=in_a_list,
    words=_words,
    least=2,
    most=None,
    leading=True,
)
async def _append(desk: Desk, args: Arguments) -> None:
    paths, words = targets(desk, args, least=2)
    for path in paths:
        field = _list_field(desk, path, words)
        desk.session.append(desk.editable(path), words[0], ",".join(words[1:]))
        _warn_of_missing(desk, path, field)


@command(
    "removefrom",
    "Remove values from a parameter with several values",
    "removefrom [OPTIONS] <parameter> <value> ...",
    "removefrom [OPTIONS] <object> <parameter> <value> ...",
    options=[NODES, CATEGORY],
    examples=[("removefrom categories gpu-nodes", "The other values stay")],
    where=in_a_list,
    words=_words,
    least=2,
    most=None,
    leading=True,
)
async def _removefrom(desk: Desk, args: Arguments) -> None:
    paths, words = targets(desk, args, least=2)
    for path in paths:
        _list_field(desk, path, words)
        desk.session.remove_from(desk.editable(path), words[0], ",".join(words[1:]))


def _list_field(desk: Desk, path: Path, words: Sequence[str]) -> Field:
    if len(words) < 2:
        raise Usage("a parameter and a value are needed", hint="show lists the parameters")
    field = _field(desk, path, words[0])
    if field is None or not field.kind.multiple:
        raise errors.Invalid(f"{words[0]} of {path_text(path)} takes one value", hint=f"set {words[0]} VALUE")
    return field


def _clear_words(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    return completion.parameters(desk, args, completion.is_settable)[0]


@command(
    "clear",
    "Stage the default or inherited value of a parameter; remove an extra parameter",
    "clear [OPTIONS] <parameter>",
    "clear [OPTIONS] <object> <parameter>",
    options=[NODES, CATEGORY],
    examples=[
        ("clear softwareimage", "The node uses its category's image again"),
        ("clear ingress_proxy_enable", "Remove an extra parameter"),
    ],
    where=in_a_list,
    words=_clear_words,
    least=1,
    most=2,
)
async def _clear(desk: Desk, args: Arguments) -> None:
    paths, words = targets(desk, args, least=1)
    if len(words) != 1:
        raise Usage("clear takes one parameter", hint="show lists the parameters")
    for path in paths:
        if _field(desk, path, words[0]) is None:
            desk.session.set_extra(path, words[0], None)
        else:
            desk.session.clear(desk.editable(path), words[0])
