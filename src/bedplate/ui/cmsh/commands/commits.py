"""Making it true, or not: commit, validate, modified, refresh, revert, diff, undo."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from bedplate.api.headapi import Change
from bedplate.core import errors
from bedplate.head import Edit
from bedplate.head.rollout import Batches
from bedplate.ui.cmsh import wording
from bedplate.ui.cmsh.command import DELIMITER, FAILED, OK, VERBOSE, Arguments, Option, command, whole
from bedplate.ui.cmsh.desk import Desk
from bedplate.ui.cmsh.language import Usage
from bedplate.ui.cmsh.layout import Cell, Table

__all__ = ["diff_table"]

_POLL_S = 1.0


@command(
    "commit",
    "Commit the staged changes of this object or list as one revision",
    "commit [OPTIONS]",
    options=[
        Option("-m", "--message", "Message for the history", value="text"),
        Option("-w", "--wait", "Wait, and show how far it is, until the reporting nodes have applied it or failed"),
        Option("", "--timeout", "How many seconds to wait at most (600)", value="seconds"),
        Option("-b", "--batch", "Let nodes have it in batches: a number of them, or a share such as 10%", value="size"),
        Option("", "--max-failed", "With --batch: go on while no more than so many have failed it (0)", value="count"),
        Option("", "--settle", "With --batch: seconds that each batch is watched (10)", value="seconds"),
        Option("", "--dry-run", "Validate, and show what would change; nothing is written"),
        Option(
            "",
            "--force",
            "Also after a failed command, and overwrite what another user committed in the meantime",
        ),
    ],
    examples=[
        ("commit", "All staged changes of the current object; at the top, all of them"),
        ('commit -m "more replicas"', "With a message for the history"),
        ("commit --dry-run", "Only validate"),
        ("commit --batch 10%", "For one node of ten first; rollout shows how far it is"),
        ("commit --wait", "Succeeds once every node that reports has applied it"),
    ],
)
async def _commit(desk: Desk, args: Arguments) -> int | None:
    undoes = 0
    if desk.undoes is not None and desk.undoes[1] == tuple(desk.session.edits()):
        undoes = desk.undoes[0]
    # What undoes a revision is committed whole, wherever one stands.
    edits = desk.session.edits(() if undoes else desk.place)
    force = args.flag("force")
    if args.flag("dry-run"):
        desk.table(diff_table(desk, await desk.backend.check(edits, force=force, undoes=undoes)), args)
        return None
    if desk.failed and not force:
        many = "1 command has" if desk.failed == 1 else f"{desk.failed} commands have"
        raise errors.Conflict(
            f"{many} failed since the last commit, so that what is staged may not be what was meant",
            hint="nothing was committed; commit --force commits it, revert discards it",
        )
    if not edits:
        desk.failed = 0
        _tell_elsewhere(desk)
        return None
    batches = _batches(args)
    after = desk.renumbered()
    message = args.value("message")
    revision = await desk.backend.commit(edits, message, force=force, undoes=undoes, batches=batches)
    desk.undoes, desk.failed = None, 0
    desk.session.follow(desk.backend.tree, edits)
    desk.place = after
    if not desk.is_at_object and len(desk.place) <= 1:
        _count(desk, edits)
    if revision is not None and desk.is_interactive:
        desk.note(f"revision {revision.number}; undo {revision.number} stages its reverse")
    if args.flag("wait") and revision is not None:
        return await _wait(desk, revision.number, args.number("timeout", 600))
    return None


def _batches(args: Arguments) -> Batches | None:
    size = args.value("batch")
    if not args.flag("batch"):
        if args.flag("max-failed") or args.flag("settle"):
            raise Usage("--max-failed and --settle are for --batch", hint="help commit shows how")
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,5}|(?:[1-9][0-9]?|100)%", size):
        raise Usage(
            f"--batch: {size!r} must be a number of nodes, or a share such as 10%", hint="help commit shows how"
        )
    most, settle_s = args.number("max-failed", 0), args.number("settle", 10)
    if most > 100_000 or settle_s > 86400:
        raise Usage("--max-failed is at most 100000, --settle at most 86400", hint="help commit shows how")
    return Batches(size, most, settle_s)


def _tell_elsewhere(desk: Desk) -> None:
    others = [f"{edit.mode}[{edit.key}]" for edit in desk.session.edits()]
    if others:
        desk.note(
            f"note: nothing is staged here, but there are staged changes for {', '.join(others)}; "
            "commit there, or at the top (/) for all"
        )


def _count(desk: Desk, edits: Sequence[Edit]) -> None:
    """The counts that a commit of a mode's list prints."""
    for mode in dict.fromkeys(edit.mode for edit in edits):
        of = desk.schema.mode(mode).of
        name = of[0].type_name() if len(of) == 1 else desk.schema.mode(mode).label
        mine = [edit for edit in edits if edit.mode == mode]
        removed = sum(edit.new is None for edit in mine)
        if removed:
            desk.say(f"Successfully removed {_counted(removed, name)}")
        desk.say(f"Successfully committed {_counted(len(mine) - removed, name)}")


def _counted(count: int, name: str) -> str:
    """As the manual prints it, which adds an s whatever the count, where that makes a word."""
    if not name.endswith("y") or name[-2] in "aeiou":
        return f"{count} {name}s"
    return f"{count} {name if count == 1 else name[:-1] + 'ies'}"


async def _wait(desk: Desk, number: int, timeout_s: int) -> int:
    """Until every node that has something to do for a revision has applied it, failed or fallen silent. A head that is
    restarted meanwhile, or hands over to another one, is waited for."""
    started, told, is_away = desk.clock.monotonic(), "", False
    while True:
        try:
            progress = await desk.backend.progress(number)
        except errors.Unavailable as err:
            if desk.clock.monotonic() - started > timeout_s:
                raise errors.Unavailable(
                    f"revision {number} is committed, but the head does not respond: {err}",
                    hint="device status shows how far the nodes are once it does; do not commit again",
                ) from err
            if not is_away:
                desk.note(f"note: revision {number} is committed; the head does not respond, waiting for it")
                is_away = True
            await desk.clock.sleep(_POLL_S)
            continue
        counts = wording.progress(progress)
        if counts != told and progress.total:
            desk.say(counts)
            told = counts
        if progress.is_settled or progress.stopped:
            break
        behind = [node.node for node in progress.nodes if node.state in ("pending", "held")]
        if desk.clock.monotonic() - started > timeout_s:
            raise errors.Unavailable(
                f"revision {number} is committed, but not yet applied on {', '.join(behind[:5])}",
                hint="device pending shows the pending changes; commit --timeout waits longer",
            )
        await desk.clock.sleep(_POLL_S)
    if progress.stopped:
        desk.say(f"the roll-out {progress.stopped}; rollout resume goes on, rollout undo takes it back")
    left = [node for node in progress.nodes if node.state != "UNKNOWN"]
    for node in [node for node in left if node.state != "held"]:
        desk.say(f"{node.node}: {node.state}{': ' + node.text if node.text else ''}")
    if len(left) < len(progress.nodes):
        silent = len(progress.nodes) - len(left)
        desk.note(f"note: {silent} of {progress.total} nodes have not reported a revision and were not waited for")
    return FAILED if left else OK


@command(
    "validate",
    "Check whether what is staged here, or the selected object as it is, could be committed",
    "validate",
    examples=[("validate", "The problems that a commit here would be refused for, or ok.")],
)
async def _validate(desk: Desk, args: Arguments) -> None:
    from bedplate.head import validate

    edits = desk.session.edits(desk.place)
    if edits:
        await desk.backend.check(edits)
    elif len(desk.place) > 1:
        problems = validate.problems(desk.session.tree, [(desk.place[0], desk.place[1])])
        if problems:
            raise errors.Invalid("the object is not valid", problems=problems, hint="set the parameters it names")
    desk.say("ok.")


@command(
    "modified",
    "List the objects with staged changes",
    "modified [OPTIONS]",
    options=[VERBOSE, DELIMITER],
    examples=[("modified", "What commit at the top would take; diff shows the parameters")],
)
async def _modified(desk: Desk, args: Arguments) -> None:
    rows: list[list[Cell]] = []
    for edit in desk.session.edits():
        change = "added" if edit.base is None else "removed" if edit.new is None else "changed"
        if edit.was:
            change = f"renamed from {edit.was}"
        obj = edit.new or edit.base
        rows.append([edit.mode, edit.key, obj.type if obj is not None else "", change])
    desk.table(Table(["Mode", "Object", "Type", "Change"], rows, uncut=frozenset({0, 1, 3})), args)


@command(
    "refresh",
    "Discard the staged changes of this object or list; at the top, all of them",
    examples=[("refresh", "The object is back to its committed state")],
)
async def _refresh(desk: Desk, args: Arguments) -> None:
    await desk.backend.catch_up()
    desk.session.drop(desk.place[:2])
    if not desk.place:
        desk.failed = 0


@command("revert", "Discard all staged changes", examples=[("revert", "No staged changes are left")])
async def _revert(desk: Desk, args: Arguments) -> None:
    await desk.backend.catch_up()
    desk.session.drop()
    desk.failed = 0


def diff_table(desk: Desk, changes: Iterable[Change]) -> Table:
    """Changes as a table."""
    headers = ["Object", "Parameter", "Old", "New"]
    return Table(headers, [list(row) for row in wording.rows(desk.schema, changes)], uncut=frozenset({0, 1}))


@command(
    "diff",
    "Show which parameters changed: staged, by a revision, or between two",
    "diff [OPTIONS]",
    "diff [OPTIONS] <revision>",
    "diff [OPTIONS] <revision> <revision>",
    options=[Option("-v", "--verbose", "Do not truncate cells, and show files line by line"), DELIMITER],
    examples=[
        ("diff", "What is staged"),
        ("diff 12", "What revision 12 changed"),
        ("diff 10 12", "The differences between the trees of two revisions"),
    ],
    most=2,
)
async def _diff(desk: Desk, args: Arguments) -> None:
    changes = await _changes(desk, [whole(word, "diff") for word in args.words])
    desk.table(diff_table(desk, changes), args)
    if args.flag("verbose") and not args.flag("delimiter"):
        for where, old, new in wording.blobs(desk.schema, changes):
            _lines(desk, where, old, new)


async def _changes(desk: Desk, numbers: Sequence[int]) -> Sequence[Change]:
    if not numbers:
        return desk.session.staged()
    if len(numbers) == 1:
        return (await desk.backend.read(numbers[0])).changes
    from bedplate.head import changes, plan

    before, after = await desk.backend.tree_at(numbers[0]), await desk.backend.tree_at(numbers[1])
    return [
        change
        for place in plan.touched_between(before, after)
        for change in changes.diff(
            desk.schema, place, before.find(*place), after.find(*place), lambda secret: changes.MASK
        )
    ]


def _lines(desk: Desk, where: str, old: str, new: str) -> None:
    import difflib  # only for those who ask

    named = (f"{where} (old)", f"{where} (new)")
    for line in difflib.unified_diff(old.splitlines(), new.splitlines(), *named, lineterm=""):
        desk.say(line)


@command(
    "undo",
    "Stage the reverse of a revision; commit applies it",
    "undo [OPTIONS] <revision>",
    options=[Option("", "--force", "Also when a later revision touched the same parameters")],
    examples=[("undo 12", "Restore what revision 12 changed; diff shows it, commit applies it")],
    least=1,
    most=1,
)
async def _undo(desk: Desk, args: Arguments) -> None:
    number = whole(args.words[0], "undo")
    is_clean = not desk.session.edits()
    changes = await desk.backend.undo_changes(number, force=args.flag("force"))
    desk.session.stage(changes, desk.backend.unseal)
    edits = tuple(desk.session.edits())
    if not edits:
        raise errors.Conflict(
            f"revision {number} has nothing left to undo: the tree already matches the state before it",
            hint="diff REV shows a revision",
        )
    desk.undoes = (number, edits) if is_clean and not args.flag("force") else None
    if desk.is_interactive:
        desk.note("staged; diff shows it, commit applies it")
