"""Nodes over HTTP: what holds on them and why, what they should be, what they tell.

In: checked requests of people and agents. Out: explanations, desired states, conditions with the history of checks. A
report becomes results and notices beside the tree; the tree itself does not change by it.
"""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from bedplate.api import headapi
from bedplate.api.desired import Desired, Login
from bedplate.core import errors
from bedplate.head import NODE, Lasting, care, demand, demand_errands, may, members, news
from bedplate.head.daemon import Service
from bedplate.head.desired import desired
from bedplate.head.explain import explain
from bedplate.head.schema.ranges import natural
from bedplate.ui.rest import conditions
from bedplate.ui.rest.auth import lasting
from bedplate.ui.rest.commits import wire
from bedplate.ui.rest.enrolment import fleet_of
from bedplate.ui.rest.objects import json
from bedplate.ui.rest.operations import Ask
from bedplate.ui.rest.stream import Feed

__all__ = ["Nodes"]

_REPORT = msgspec.json.Decoder(headapi.ReportRequest)
_ERRAND = msgspec.json.Decoder(headapi.ErrandRequest)


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
        names.sort(key=natural)
        if self._service.fleet is not None:
            items = await self._service.fleet.progress.states(names)
        else:
            items = [self._service.health.node_state(name) for name in names]
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

    async def pending(self, ask: Ask) -> web.StreamResponse:
        """What a node has still to change."""
        progress = fleet_of(self._service).progress
        actions, applied = await progress.pending(ask.text("name"), self._service.renderers)
        result = headapi.PlanResult(actions=[wire(action) for action in actions], revision=applied)
        return json(msgspec.json.encode(result))

    async def progress(self, ask: Ask) -> web.StreamResponse:
        """How far nodes are with a revision."""
        number = ask.number("number", 0)
        await self._head.read(number)
        fleet = fleet_of(self._service)
        progress, rollout = await fleet.progress.of(number), fleet.rollouts.current
        if rollout is not None and rollout.revision == number and rollout.state in ("paused", "stopped"):
            progress = msgspec.structs.replace(progress, stopped=f"is {rollout.state}: {rollout.text}")
        return json(msgspec.json.encode(progress))

    async def desired(self, ask: Ask) -> web.StreamResponse:
        """What a node should be; whoever knows it already may wait for another."""
        name, at, wait_s = ask.text("name"), ask.maybe("at"), ask.number("wait", 0)
        tag = await self._tag(ask, name, at)
        credential = lasting(self._service.access, self._service.clock, ask.request)
        if at is None and wait_s and conditions.is_known(ask.request, tag):
            try:
                async with asyncio.timeout(wait_s):
                    while conditions.is_known(ask.request, tag) and not self._feed.is_closed:
                        await self._changed(name, credential)
                        tag = await self._tag(ask, name, None)
            except TimeoutError:
                pass
        if conditions.is_known(ask.request, tag):
            return web.Response(status=304, headers={"ETag": conditions.etag(tag)})
        return json(msgspec.json.encode(await self._desired(ask, name, at)), etag=tag)

    async def _tag(self, ask: Ask, name: str, at: int | None) -> str:
        """The ETag of what the asker sees. That of a node which asks for itself is known without making its state, so
        that thousands who wait cost next to nothing."""
        if at is None and self._service.fleet is not None and self._sees_all(ask):
            self._head.tree.get(("device", name))
            return self._service.fleet.wants.etag(name)
        return (await self._desired(ask, name, at)).etag

    async def _changed(self, name: str, credential: Lasting) -> None:
        """Wait until a revision may mean something to a node, for as long as its credential is valid."""
        is_changed = False
        while not is_changed:
            with self._feed.waiting(name) as changed:
                while not changed.done():
                    await asyncio.wait([changed], timeout=self._service.limits.heartbeat_s)
                    credential.holds()
                is_changed = changed.result()

    async def _desired(self, ask: Ask, name: str, at: int | None) -> Desired:
        """The node itself, and whoever may read secrets, see secret files; others see stars. Logins are the node's."""
        if at is None and self._service.fleet is not None:
            state = self._service.fleet.wants.state(name)
        elif at is None:
            state = desired(self._head.tree, name, self._head.revision)
        else:
            state = desired(await self._head.tree_at(at), name, at)
        if ask.identity.role == NODE:
            return state
        return state.without_logins() if self._sees_all(ask) else state.masked()

    def _sees_all(self, ask: Ask) -> bool:
        return ask.identity.role == NODE or may(ask.identity, "read", "secrets")

    async def report(self, ask: Ask) -> web.StreamResponse:
        """Keep what a node did and measured, and tell of it."""
        name = ask.text("name")
        self._head.tree.get(("device", name))
        self._service.head.standing.refuse_writes()
        self._service.intake.admit(name)
        report = await ask.body(_REPORT)
        measured = await self._service.health.record(
            name,
            report.results,
            # A node that is held back has not applied what it did not receive, whatever it takes for the newest.
            applied=min(report.applied, self._counting(name)),
            digest=report.digest,
            failures=report.failures,
            tried=report.tried or self._head.revision,
            version=report.version,
            checks=report.checks,
            system=report.system,
        )
        told = self._service.intake.told(name, news(name, report.actions, report.failures, measured, report.applied))
        told += self._service.twins.heard(name, report.run, ask.request.remote or "an unknown address")
        if told:
            await self._service.notices.add_all(told)
        if self._service.fleet is not None:
            if any(errand.kind == "off" for errand in await self._service.fleet.errands.told(name, report.errands)):
                self._service.health.left(name)
            if report.booted:
                await self._service.fleet.imaging.booted(name)
            await self._service.fleet.reported(name, has_failed=bool(report.failures))
        return json(msgspec.json.encode(headapi.ReportResult(revision=self._counting(name))))

    def _counting(self, node: str) -> int:
        """The revision that counts for a node: an older one while it is held back."""
        fleet = self._service.fleet
        return self._head.revision if fleet is None else fleet.wants.tree(node)[1]

    async def archive(self, ask: Ask) -> web.StreamResponse:
        """The archive of the agent that a node is to run."""
        name, digest = ask.text("name"), ask.text("digest")
        fleet = fleet_of(self._service)
        named = fleet.wants.state(name).settings.get("agent_archives", "")
        if ask.identity.role != NODE or digest not in (word.partition("=")[2] for word in named.split(",")):
            raise errors.NotFound(f"{name} is not to run the archive {digest[:12]}", hint="see agentarchives")
        return web.FileResponse(fleet.archives.place(digest), headers={"Content-Type": "application/octet-stream"})

    async def errands(self, ask: Ask) -> web.StreamResponse:
        """What nodes were asked to do once, and what became of it."""
        items = list(fleet_of(self._service).errands.list(ask.names("names")))
        return json(msgspec.json.encode(headapi.ErrandList(items=items)))

    async def ask_errand(self, ask: Ask) -> web.StreamResponse:
        """Ask nodes to do something once."""
        request = await ask.body(_ERRAND)
        demand_errands(ask.identity, self._head.tree, request.nodes)
        errands = fleet_of(self._service).errands
        names = list(dict.fromkeys(request.nodes))
        by = ask.identity.name
        if request.kind in ("imageupdate", "grabimage"):
            imaging, transfer = fleet_of(self._service).imaging, request.transfer or headapi.Transfer()
            items = list(await imaging.ask(names, request.kind, transfer, by=by, lasts_s=request.lasts))
        elif request.transfer is not None:
            raise errors.Invalid(f"{request.kind} takes no transfer", hint="leave it out")
        elif (request.kind == "kubeadm") != (request.kubeadm is not None):
            raise errors.Invalid("kind kubeadm and the field kubeadm belong together", hint="give both, or neither")
        elif request.kubeadm is not None:
            demand(ask.identity, "edit", "kubeadm")
            work = members.work(self._head.tree, names, request.kubeadm)
            items = list(await errands.ask(names, request.kind, by=by, lasts_s=request.lasts, work=work))
        elif (request.kind == "pullimages") != (request.pull is not None):
            raise errors.Invalid("kind pullimages and the field pull belong together", hint="give both, or neither")
        elif request.pull is not None:
            work = {name: {"images": list(request.pull.images)} for name in names}
            logins = [
                Login(server=each.server, username=each.username, password=each.password)
                for each in request.pull.logins
            ]
            items = list(await errands.ask(names, "pullimages", by=by, lasts_s=request.lasts, work=work, logins=logins))
        elif (request.kind == "care") != (request.care is not None):
            raise errors.Invalid("kind care and the field care belong together", hint="give both, or neither")
        elif request.care is not None:
            demand(ask.identity, "edit", "kubeadm")
            cared = care.work(self._head.tree, names, request.care)
            items = list(await errands.ask(names, request.kind, by=by, lasts_s=request.lasts, work=cared))
        else:
            items = list(await errands.ask(names, request.kind, by=by, lasts_s=request.lasts))
        return json(msgspec.json.encode(headapi.ErrandList(items=items)), status=201)

    async def health(self, ask: Ask) -> web.StreamResponse:
        """A node with the history of its checks."""
        name = ask.text("name")
        self._head.tree.get(("device", name))
        return json(msgspec.json.encode(await self._service.health.node_health(name, ask.text("check"))))
