"""A commit that reaches nodes in batches: how far it is; pause, resume and undo."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, Literal

from bedplate.api.headapi import RolloutState
from bedplate.api.states import RELEASES
from bedplate.ui.cmsh.command import DELIMITER, VERBOSE, Arguments, command
from bedplate.ui.cmsh.desk import Desk
from bedplate.ui.cmsh.language import Usage
from bedplate.ui.cmsh.layout import Cell, Table

__all__: list[str] = []

_ACTIONS: Final[dict[str, Literal["pause", "resume", "undo"]]] = {"pause": "pause", "resume": "resume", "undo": "undo"}
_WORDS = {
    "status": "how far it is",
    "pause": "release no further batch",
    "resume": "go on, whatever has failed so far",
    "undo": "take its revision back on all nodes",
}


def _words(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    return () if args.words else list(_WORDS.items())


@command(
    "rollout",
    "Show how far a commit with --batch is, or pause it, go on, or take it back",
    "rollout [OPTIONS] [status]",
    "rollout pause|resume|undo",
    options=[VERBOSE, DELIMITER],
    examples=[
        ("rollout", "Which nodes have it, which fail it, and which wait for their batch"),
        ("rollout resume", "Go on after a pause or a failure"),
        ("rollout undo", "Take the revision back"),
    ],
    words=_words,
    most=1,
)
async def _rollout(desk: Desk, args: Arguments) -> None:
    word = args.words[0] if args.words else "status"
    if word not in _WORDS:
        raise Usage(f"rollout: {word!r} must be one of {', '.join(_WORDS)}", hint="help rollout shows how")
    if word in _ACTIONS:
        state = await desk.backend.fleet.act_on_rollout(_ACTIONS[word])
        await desk.backend.catch_up()
        desk.session.follow(desk.backend.tree, [])
        desk.say(_line(state))
        return
    state = await desk.backend.fleet.rollout()
    rows: list[list[Cell]] = [[node.node, node.state, node.text] for node in state.nodes]
    desk.table(Table(["Hostname (key)", "State", "Why"], rows, uncut=frozenset({0, 2})), args)
    if not args.flag("delimiter"):
        desk.say(_line(state))


def _line(state: RolloutState) -> str:
    counts = Counter(node.state for node in state.nodes)
    words = ", ".join(f"{counts[word]} {word}" for word in RELEASES if counts[word])
    why = f" ({state.text})" if state.text else ""
    sizes = f"{state.released} of {state.total} nodes have it, {state.batch} at a time"
    return f"revision {state.revision}: {state.state}{why}; {sizes}{': ' + words if words else ''}"
