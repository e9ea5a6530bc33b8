"""Going about: use, .., /, exit, quit."""

from __future__ import annotations

from collections.abc import Iterable

from bedplate.head import Edit
from bedplate.ui.cmsh import completion
from bedplate.ui.cmsh.command import Arguments, Option, command
from bedplate.ui.cmsh.desk import Desk

__all__ = ["in_a_list", "tell_lost"]


def in_a_list(desk: Desk) -> str:
    """For commands that need a list."""
    return "" if desk.place else "enter a mode first, for example device"


def _objects(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    return completion.objects(desk, desk.list_here()) if not args.words else ()


@command(
    "use",
    "Select an object of this list",
    "use <object>",
    examples=[
        ("use node001", "Select the object node001"),
        ("device use master", "Enter the mode device and select the active head node"),
        ("use docker::host", "Names of roles are not case-sensitive"),
    ],
    where=in_a_list,
    words=_objects,
    least=1,
    most=1,
    selects=True,
)
async def _use(desk: Desk, args: Arguments) -> None:
    desk.place = desk.find(desk.list_here(), args.words[0])


@command(
    "..",
    "Go one level up: from an object to its list, from a list to its parent",
    examples=[("..", "From category[default] to category")],
    moves=True,
)
async def _up(desk: Desk, args: Arguments) -> None:
    desk.place = desk.place[:-1]


@command("/", "Go to the top", examples=[("/", "Leave all modes; staged changes stay staged")], moves=True)
async def _top(desk: Desk, args: Arguments) -> None:
    desk.place = ()


@command(
    "exit",
    "Go one level up; at the top, leave the shell",
    examples=[("exit", "From category[default] to category")],
    moves=True,
)
async def _exit(desk: Desk, args: Arguments) -> None:
    if desk.place:
        desk.place = desk.place[:-1]
    else:
        _leave(desk, is_sure=False)


@command(
    "quit",
    "Leave the shell",
    "quit [OPTIONS]",
    options=[Option("-f", "--force", "Leave even with staged changes, which are lost")],
    examples=[("quit", "Leave; with staged changes, confirm by repeating it")],
    moves=True,
)
async def _quit(desk: Desk, args: Arguments) -> None:
    _leave(desk, is_sure=args.flag("force"))


def _leave(desk: Desk, *, is_sure: bool) -> None:
    """Somebody at a terminal is warned once and stays; a script is told what it loses."""
    staged = tuple(desk.session.edits())
    if staged and desk.is_interactive and not is_sure and desk.warned != staged:
        desk.warned = staged
        desk.note(f"there are staged changes: {_named(staged)}; commit keeps them, quit again discards them")
        return
    tell_lost(desk)
    desk.is_over = True


def tell_lost(desk: Desk) -> None:
    """Say once which staged changes are dropped by leaving."""
    staged = tuple(desk.session.edits())
    if staged and desk.lost != staged:
        desk.lost = staged
        desk.note(f"warning: staged changes were discarded: {_named(staged)} (commit keeps them)")


def _named(staged: Iterable[Edit]) -> str:
    return ", ".join(f"{edit.mode}[{edit.key}]" for edit in staged)
