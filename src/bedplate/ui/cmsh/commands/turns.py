"""What nodes do one after the other: who has a turn, and letting the others go on."""

from __future__ import annotations

from collections.abc import Iterable

from bedplate.ui.cmsh.command import DELIMITER, VERBOSE, Arguments, command
from bedplate.ui.cmsh.commands.enrolments import on_devices
from bedplate.ui.cmsh.desk import Desk
from bedplate.ui.cmsh.language import Usage
from bedplate.ui.cmsh.layout import Cell, Table

__all__: list[str] = []


def _words(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    return () if args.words else [("release", "let the others go on after a failure")]


@command(
    "turns",
    "Show which node restarts a service that others wait to restart, or let them go on after a failure",
    "turns [OPTIONS]",
    "turns release <group>",
    options=[VERBOSE, DELIMITER],
    examples=[
        ("device turns", "Who has a turn, who waits for it, and whose failure stops them"),
        ("turns release etcd:kube-default", "Go on although a node failed"),
    ],
    where=on_devices,
    words=_words,
    most=2,
)
async def _turns(desk: Desk, args: Arguments) -> None:
    if args.words:
        if args.words[0] != "release" or len(args.words) != 2:
            raise Usage("turns takes nothing, or release and a group", hint="help turns shows how")
        state = await desk.backend.fleet.release_turn(args.words[1])
        desk.say(f"{state.group}: the others go on")
        return
    rows: list[list[Cell]] = [
        [turn.group, turn.node, turn.since, turn.until, ", ".join(turn.waiting), turn.failed, turn.why]
        for turn in await desk.backend.fleet.turns()
    ]
    headers = ["Group", "Node", "Since", "Until", "Waiting", "Failed", "Why"]
    desk.table(Table(headers, rows, uncut=frozenset({0, 5, 6}), times=frozenset({2, 3})), args)
