"""Staged changes with their plan, the commit, history and undo.

In: visits. Out: pages; revisions of the head, made under the name of who is signed in. What stands in the way of a
commit or an undo is shown in place, with the revision and the author that caused it, and what can be done.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple

from aiohttp import web

from bedplate.api.desired import File
from bedplate.api.headapi import Revision, RevisionProgress
from bedplate.core import errors
from bedplate.head import Address, Edit, Session, Tree, plan, validate
from bedplate.head.affected import affected
from bedplate.head.render import rendered_file
from bedplate.head.rollout import Batches
from bedplate.head.schema import ranges
from bedplate.ui.web import diffs, links
from bedplate.ui.web.visit import Visit

__all__ = [
    "Planned",
    "as_planned",
    "changed_file",
    "changes",
    "commit",
    "drop",
    "file_between",
    "history",
    "progress_of",
    "revision",
    "revision_file",
    "undo",
    "undo_form",
]

_PER_PAGE = 50
_MOST_GROUPS = 200
_MOST_NODES = 2000


class Clash(NamedTuple):
    """An object that somebody else committed since it was edited here, and what they changed in it."""

    title: str
    mode: str
    key: str
    author: str
    revision: int
    sections: list[diffs.Section]


async def changes(visit: Visit) -> web.StreamResponse:
    """What is staged, what it would do, and what stands in the way."""
    return await _changes(visit)


async def _changes(
    visit: Visit, message: str = "", error: str = "", hint: str = "", status: int = 200, batch: str = ""
) -> web.Response:
    edits = visit.session.edits()
    present, staged = visit.service.head.tree, visit.session.tree
    after, touched = _over(present, edits), [(edit.mode, edit.key) for edit in edits]
    planned = await _plan(visit, present, after, touched)
    return visit.page(
        "changes.html",
        "Staged changes",
        status,
        sections=diffs.sections(staged.schema, visit.session.staged()),
        planned=planned,
        clashes=await _clashes(visit, edits),
        problems=validate.problems(after, touched),
        denied=visit.service.head.refusal(visit.person, edits),
        message=message,
        batch=batch,
        has_nodes=visit.service.fleet is not None,
        error=error,
        hint=hint,
        tree=staged,
    )


def _over(tree: Tree, edits: list[Edit]) -> Tree:
    """The tree that a commit of the edits would make."""
    for edit in edits:
        tree = tree.with_object(edit.mode, edit.key, edit.new)
    return tree


class Planned(NamedTuple):
    """What a change does on nodes, grouped. `is_put_off`: of very many nodes only when somebody asks."""

    groups: list[diffs.Group]
    more_groups: int
    nodes: int
    actions: int
    is_put_off: bool = False


async def _plan(visit: Visit, before: Tree, after: Tree, touched: list[Address]) -> Planned:
    """The plan; of what cannot be resolved the problems tell.

    Trees are values and many nodes take a while: it is computed beside the daemon's other work.
    """
    try:
        nodes = affected(before, after, touched)
        if len(nodes) > _MOST_NODES and visit.request.query.get("plan") != "whole":
            return Planned([], 0, len(nodes), 0, is_put_off=True)
        actions = await asyncio.to_thread(plan.plan, before, after, touched, visit.service.renderers)
    except errors.BedplateError as err:
        visit.login.say(f"The plan is incomplete: {err}", "warning", err.hint)
        return Planned([], 0, 0, 0)
    return as_planned(actions)


def as_planned(actions: Sequence[plan.PlannedAction]) -> Planned:
    """Actions as the page shows them."""
    groups = diffs.groups(actions)
    more = max(len(groups) - _MOST_GROUPS, 0)
    return Planned(groups[:_MOST_GROUPS], more, len({action.node for action in actions}), len(actions))


async def _clashes(visit: Visit, edits: list[Edit]) -> list[Clash]:
    clashes = []
    tree = visit.service.head.tree
    for edit in edits:
        current = tree.find(edit.mode, edit.key)
        seen = edit.base.revision if edit.base is not None else None
        if (current.revision if current is not None else None) == seen:
            continue
        theirs = await visit.service.head.log(1, (edit.mode, edit.key))
        if theirs:
            mine = [change for change in theirs[0].changes if change.path[:2] == (edit.mode, edit.key)]
            title = links.title((edit.mode, edit.key))
            rows = diffs.sections(tree.schema, mine)
            clashes.append(Clash(title, edit.mode, edit.key, theirs[0].author, theirs[0].number, rows))
    return clashes


async def commit(visit: Visit) -> web.StreamResponse:
    """Make a revision of everything that is staged; with a size, for so many nodes at a time."""
    message, batch = visit.typed.get("message", "").strip(), visit.typed.get("batch", "").strip()
    head, edits = visit.service.head, visit.session.edits()
    is_forced = visit.typed.get("force") == "yes"
    try:
        make = partial(head.commit_as, visit.person, edits, message, force=is_forced)
        revision = await (_in_batches(visit, batch, make) if batch else make())
    except (errors.Conflict, errors.Invalid, errors.Denied, errors.Unavailable) as err:
        hint = "" if isinstance(err, errors.Conflict | errors.Invalid) and not batch else err.hint
        return await _changes(visit, message, err.message, hint, 409, batch)
    visit.session.follow(head.tree, edits)
    if revision is None:
        visit.login.say("There was nothing to commit.")
        return visit.go("/changes")
    visit.login.say(f"Revision {revision.number} is committed.", "good")
    rollout = visit.service.fleet.rollouts.current if visit.service.fleet is not None else None
    is_rolled_out = rollout is not None and rollout.revision == revision.number
    return visit.go("/rollout" if is_rolled_out else links.revision(revision.number))


async def _in_batches(visit: Visit, size: str, make: Callable[..., Awaitable[Revision | None]]) -> Revision | None:
    if visit.service.fleet is None:
        raise errors.Unavailable("this head keeps nothing for nodes, so that there are no batches of them")
    return await visit.service.fleet.rollouts.committed(Batches(size), visit.person.name, make)


async def drop(visit: Visit) -> web.StreamResponse:
    """Forget what is staged: for one object or several, or everything."""
    mode, keys = visit.typed.get("mode", ""), visit.typed.get("key", "").splitlines()
    for key in keys if mode else ():
        visit.session.drop((mode, key))
    if not mode:
        visit.session.drop()
    what = f"What was staged for {links.title((mode, ranges.compress(keys)))}" if mode else "Everything that was staged"
    visit.login.say(f"{what} is discarded.")
    return visit.go("/changes")


async def history(visit: Visit) -> web.StreamResponse:
    """The revisions, newest first."""
    head = visit.service.head
    before = visit.request.query.get("before", "")
    last = min(int(before) - 1, head.revision) if before.isdecimal() and len(before) < 12 else head.revision
    revisions = [await head.read(number) for number in range(last, max(last - _PER_PAGE, 0), -1)]
    undone = {record.undoes: record.number for record in revisions if record.undoes}
    return visit.page(
        "history.html",
        "History",
        revisions=[(record, _objects(record)) for record in revisions],
        undone=undone,
        older=revisions[-1].number if revisions and revisions[-1].number > 1 else 0,
        is_newest=last >= head.revision,
    )


def _objects(record: Revision) -> list[tuple[str, str]]:
    """The top-level objects of a revision with their pages."""
    places = dict.fromkeys((change.path[0], change.path[1]) for change in record.changes)
    return [(links.title(place), links.show(place)) for place in places]


async def revision(visit: Visit) -> web.StreamResponse:
    """One revision: what it changed, and what that meant on nodes."""
    number = visit.number()
    head = visit.service.head
    record = await head.read(number)
    before, after = await head.tree_at(number - 1), await head.tree_at(number)
    steps = await _plan(visit, before, after, plan.touched_between(before, after))
    return visit.page(
        "revision.html",
        f"Revision {number}",
        record=record,
        sections=diffs.sections(after.schema, record.changes),
        planned=steps,
        number=number,
        progress=await progress_of(visit),
        tree=after,
        last=head.revision,
    )


async def progress_of(visit: Visit) -> RevisionProgress | None:
    """How far nodes are with the revision of the address; None where there are none, or too many to ask by the way."""
    number, head, fleet = visit.number(), visit.service.head, visit.service.fleet
    before, after = await head.tree_at(max(number - 1, 0)), await head.tree_at(number)
    if fleet is None or len(affected(before, after, plan.touched_between(before, after))) > _MOST_NODES:
        return None
    return await fleet.progress.of(number)


async def changed_file(visit: Visit) -> web.StreamResponse:
    """What a commit would change in a file of a node."""
    present = visit.service.head.tree
    return file_between(visit, present, _over(present, visit.session.edits()), "/changes")


async def revision_file(visit: Visit) -> web.StreamResponse:
    """What a revision changed in a file of a node."""
    number, head = visit.number(), visit.service.head
    before, after = await head.tree_at(max(number - 1, 0)), await head.tree_at(number)
    return file_between(visit, before, after, links.revision(number))


def file_between(visit: Visit, before: Tree, after: Tree, back: str) -> web.Response:
    """What differs in a file of a node between two trees; the query names both."""
    node, path = visit.request.query.get("node", ""), visit.request.query.get("path", "")
    old, new = _rendered(before, node, path), _rendered(after, node, path)
    file = new or old
    if file is None:
        raise errors.NotFound(f"no file {path!r} is managed on {node!r}, before or after")
    lines = diffs.compared(*(side.content.splitlines() if side is not None else [] for side in (old, new)))
    return visit.page("file.html", path, node=node, file=file, lines=lines, at=None, back=back)


def _rendered(tree: Tree, node: str, path: str) -> File | None:
    try:
        return rendered_file(tree, node, path)
    except errors.NotFound:
        return None


async def undo_form(visit: Visit) -> web.StreamResponse:
    """What taking a revision back would change, or which later revision stands in the way."""
    return await _undo(visit)


async def _undo(visit: Visit, error: str = "", hint: str = "", status: int = 200) -> web.Response:
    number, head = visit.number(), visit.service.head
    record = await head.read(number)
    session, conflict = Session(head.tree), ""
    try:
        await head.stage_undo(session, number)
    except errors.Conflict as err:
        conflict, hint = err.message, err.hint
        with contextlib.suppress(errors.Terminal):  # what it would be put back into may be gone
            await head.stage_undo(session, number, force=True)
    edits = session.edits()
    touched = [(edit.mode, edit.key) for edit in edits]
    planned = await _plan(visit, head.tree, session.tree, touched)
    return visit.page(
        "undo.html",
        f"Undo revision {number}",
        status,
        record=record,
        conflict=conflict,
        error=error,
        hint=hint,
        sections=diffs.sections(head.tree.schema, session.staged()),
        planned=planned,
        problems=validate.problems(session.tree, touched),
        denied=visit.service.head.refusal(visit.person, edits),
        tree=session.tree,
    )


async def undo(visit: Visit) -> web.StreamResponse:
    """Undo a revision, as a new revision."""
    number, head = visit.number(), visit.service.head
    is_forced = visit.typed.get("force") == "yes"
    message = visit.typed.get("message", "").strip()
    try:
        revision = await head.undo_as(visit.person, number, message, force=is_forced)
    except (errors.Conflict, errors.Invalid, errors.Denied, errors.Unavailable) as err:
        return await _undo(visit, err.message, err.hint, 409)
    if revision is None:
        visit.login.say(f"Revision {number} changes nothing any more: there was nothing to undo.")
        return visit.go(links.revision(number))
    visit.login.say(f"Revision {number} is undone by revision {revision.number}.", "good")
    return visit.go(links.revision(revision.number))
