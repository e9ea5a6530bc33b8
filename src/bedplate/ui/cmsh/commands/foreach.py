"""`foreach`: the same commands for several objects."""

from __future__ import annotations

from collections.abc import Iterable

from bedplate.ui.cmsh import completion
from bedplate.ui.cmsh.command import Arguments, Option, command, worst
from bedplate.ui.cmsh.commands.look import CATEGORY, NODES, targets
from bedplate.ui.cmsh.commands.move import in_a_list
from bedplate.ui.cmsh.desk import Desk
from bedplate.ui.cmsh.language import Usage

__all__: list[str] = []

_EVERY = "*"


def _words(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    return [*completion.objects(desk, desk.list_here()), (_EVERY, "every object of the list")]


@command(
    "foreach",
    "Run commands for several objects, as if each were selected; one that fails does not keep the others",
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
    words=_words,
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
    finally:
        desk.place = before
    return worst(codes)
