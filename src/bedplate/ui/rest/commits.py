"""Commits, plans and history over HTTP.

In: checked requests. Out: revisions, what would change, who changed what; the tree as YAML. Secrets are stars in all of
them, but for an export that an administrator asks for with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from urllib.parse import unquote

import msgspec
from aiohttp import web

from bedplate.client import wire
from bedplate.core import errors
from bedplate.head import exchange
from bedplate.head.access import demand
from bedplate.head.changes import Change
from bedplate.head.plan import Action, plan, touched_between
from bedplate.head.records import Revision
from bedplate.head.schema.registry import Path
from bedplate.head.session import Edit
from bedplate.head.tree import Tree
from bedplate.ui.rest import encoding
from bedplate.ui.rest.objects import json, nonce_of
from bedplate.ui.rest.operations import YAML, Ask
from bedplate.ui.rest.problems import Malformed
from bedplate.ui.rest.service import Service
from bedplate.ui.rest.writing import Writer

__all__ = ["Commits"]

_COMMIT = msgspec.json.Decoder(wire.CommitRequest)
_PLAN = msgspec.json.Decoder(wire.PlanRequest)
_UNDO = msgspec.json.Decoder(wire.UndoRequest)


class Commits:
    """The handlers of `/commits`, `/plan`, `/revisions`, `/audit`, `/export` and `/import`."""

    def __init__(self, service: Service, writer: Writer) -> None:
        self._service = service
        self._head = service.head
        self._writer = writer

    async def commit(self, ask: Ask) -> web.StreamResponse:
        """Edits as one revision, or what they would change."""
        said = await ask.body(_COMMIT)
        nonce = said.nonce or nonce_of(ask)
        if not said.dry_run:
            landed = await self._writer.landed(ask.identity, nonce)
            if landed is not None:
                return _made(landed)
        edits = await self._writer.edits(said.edits, said.undoes)
        if said.dry_run:
            return _would(await self._head.check(edits, force=said.force))
        return _made(
            await self._writer.commit(
                ask.identity, edits, said.message, force=said.force, undoes=said.undoes, nonce=nonce
            )
        )

    async def plan(self, ask: Ask) -> web.StreamResponse:
        """What edits would change on which node."""
        said = await ask.body(_PLAN)
        edits = await self._writer.edits(said.edits)
        await self._head.check(edits, force=said.force)
        before, revision = self._head.tree, self._head.revision
        after = before
        for edit in edits:
            after = after.with_object(edit.mode, edit.key, edit.new)
        return self._planned(before, after, edits, revision)

    async def plan_between(self, ask: Ask) -> web.StreamResponse:
        """What changed on which node between two revisions."""
        start, end = ask.number("from", 0), ask.number("to", self._head.revision)
        before, after = await self._head.tree_at(start), await self._head.tree_at(end)
        found = plan(before, after, touched_between(before, after), self._service.renderers)
        return json(msgspec.json.encode(wire.PlanResult(actions=[_action(one) for one in found], revision=start)))

    def _planned(self, before: Tree, after: Tree, edits: Sequence[Edit], revision: int) -> web.Response:
        found = plan(before, after, [(edit.mode, edit.key) for edit in edits], self._service.renderers)
        return json(msgspec.json.encode(wire.PlanResult(actions=[_action(one) for one in found], revision=revision)))

    # History

    async def revisions(self, ask: Ask) -> web.StreamResponse:
        """The newest revisions first."""
        limit, before = ask.number("limit", 20), ask.number("continue", 0)
        found = await self._head.log(limit, path_of(ask), before=before)
        more = str(found[-1].number) if len(found) == limit and found[-1].number > 1 else ""
        page = wire.RevisionPage(
            items=[encoding.revision(one) for one in found], revision=self._head.revision, cursor=more
        )
        return json(msgspec.json.encode(page))

    async def revision(self, ask: Ask) -> web.StreamResponse:
        """One revision, which never changes."""
        return json(msgspec.json.encode(encoding.revision(await self._head.read(ask.number("number", 0)))))

    async def undo(self, ask: Ask) -> web.StreamResponse:
        """A revision that takes another one back, or what it would change."""
        said, number = await ask.body(_UNDO), ask.number("number", 0)
        if said.dry_run:
            session = self._head.session()
            await self._head.stage_undo(session, number, force=said.force)
            return _would(session.staged())
        nonce = said.nonce or nonce_of(ask)
        landed = await self._writer.landed(ask.identity, nonce)
        if landed is not None:
            return _made(landed)
        return _made(await self._writer.undo(ask.identity, number, said.message, force=said.force, nonce=nonce))

    async def audit(self, ask: Ask) -> web.StreamResponse:
        """Who changed which parameter when."""
        found = await self._head.audit(path_of(ask), ask.number("limit", 100))
        items = [
            wire.AuditEntry(
                revision=one.revision, time=one.time, author=one.author, path=list(one.path), old=one.old, new=one.new
            )
            for one in found
        ]
        return json(msgspec.json.encode(wire.AuditPage(items=items, revision=self._head.revision)))

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
        data = await ask.request.read()
        nonce, dry_run = nonce_of(ask), ask.flag("dryRun")
        landed = await self._writer.landed(ask.identity, nonce) if not dry_run else None
        if landed is not None:
            return _made(landed)
        session = self._head.session()
        try:
            await asyncio.to_thread(exchange.stage, session, data.decode(), prune=ask.flag("prune"))
        except UnicodeDecodeError:
            raise Malformed("the document is not UTF-8") from None
        except errors.Invalid as wrong:
            if wrong.problems:
                raise
            raise Malformed(wrong.message, hint=wrong.hint) from None
        edits = session.edits()
        if dry_run:
            return _would(await self._head.check(edits))
        return _made(await self._writer.commit(ask.identity, edits, ask.text("message") or "import", nonce=nonce))


def path_of(ask: Ask) -> Path:
    """The path in a query: parts with slashes between them, each quoted as in a URL."""
    return tuple(unquote(part) for part in ask.text("path").split("/") if part)


def _made(revision: Revision | None) -> web.Response:
    shown = None if revision is None else encoding.revision(revision)
    result = wire.CommitResult(changes=[] if shown is None else shown.changes, revision=shown)
    return json(msgspec.json.encode(result))


def _would(changes: Sequence[Change]) -> web.Response:
    return json(msgspec.json.encode(wire.CommitResult(changes=encoding.all_changes(changes))))


def _action(one: Action) -> wire.PlanAction:
    return wire.PlanAction(
        node=one.node,
        kind=one.kind,
        name=one.name,
        verb=one.verb,
        source=str(one.source),
        old=one.old,
        new=one.new,
        effect=one.effect,
    )
