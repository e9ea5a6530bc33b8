"""Making it true, or not: commit, validate, modified, refresh, revert, diff, undo."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bedplate.api.headapi import Change, Revision
from bedplate.core import errors
from bedplate.head import Address, Edit, Tree
from bedplate.ui.cmsh import wording
from bedplate.ui.cmsh.command import DELIMITER, VERBOSE, Arguments, Option, command, whole
from bedplate.ui.cmsh.desk import Desk
from bedplate.ui.cmsh.layout import Cell, Table

__all__ = ["diff_table"]

_POLL_S = 1.0


@command(
    "commit",
    "Commit the staged changes of this object or list as one revision",
    "commit [OPTIONS]",
    options=[
        Option("-m", "--message", "Message for the history", value="text"),
        Option("-w", "--wait", "Wait until the reporting nodes have applied it"),
        Option("", "--timeout", "How many seconds to wait at most (600)", value="seconds"),
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
    after = desk.renumbered()
    revision = await desk.backend.commit(edits, args.value("message"), force=force, undoes=undoes)
    desk.undoes, desk.failed = None, 0
    desk.session.follow(desk.backend.tree, edits)
    desk.place = after
    if not desk.is_at_object and len(desk.place) <= 1:
        _count(desk, edits)
    if revision is not None and desk.is_interactive:
        desk.note(f"revision {revision.number}; undo {revision.number} stages its reverse")
    if args.flag("wait") and revision is not None:
        return await _wait(desk, revision, edits, args.number("timeout", 600))
    return None


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


async def _wait(desk: Desk, revision: Revision, edits: Iterable[Edit], timeout_s: int) -> int:
    """Until every node that has something to do for the commit has said that it did it."""
    before = await desk.backend.tree_at(revision.number - 1)
    nodes = _with_work(before, desk.backend.tree, [(edit.mode, edit.key) for edit in edits])
    started = desk.clock.monotonic()
    while True:
        applied = {state.node: state.applied for state in await desk.backend.states(nodes) if state.applied}
        silent = [name for name in nodes if name not in applied]
        behind = [name for name in nodes if name in applied and applied[name] < revision.number]
        if not behind:
            break
        if desk.clock.monotonic() - started > timeout_s:
            raise errors.Unavailable(
                f"revision {revision.number} is committed, but not yet applied on {', '.join(behind[:5])}",
                hint="history and explain show the pending changes; commit --timeout waits longer",
            )
        await desk.clock.sleep(_POLL_S)
    if silent:
        desk.note(f"note: {len(silent)} of {len(nodes)} nodes have not reported a revision and were not waited for")
    return 0


def _with_work(before: Tree, after: Tree, touched: Sequence[Address]) -> list[str]:
    """The nodes that should be something else now; the others have nothing to do, and so nothing to report."""
    from bedplate.head.affected import affected
    from bedplate.head.desired import desired

    names = []
    for name in sorted(affected(before, after, touched)):
        if after.find("device", name) is None:
            continue
        is_new = before.find("device", name) is None
        if is_new or desired(before, name).digest != desired(after, name).digest:
            names.append(name)
    return names


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
