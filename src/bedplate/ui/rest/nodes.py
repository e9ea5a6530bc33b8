"""Nodes over HTTP: what holds on them and why, what they should be, what they tell.

In: checked requests of people and agents. Out: explanations, desired states, conditions with the history of checks. A
report becomes results and notices beside the tree; the tree itself does not change by it.
"""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from bedplate.api import headapi
from bedplate.api.desired import Desired
from bedplate.head import NODE, may, news
from bedplate.head.daemon import Service
from bedplate.head.desired import desired
from bedplate.head.explain import explain
from bedplate.head.schema.ranges import natural
from bedplate.ui.rest import conditions
from bedplate.ui.rest.auth import confirm
from bedplate.ui.rest.objects import json
from bedplate.ui.rest.operations import Ask
from bedplate.ui.rest.stream import Feed

__all__ = ["Nodes"]

_REPORT = msgspec.json.Decoder(headapi.ReportRequest)


class Nodes:
    """The handlers of `/nodes`."""

    def __init__(self, service: Service, feed: Feed) -> None:
        self._service = service
        self._head = service.head
        self._feed = feed

    async def list(self, ask: Ask) -> web.StreamResponse:
        """What is known of nodes."""
        devices = self._head.tree.mode("device")
        names = [name for name in ask.names("names") or devices if name in devices]
        items = [self._service.health.node_state(name) for name in sorted(names, key=natural)]
        return json(msgspec.json.encode(headapi.NodeList(items=items, revision=self._head.revision)))

    async def explain(self, ask: Ask) -> web.StreamResponse:
        """What holds on a node, with its causes."""
        name, at = ask.text("name"), ask.maybe("at")
        revision = self._head.revision if at is None else at
        tree = self._head.tree if at is None else await self._head.tree_at(at)
        facts = [
            headapi.Fact(
                kind=fact.kind,
                name=fact.name,
                value=fact.value,
                source=str(fact.source),
                mode=fact.source.mode,
                key=fact.source.key,
                revision=cause,
                next_best=fact.next_best,
            )
            for fact, cause in explain(tree, name, ask.text("about"), self._service.renderers)
        ]
        return json(msgspec.json.encode(headapi.ExplainResult(node=name, revision=revision, facts=facts)))

    async def desired(self, ask: Ask) -> web.StreamResponse:
        """What a node should be; whoever knows it already may wait for another."""
        name, at, wait_s = ask.text("name"), ask.maybe("at"), ask.number("wait", 0)
        shown = await self._desired(ask, name, at)
        tag = shown.digest
        if at is None and wait_s and conditions.is_known(ask.request, tag):
            try:
                async with asyncio.timeout(wait_s):
                    while conditions.is_known(ask.request, tag) and not self._feed.is_closed:
                        await self._changed(ask, name)
                        shown = await self._desired(ask, name, None)
                        tag = shown.digest
            except TimeoutError:
                pass
        if conditions.is_known(ask.request, tag):
            return web.Response(status=304, headers={"ETag": conditions.etag(tag)})
        return json(msgspec.json.encode(shown), etag=tag)

    async def _changed(self, ask: Ask, name: str) -> None:
        """Wait until a revision may mean something to a node, for as long as its credential is valid."""
        changed = asyncio.ensure_future(self._feed.node_changed(name))
        try:
            while not changed.done():
                await asyncio.wait([changed], timeout=self._service.limits.heartbeat_s)
                confirm(self._service.access, ask.request)
        finally:
            changed.cancel()

    async def _desired(self, ask: Ask, name: str, at: int | None) -> Desired:
        """The node itself, and whoever may read secrets, see secret files; others see stars."""
        if at is None:
            state = desired(self._head.tree, name, self._head.revision)
        else:
            state = desired(await self._head.tree_at(at), name, at)
        is_whole = ask.identity.role == NODE or may(ask.identity, "read", "secrets")
        return state if is_whole else state.masked()

    async def report(self, ask: Ask) -> web.StreamResponse:
        """Keep what a node did and measured, and tell of it."""
        name = ask.text("name")
        self._head.tree.get(("device", name))
        self._service.head.standing.refuse_writes()
        self._service.intake.admit(name)
        report = await ask.body(_REPORT)
        measured = await self._service.health.record(name, report.results, applied=report.applied, digest=report.digest)
        told = self._service.intake.told(name, news(name, report.actions, report.failures, measured, report.applied))
        if told:
            await self._service.notices.add_all(told)
        return json(msgspec.json.encode(headapi.ReportResult(revision=self._head.revision)))

    async def health(self, ask: Ask) -> web.StreamResponse:
        """A node with the history of its checks."""
        name = ask.text("name")
        self._head.tree.get(("device", name))
        return json(msgspec.json.encode(await self._service.health.node_health(name, ask.text("check"))))
