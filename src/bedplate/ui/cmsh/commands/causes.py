"""What a change would do and why something is as it is: plan, explain."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from bedplate.core import errors
from bedplate.head import Address, Tree
from bedplate.ui.cmsh import completion
from bedplate.ui.cmsh.command import DELIMITER, Arguments, Option, command, whole
from bedplate.ui.cmsh.desk import Desk
from bedplate.ui.cmsh.language import Usage
from bedplate.ui.cmsh.layout import Table

if TYPE_CHECKING:
    from bedplate.head.plan import PlannedAction

__all__: list[str] = []

_SOMETHING = 3
_WARNING = "warning"
_BETWEEN = re.compile(r"^(\d+)\.\.(\d+)$")


@command(
    "plan",
    "Show what the staged changes would do on which node; exits with 3 when there is something to do",
    "plan [OPTIONS]",
    options=[
        Option("-v", "--verbose", "Also show the old and the new value"),
        DELIMITER,
        Option(
            "",
            "--at",
            "Show what that revision did instead, or with FROM..TO the difference between two",
            value="revision",
        ),
    ],
    examples=[
        ("plan", "What a commit of everything staged would do"),
        ("plan --at 12", "What revision 12 did"),
        ("plan --at 10..12", "The differences between two revisions"),
    ],
)
async def _plan(desk: Desk, args: Arguments) -> int:
    from bedplate.head import plan
    from bedplate.head.render import RENDERERS

    before, after, touched = await _trees(desk, args.value("at"))
    actions = plan.plan(before, after, touched, RENDERERS)
    for_programs = args.flag("delimiter")
    shown = actions if for_programs else [action for action in actions if action.kind != _WARNING]
    if shown or for_programs:
        desk.table(_plan_table(shown, with_values=args.flag("verbose") or for_programs), args)
    if not for_programs:
        warnings = (action.name for action in actions if action.kind == _WARNING and action.verb == "add")
        for text in dict.fromkeys(warnings):
            desk.say(f"warning: {text}")
        desk.say(_totals(shown))
    return _SOMETHING if actions else 0


def _plan_table(actions: Sequence[PlannedAction], *, with_values: bool) -> Table:
    headers = ["Node", "Kind", "Name", "Action", "Cause"]
    rows = [[action.node, action.kind, action.name, action.verb, str(action.source)] for action in actions]
    if with_values:
        headers += ["Old", "New", "Effect"]
        for row, action in zip(rows, actions, strict=True):
            row += [action.old, action.new, action.effect]
    return Table(headers, rows, uncut=frozenset(range(len(headers))))


def _totals(actions: Sequence[PlannedAction]) -> str:
    """`2 to add, 0 to change, 1 to remove, 1 to restart on 3 nodes`."""
    counts = Counter(action.verb for action in actions)
    usual = ("add", "change", "remove")
    verbs = [*usual, *sorted(verb for verb in counts if verb not in usual)]
    nodes = len({action.node for action in actions})
    words = ", ".join(f"{counts[verb]} to {verb}" for verb in verbs)
    return f"{words} on {nodes} node{'' if nodes == 1 else 's'}"


async def _trees(desk: Desk, at: str) -> tuple[Tree, Tree, Iterable[Address]]:
    """The trees before and after, and the top-level objects that differ."""
    from bedplate.head import plan, validate

    if at:
        between = _BETWEEN.match(at)
        first, last = (int(between[1]), int(between[2])) if between else (whole(at, "--at") - 1, whole(at, "--at"))
        if first < 0:
            raise errors.NotFound("there is no revision 0", hint="history lists them")
        after, before = await desk.backend.tree_at(last), await desk.backend.tree_at(first)
        return before, after, plan.touched_between(before, after)
    edits = desk.session.edits()
    tree = desk.backend.tree.with_objects((edit.mode, edit.key, edit.new) for edit in edits)
    touched = [(edit.mode, edit.key) for edit in edits]
    for problem in validate.problems(tree, touched):
        desk.note(f"note: a commit would be refused: {problem}")
    return desk.backend.tree, tree, touched


def _on_a_device(desk: Desk) -> str:
    return "" if desk.place[:1] == ("device",) else "explain works in device mode: run device use NODE first"


def _words(desk: Desk, args: Arguments) -> Iterable[tuple[str, str]]:
    from bedplate.head.explain import facts
    from bedplate.head.render import RENDERERS

    words = list(args.words)
    if not desk.is_at_object and not words:
        return completion.objects(desk, ("device",))
    name = desk.place[1] if desk.is_at_object else desk.find(("device",), words.pop(0))[1]
    if words:
        return ()
    return [(fact.name, fact.kind) for fact in facts(desk.session.tree, name, RENDERERS).values()]


@command(
    "explain",
    "Show every managed file, service, flag and label of a node, and what caused it",
    "explain [OPTIONS] [<path, service, flag or label>]",
    "explain [OPTIONS] <node> [<path, service, flag or label>]",
    options=[
        Option("-v", "--verbose", "With a path: print the rendered file; otherwise do not truncate cells"),
        DELIMITER,
        Option("", "--at", "As of a revision", value="revision"),
    ],
    examples=[
        ("explain", "Everything that applies to the selected node, staged changes included"),
        ("explain /etc/nginx/nginx.conf", "The cause of one file, and the next candidate"),
        ("explain -v /etc/nginx/nginx.conf", "The file itself"),
        ("explain --at 12 docker", "As of revision 12"),
    ],
    where=_on_a_device,
    words=_words,
    most=2,
)
async def _explain(desk: Desk, args: Arguments) -> None:
    from bedplate.head.explain import explain
    from bedplate.head.render import RENDERERS, rendered_file

    node, about = _asked(desk, args)
    tree = await desk.backend.tree_at(whole(args.value("at"), "--at")) if args.flag("at") else desk.session.tree
    tree.get(("device", node))
    if about.startswith("/") and args.flag("verbose"):
        content = rendered_file(tree, node, about).content
        desk.write(content if content.endswith("\n") or not content else content + "\n")
        return
    facts = explain(tree, node, about, RENDERERS)
    if about and not facts:
        raise errors.NotFound(f"nothing named {about!r} is managed on {node}", hint="explain alone lists everything")
    headers = ["Kind", "Name", "Value", "Cause", "Part", "Revision", "Next"]
    for_programs = args.flag("delimiter")
    rows = [
        [fact.kind, fact.name, fact.value, str(fact.source), fact.source.part, revision or "", fact.next_best]
        for fact, revision in facts
        if for_programs or fact.kind != _WARNING
    ]
    desk.table(Table(headers, rows, uncut=frozenset({0, 1, 3, 4, 5, 6})), args)
    if not for_programs:
        for fact, _ in facts:
            if fact.kind == _WARNING:
                desk.say(f"warning: {fact.name}")


def _asked(desk: Desk, args: Arguments) -> tuple[str, str]:
    words = list(args.words)
    if len(desk.place) >= 2:
        if len(words) == 2:
            return desk.find(("device",), words[0])[1], words[1]
        return desk.place[1], words[0] if words else ""
    if not words:
        raise Usage("explain needs a node here", hint="device use NODE, or explain NODE")
    return desk.find(("device",), words[0])[1], words[1] if len(words) > 1 else ""
