"""Staging objects: add, assign, unassign, clone, rename, swap, remove."""

from __future__ import annotations

from collections.abc import Iterable

from bedplate.core import errors
from bedplate.head import Path
from bedplate.ui.cmsh import completion
from bedplate.ui.cmsh.command import Arguments, command
from bedplate.ui.cmsh.commands.move import in_a_list
from bedplate.ui.cmsh.desk import Desk
from bedplate.ui.cmsh.language import Usage

__all__ = ["refuse_head"]


def _in_roles(desk: Desk) -> str:
    if desk.place and desk.list_place[-1] == "roles":
        return ""
    return "roles are assigned in the submode roles of a device, a category or an overlay"


def _add_words(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    submode = desk.submode(desk.list_here())
    if submode.indexed:
        entity = submode.of[0]
        if len(args.words) < len(entity.positional):
            row = entity.attributes[entity.positional[len(args.words)]]
            kind = getattr(row, "kind", None)
            return [(choice, row.label) for choice in kind.choices()] if kind is not None else ()
        return ()
    docs = {entity.word: entity.noun for entity in submode.of}
    return [(word, docs.get(word, submode.of[0].noun)) for word in submode.words()] if not args.words else ()


@command(
    "add",
    "Create an object in this list and select it",
    "add <name>",
    "add <type> <name>",
    "add <value> ...",
    examples=[
        ("add amd", "A new object; of devices a compute node"),
        ("add overlay2 mylargebackend", "A list of several types takes the type first; TAB lists them"),
        ("add ACCEPT net 10443 tcp fw", "A list without names takes values (openports: action, network, port, ...)"),
    ],
    where=in_a_list,
    words=_add_words,
    most=None,
    leading=True,
    selects=True,
)
async def _add(desk: Desk, args: Arguments) -> None:
    here = desk.list_here()
    submode, words = desk.submode(here), args.words
    if submode.indexed:
        desk.place = desk.session.add_indexed(here, words)
        desk.say("ok.")
        return
    count = 2 if submode.typed else 1
    if len(words) == 1 and submode.usual is not None and words[0].lower() not in submode.words():
        desk.place = desk.session.add(here, words[0])
        return
    if len(words) != count:
        type_ = "" if not submode.typed else "<type> " if submode.usual is None else "[type] "
        form = f"add {type_}<name>"
        known = ", ".join(submode.words())
        raise Usage(f"{submode.shell} takes {form}", hint=f"types: {known}" if known else "the name must be new here")
    desk.place = desk.session.add(here, words[-1], words[0] if submode.typed else "")


@command(
    "assign",
    "Assign a role and select it",
    "assign <role>",
    examples=[("assign docker::host", "The role Docker::Host, with its defaults")],
    where=_in_roles,
    words=_add_words,
    least=1,
    most=1,
    selects=True,
)
async def _assign(desk: Desk, args: Arguments) -> None:
    desk.place = desk.session.add(desk.list_here(), args.words[0])


def _clone_words(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    return completion.objects(desk, desk.list_here()) if not args.words and not desk.is_at_object else ()


@command(
    "clone",
    "Copy an object under a new name and select the copy; secrets are not copied",
    "clone <new name>",
    "clone <object> <new name>",
    examples=[
        ("clone gpu-nodes", "Copy the selected object"),
        ("clone default gpu-nodes", "Copy the object default of this list"),
    ],
    where=in_a_list,
    words=_clone_words,
    least=1,
    most=2,
    selects=True,
)
async def _clone(desk: Desk, args: Arguments) -> None:
    path = desk.find(desk.list_here(), args.words[0]) if len(args.words) == 2 else desk.here()
    desk.place = desk.session.clone(path, args.words[-1])


@command(
    "rename",
    "Give an object another name, also wherever other objects refer to it",
    "rename <new name>",
    "rename <object> <new name>",
    examples=[
        ("rename node101", "The selected object"),
        ("device rename node001 node101", "An object of this list"),
    ],
    where=in_a_list,
    words=_clone_words,
    least=1,
    most=2,
    selects=True,
)
async def _rename(desk: Desk, args: Arguments) -> None:
    from bedplate.head import renaming

    path = desk.find(desk.list_here(), args.words[0]) if len(args.words) == 2 else desk.here()
    refuse_head(desk, path)
    after, was = renaming.rename(desk.session, path, args.words[-1]), desk.place
    desk.place = (*after, *was[len(path) :]) if was[: len(path)] == path else desk.list_place


def refuse_head(desk: Desk, path: Path) -> None:
    """The head that answers is known by its name elsewhere, too."""
    if path == ("device", desk.backend.name):
        raise errors.Invalid(
            f"{path[1]} is the head node that is in use, and cannot be renamed",
            hint="its name is also in head.yaml and in its certificate",
        )


def _swap_words(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    return completion.objects(desk, desk.list_here()) if len(args.words) < 2 else ()


@command(
    "swap",
    "Exchange the names of two objects, also wherever other objects refer to them",
    "swap <object>",
    "swap <object> <object>",
    examples=[
        ("swap node002", "The selected object becomes node002, and node002 what the selected object was called"),
        ("device swap node001 node002", "Two objects of this list"),
    ],
    where=in_a_list,
    words=_swap_words,
    least=1,
    most=2,
)
async def _swap(desk: Desk, args: Arguments) -> None:
    from bedplate.head import renaming

    here = desk.list_here()
    path = desk.find(here, args.words[0]) if len(args.words) == 2 else desk.here()
    other = desk.find(here, args.words[-1])
    for each in (path, other):
        refuse_head(desk, each)
    renaming.swap(desk.session, path, other)


def _remove_words(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    return completion.objects(desk, desk.list_here())


@command(
    "remove",
    "Stage the removal of objects",
    "remove [<object or index> ...]",
    examples=[
        ("remove capi-mgmt", "An object of this list"),
        ("remove 0", "An object of a list without names; indexes stay as they are until the commit"),
        ("remove node00[4-6]", "A range"),
    ],
    where=in_a_list,
    words=_remove_words,
    most=None,
)
async def _remove(desk: Desk, args: Arguments) -> None:
    _take_away(desk, args)


@command(
    "unassign",
    "Stage the removal of a role",
    "unassign [<role>]",
    examples=[("unassign docker::host", "Nodes stop the services of the role")],
    where=_in_roles,
    words=_remove_words,
    most=1,
)
async def _unassign(desk: Desk, args: Arguments) -> None:
    _take_away(desk, args)


def _take_away(desk: Desk, args: Arguments) -> None:
    here = desk.list_here()
    paths = [path for word in args.words for path in desk.several(here, word)] if args.words else [desk.here()]
    for path in paths:
        _refuse_brought(desk, path)
    for path in paths:
        desk.session.remove(path)


def _refuse_brought(desk: Desk, path: Path) -> None:
    if path[-1] not in desk.session.children(path[:-1]):
        raise errors.Invalid(
            f"the service {path[-1]} comes with a role or the category of {path[1]}",
            hint="unassign the role, or set autostart no",
        )
