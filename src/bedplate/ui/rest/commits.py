"""Commits, plans and history over HTTP.

In: checked requests. Out: revisions, what would change, who changed what; the tree as YAML. Secrets are stars in all of
them, but for an export that an administrator asks for with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from urllib.parse import unquote

import msgspec
from aiohttp import web

from bedplate.api import headapi
from bedplate.api.headapi import Change, Revision
from bedplate.core import errors
from bedplate.head import Address, Obj, Path, Tree, demand, exchange
from bedplate.head.daemon import Service
from bedplate.head.plan import PlannedAction, plan, touched_between
from bedplate.head.rollout import Batches
from bedplate.ui.rest.enrolment import fleet_of
from bedplate.ui.rest.objects import edits_in, json, nonce_of
from bedplate.ui.rest.operations import YAML, Ask
from bedplate.ui.rest.problems import Malformed

__all__ = ["Commits", "wire"]

_COMMIT = msgspec.json.Decoder(headapi.CommitRequest)
_PLAN = msgspec.json.Decoder(headapi.PlanRequest)
_ROLLOUT = msgspec.json.Decoder(headapi.RolloutAction)
_UNDO = msgspec.json.Decoder(headapi.UndoRequest)


class Commits:
    """The handlers of `/commits`, `/rollout`, `/plan`, `/revisions`, `/audit`, `/export` and `/import`."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._head = service.head

    async def commit(self, ask: Ask) -> web.StreamResponse:
        """Edits as one revision, or what they would change."""
        sent = await ask.body(_COMMIT)
        if sent.history is not None and sent.history != self._head.incarnation and not sent.force:
            raise errors.Conflict(
                "the head was restored from a backup since these edits were made: its revisions are others now",
                hint="read the tree again (refresh) and look at what is staged; commit --force overwrites",
            )
        edits, force, undoes = edits_in(self._head.tree, sent.edits), sent.force, sent.undoes
        if sent.dry_run:
            return _would(await self._head.check_as(ask.identity, edits, force=force, undoes=undoes))
        nonce, request = await nonce_of(ask, sent)
        commit = partial(
            self._head.commit_as,
            *(ask.identity, edits, sent.message),
            force=force,
            undoes=undoes,
            nonce=nonce,
            request=request,
        )
        if not sent.batch:
            return _made(await commit())
        batches = Batches(sent.batch, sent.max_failed, sent.settle)
        return _made(await fleet_of(self._service).rollouts.committed(batches, ask.identity.name, commit))

    async def rollout(self, ask: Ask) -> web.StreamResponse:
        """How far the roll-out is."""
        return json(msgspec.json.encode(await fleet_of(self._service).rollouts.state()))

    async def act_on_rollout(self, ask: Ask) -> web.StreamResponse:
        """Pause, resume or undo it."""
        action = (await ask.body(_ROLLOUT)).action
        return json(msgspec.json.encode(await fleet_of(self._service).rollouts.act(ask.identity, action)))

    async def plan(self, ask: Ask) -> web.StreamResponse:
        """The changes that edits would make, by node."""
        sent = await ask.body(_PLAN)
        edits = edits_in(self._head.tree, sent.edits)
        preview = await self._head.preview(edits, force=sent.force)
        touched = [(edit.mode, edit.key) for edit in edits]
        return self._planned(preview.before, preview.after, touched, preview.revision)

    async def plan_between(self, ask: Ask) -> web.StreamResponse:
        """The changes between two revisions, by node."""
        start, end = ask.number("from", 0), ask.number("to", self._head.revision)
        before, after = await self._head.tree_at(start), await self._head.tree_at(end)
        return self._planned(before, after, touched_between(before, after), start)

    def _planned(self, before: Tree, after: Tree, touched: Sequence[Address], revision: int) -> web.Response:
        actions = plan(before, after, touched, self._service.renderers)
        return json(
            msgspec.json.encode(headapi.PlanResult(actions=[wire(action) for action in actions], revision=revision))
        )

    # History

    async def revisions(self, ask: Ask) -> web.StreamResponse:
        """The newest revisions first."""
        limit, before = ask.number("limit", 20), ask.number("continue", 0)
        revisions = await self._head.log(limit, path_of(ask), before=before)
        more = str(revisions[-1].number) if len(revisions) == limit and revisions[-1].number > 1 else ""
        page = headapi.RevisionPage(items=revisions, revision=self._head.revision, cursor=more)
        return json(msgspec.json.encode(page))

    async def revision(self, ask: Ask) -> web.StreamResponse:
        """One revision, which never changes."""
        return json(msgspec.json.encode(await self._head.read(ask.number("number", 0))))

    async def undo(self, ask: Ask) -> web.StreamResponse:
        """A revision that takes another one back, or what it would change."""
        sent, number = await ask.body(_UNDO), ask.number("number", 0)
        if sent.dry_run:
            session = self._head.session()
            await self._head.stage_undo(session, number, force=sent.force)
            return _would(session.staged())
        nonce, request = await nonce_of(ask, sent)
        return _made(
            await self._head.undo_as(ask.identity, number, sent.message, force=sent.force, nonce=nonce, request=request)
        )

    async def audit(self, ask: Ask) -> web.StreamResponse:
        """Who changed which parameter when."""
        items = await self._head.audit(path_of(ask), ask.number("limit", 100))
        return json(msgspec.json.encode(headapi.AuditPage(items=items, revision=self._head.revision)))

    # Exchange

    async def export(self, ask: Ask) -> web.StreamResponse:
        """The tree as YAML. Secrets are an administrator's to ask for."""
        with_secrets, at = ask.flag("secrets"), ask.maybe("at")
        if with_secrets:
            demand(ask.identity, "read", "secrets")
        tree = self._head.tree if at is None else await self._head.tree_at(at)
        text = await asyncio.to_thread(exchange.export, tree, with_secrets=with_secrets)
        response = web.Response(text=text, content_type=YAML, headers={"Cache-Control": "no-store"})
        response.enable_compression()
        return response

    async def import_(self, ask: Ask) -> web.StreamResponse:
        """A YAML document as one commit, or what it would change."""
        ask.expect_type(YAML, "application/x-yaml", "text/yaml", "text/x-yaml")
        objects = await self._document(await ask.content())
        edits = exchange.replacing(objects, prune=ask.flag("prune"))
        if ask.flag("dryRun"):
            return _would(await self._head.check_as(ask.identity, edits))
        message = ask.text("message") or "import"
        nonce, request = await nonce_of(ask)
        return _made(await self._head.commit_as(ask.identity, edits, message, nonce=nonce, request=request))

    async def _document(self, data: bytes) -> list[tuple[str, Obj]]:
        """The objects of a document. A large one takes a while: it is read beside the daemon's other work."""
        try:
            return await asyncio.to_thread(exchange.read, self._head.tree.schema, data.decode())
        except UnicodeDecodeError:
            raise Malformed("the document is not UTF-8") from None
        except errors.Invalid as err:
            if err.problems:
                raise
            raise Malformed(err.message, hint=err.hint) from None


def path_of(ask: Ask) -> Path:
    """The path in a query: parts with slashes between them, each quoted as in a URL."""
    return tuple(unquote(part) for part in ask.text("path").split("/") if part)


def _made(revision: Revision | None) -> web.Response:
    result = headapi.CommitResult(changes=[] if revision is None else revision.changes, revision=revision)
    return json(msgspec.json.encode(result))


def _would(changes: Sequence[Change]) -> web.Response:
    return json(msgspec.json.encode(headapi.CommitResult(changes=list(changes))))


def wire(action: PlannedAction) -> headapi.PlanAction:
    return headapi.PlanAction(
        node=action.node,
        kind=action.kind,
        name=action.name,
        verb=action.verb,
        source=str(action.source),
        old=action.old,
        new=action.new,
        effect=action.effect,
    )
