"""The head's daemon: REST API and page over TLS, on the folder's own store or on an etcd that several heads share.

In: a data folder, where to listen, which store, and what makes an application of a `Service` (`ui.web.serve`). Out: a
served head until it is cancelled; then requests end first, the active head's place is given back, and the store is
closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry

from bedplate.api.headapi import Certificate
from bedplate.api.images import IMAGES
from bedplate.core import errors, memory
from bedplate.core.backoff import Backoff
from bedplate.core.clock import Clock, SystemClock
from bedplate.core.logging import get_logger
from bedplate.core.tasks import TaskGroup
from bedplate.head import metrics
from bedplate.head.access import Access
from bedplate.head.agentarchives import ARCHIVES, Archives
from bedplate.head.clusters.service import Clusters
from bedplate.head.election import Candidate, Election, Timing
from bedplate.head.entities import SCHEMA
from bedplate.head.errands import Controller
from bedplate.head.explain import Renderer
from bedplate.head.fleet import Fleet
from bedplate.head.folder import administrator, creation, pki, transfer
from bedplate.head.folder.datafolder import DATABASE, Etcd, Folder, require_tree
from bedplate.head.folder.sitekeys import AUTHORITY, SiteKeys
from bedplate.head.health import SILENCE_S, Health
from bedplate.head.images.serving import Transfers
from bedplate.head.images.trees import Trees
from bedplate.head.intake import NOTICES, REPORTS, Intake, Rate
from bedplate.head.kubenodes import KubeNodes
from bedplate.head.notices import Notices, keep_up
from bedplate.head.records import OBJECTS
from bedplate.head.render import RENDERERS
from bedplate.head.revocations import REVOKED
from bedplate.head.room import Room
from bedplate.head.service import Alone, Head, NotActive, Standing
from bedplate.head.setups import MakeSetups, Setups
from bedplate.head.signins import Failures
from bedplate.head.site import ADMIN
from bedplate.head.sittings import Sittings
from bedplate.head.tokens import Tokens
from bedplate.head.twins import Twins
from bedplate.serving.certificates import Reloader
from bedplate.serving.health import Checks
from bedplate.store.interface import Store
from bedplate.store.open import open_store

__all__ = ["PORT", "Application", "Daemon", "Limits", "Options", "Service"]

PORT = 8081
_LOG = get_logger("head.serve")
_LOOK_AT_CERTIFICATES_S = 3600.0
_LONGEST_WAIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Options:
    """`etcd` is None for the folder's own store; `port` 0 takes a free one; `advertise` is the URL others use.

    `takeover_s`: after so much silence of the active head another one takes its place; the same for all heads.
    `images` is the folder of the trees of software images, `transfers` how many of them are copied at once. A node that
    has not reported for `silence_s` is down."""

    bind: str = "127.0.0.1"
    port: int = PORT
    advertise: str = ""
    etcd: Etcd | None = None
    takeover_s: float = Timing().lease_s
    images: str = IMAGES
    transfers: int = 10
    silence_s: float = SILENCE_S


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may ask of the daemon."""

    login_bytes: int = 16 << 10
    form_bytes: int = 1 << 20
    body_bytes: int = 4 << 20
    """Room for the largest object (`Schema.largest_bytes`), however its letters are escaped."""
    import_bytes: int = 64 << 20
    body_s: float = 30.0
    """How long a body may take to arrive; a large one (`import_bytes`) ten times as long."""
    slowed_s: float = 8.0
    """How long the answer to a failed sign-in is delayed at most."""
    connections: int = 1024
    """How many connections one address may have; this machine may have any number."""
    reports: Rate = REPORTS
    notices: Rate = NOTICES
    heartbeat_s: float = 15.0
    stall_s: float = 30.0
    """How long a reader of events may take none before it is dropped."""
    backlog: int = 4096
    """How many events a reader may be behind before it is dropped; fewer when they are large (`backlog_bytes`)."""
    backlog_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class Service:
    """The head with what is kept beside its tree, and how it is served."""

    head: Head
    access: Access
    notices: Notices
    health: Health
    name: str = "head"
    renderers: Sequence[Renderer] = ()
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    clock: Clock = field(default_factory=SystemClock)
    live: Checks = field(default_factory=lambda: Checks("livez"))
    ready: Checks = field(default_factory=lambda: Checks("readyz"))
    limits: Limits = Limits()
    sittings: Sittings | None = None
    """Where logins of the page are kept; None: in memory."""
    keys: SiteKeys | None = None
    """The keys of the site; None where there is no data folder."""
    renew: Callable[[], Awaitable[None]] | None = None
    """Issues the administrator's certificate in the data folder again, should it no longer count."""
    fleet: Fleet | None = None
    """What is kept for nodes; None where there is no data folder."""
    clusters: Clusters | None = None
    """What is kept for Kubernetes clusters; None where there is no data folder."""
    setups: Setups | None = None
    """The setup tool; None where nobody gave the daemon one."""
    failures: Failures = field(init=False)
    intake: Intake = field(init=False)
    twins: Twins = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "intake", Intake(self.clock, self.limits.reports, self.limits.notices))
        object.__setattr__(self, "twins", Twins(self.clock))
        object.__setattr__(
            self, "failures", Failures(self.notices, self.name, self.clock, longest_s=self.limits.slowed_s)
        )

    def certificates(self) -> list[Certificate]:
        """All that are known: those of the site and of administrators of clusters, those that users and nodes have
        used, the newest of each node that was enrolled; those that end first before the others."""
        own = self.keys.certificates() if self.keys is not None else []
        own = [*own, *(self.clusters.certificates() if self.clusters is not None else [])]
        issued = self.fleet.enrolments.certificates.items().values() if self.fleet is not None else ()
        return self.access.certificates((*own, *issued))


Application = Callable[[Service], web.AppRunner]
"""Makes what is served of a head: its REST API and its page."""


class Daemon:
    """One head over one folder. `run` serves until cancelled; `started` is set once it answers, at `url`."""

    def __init__(
        self,
        folder: Folder,
        options: Options,
        application: Application,
        *,
        clock: Clock | None = None,
        controller: Controller | None = None,
        setups: MakeSetups | None = None,
    ) -> None:
        self.folder = folder
        self.options = options
        self._application = application
        self._controller = controller
        self._setups = setups
        self.url = ""
        self.local_url = ""
        self.started = asyncio.Event()
        self.standing: Standing | None = None
        self.revision: Callable[[], int] = lambda: 0
        self._clock = clock or SystemClock()
        self._settings = folder.settings
        self._tls: Reloader | None = None
        self._trust = pki.Trust(folder.file("ca.crt"))
        self._renewing = asyncio.Lock()

    async def run(self) -> None:
        """Serve until cancelled."""
        is_shared = self.options.etcd is not None
        self._refuse_other_store()
        with self.folder.lock(is_shared=is_shared):
            creation.tidy(self.folder.path)
            self._settings = msgspec.structs.replace(self._settings, etcd=self.options.etcd)
            vault = self.folder.vault()
            async with open_store(self.folder.options_of(self.options.etcd), clock=self._clock) as store:
                if is_shared:
                    await self._claim(store)
                keys = SiteKeys(self.folder, store, vault, self._clock, self._rekey)
                await keys.load()
                self._tls = self._certificates()
                async with (
                    Head(store, SCHEMA, vault, clock=self._clock) as head,
                    Notices(store, clock=self._clock) as notices,
                    Health(store, clock=self._clock, silence_s=self.options.silence_s) as health,
                ):
                    require_tree(head, self.folder.path)
                    self.revision = lambda: head.revision
                    await self._serve(_Parts(store, head, notices, health, keys, Sittings(store, vault)), self._tls)

    async def _claim(self, store: Store) -> None:
        """Make the etcd this folder's store: remembered before anything is written there, and from then on the only
        one, whatever the folder held before."""
        database = self.folder.file(DATABASE)
        own = transfer.Site.of(self.folder, self._settings.name)
        there = database if _is_there(database) else None
        await transfer.claim(store, own, there, lambda: self.folder.remember(self._settings), self._clock)
        self.folder.retire_database()

    async def _serve(self, parts: _Parts, tls: Reloader) -> None:
        tokens = Tokens(parts.store, clock=self._clock)
        await tokens.open()
        listening = _listen(self.options.bind, self.options.port)
        self._name_addresses(listening.getsockname()[1])
        standing, election = self._stand(parts.store)
        self.standing = parts.head.standing = standing
        access = Access(lambda: parts.head.tree, tokens, self._trust)
        self._warn(access)
        transfers = Transfers(Trees(self.options.images, clock=self._clock), most=self.options.transfers)
        fleet = Fleet(
            parts.store,
            parts.head,
            tokens,
            parts.notices,
            parts.health,
            parts.keys,
            transfers=transfers,
            archives=Archives(self.folder.file(ARCHIVES)),
            clock=self._clock,
        )
        fleet.errands.controller = self._controller
        await fleet.open()
        nodes = KubeNodes(parts.head, fleet.wants, self.folder.path, clock=self._clock)
        fleet.rollouts.listeners.append(nodes.rouse)
        fleet.members.listeners.append(nodes.rouse)
        clusters = Clusters(
            parts.store,
            parts.head,
            parts.notices,
            parts.health,
            self.folder.path,
            fleet=fleet,
            clock=self._clock,
        )
        await clusters.open()
        room = Room(parts.head, parts.notices, self._settings.name, clock=self._clock)
        runner = self._application(self._service(parts, access, standing, fleet, clusters))
        async with TaskGroup() as tasks:
            background = [
                tasks.create_task(_persistently("tokens", tokens.run, self._clock)),
                *(
                    tasks.create_task(_persistently("authority", partial(self._look, parts, tokens, at), self._clock))
                    for at in (AUTHORITY, REVOKED, f"{OBJECTS}user/")
                ),
                tasks.create_task(_persistently("fleet", fleet.run, self._clock)),
                tasks.create_task(_persistently("kubernetes", nodes.run, self._clock)),
                tasks.create_task(_persistently("clusters", clusters.run, self._clock)),
                tasks.create_task(_persistently("room", room.run, self._clock)),
                tasks.create_task(_persistently("attention", parts.health.attention.run, self._clock)),
            ]
            if election is not None:
                background.append(tasks.create_task(election.run()))
                for name, follow in (
                    ("head", parts.head.follow),
                    ("notices", parts.notices.follow),
                    ("health", parts.health.follow),
                    ("nodes", fleet.follow),
                    ("applications", clusters.follow),
                ):
                    background.append(tasks.create_task(_persistently(name, follow, self._clock)))
                await election.decided.wait()
            try:
                await runner.setup()
                await web.SockSite(runner, listening, ssl_context=tls.context).start()
                memory.keep()
                await self._announce(parts, tokens, tls)
            finally:
                # Event streams are closed first; then the leader's place is given up.
                await runner.cleanup()
                await _quietly(tokens.note())
                _LOG.info("head.stopped", url=self.url, revision=parts.head.revision)
                for task in background:
                    task.cancel()

    def _warn(self, access: Access) -> None:
        """Report what an administrator should repair, although the head works."""
        for sentence in self.folder.loose_files():
            _LOG.warning("head.loose_mode", file=sentence)
        for user in access.weak_tokens():
            _LOG.warning(
                "head.weak_token",
                user=user,
                why="the token in the user's object has less than 128 random bits and is not taken",
                next=f"bedplate head token create {user}",
            )

    async def _announce(self, parts: _Parts, tokens: Tokens, tls: Reloader) -> None:
        """Say where the head serves; then keep the certificates fresh until cancelled."""
        await self._renew_administrator(parts, tokens)
        self.folder.announce(self.local_url)
        remembered = msgspec.structs.replace(
            self._settings, url=self.url, port=self.options.port or self._settings.port
        )
        self.folder.remember(remembered)
        _LOG.info("head.serving", url=self.url, name=self._settings.name, revision=self.revision())
        self.started.set()
        while True:
            await self._clock.sleep(_LOOK_AT_CERTIFICATES_S)
            self._renew()
            tls.check()
            await self._renew_administrator(parts, tokens)

    def _service(self, parts: _Parts, access: Access, standing: Standing, fleet: Fleet, clusters: Clusters) -> Service:
        registry = CollectorRegistry()
        metrics.watch(registry, parts.head, parts.health, standing, self.folder.path)
        ready = Checks("readyz")
        ready.add("store", parts.store.check)
        return Service(
            parts.head,
            access,
            parts.notices,
            parts.health,
            name=self._settings.name,
            renderers=RENDERERS,
            registry=registry,
            clock=self._clock,
            ready=ready,
            sittings=parts.sittings,
            keys=parts.keys,
            renew=partial(self._renew_administrator, parts, access.tokens),
            fleet=fleet,
            clusters=clusters,
            setups=self._setups(parts.head, self.folder.path, self._settings.name) if self._setups else None,
        )

    def _stand(self, store: Store) -> tuple[Standing, Election | None]:
        name = self._settings.name
        if self.options.etcd is None:
            return Alone(name, self.url), None
        own, timing = Candidate(f"{name}_{uuid.uuid4()}", name, self.url), Timing.of(self.options.takeover_s)
        election = Election(store, own, timing=timing, clock=self._clock)
        return election, election

    # Addresses and certificates

    def _name_addresses(self, port: int) -> None:
        bind = self.options.bind
        local = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(bind, bind)
        self.local_url = f"https://{_bracketed(local)}:{port}"
        self.url = self.options.advertise.rstrip("/") or self.local_url
        if not self.options.advertise and local != bind:
            outward = pki.outward_addresses()
            self.url = f"https://{_bracketed(outward[0])}:{port}" if outward else self.local_url

    def _certificates(self) -> Reloader:
        self._renew()
        file = self.folder.file
        return Reloader(file("server.crt"), file("server.key"), client_ca=file("ca.crt"))

    def _rekey(self) -> None:
        """The authority was replaced: serve with what it has issued, and trust what it vouches for."""
        self._trust.forget()
        if self._tls is not None:
            self._renew()
            self._tls.check()

    def _renew(self) -> None:
        """Renew the serving certificate where it is about to expire, lacks a name, or is another authority's."""
        more = [self._settings.name, self.options.bind, urlsplit(self.options.advertise).hostname or ""]
        hosts, now, file = pki.host_names(*more), self._clock.now(), self.folder.file
        folder, ca = self.folder.path, file("ca.crt")
        if pki.lacks(file("server.crt"), hosts, now) or not pki.is_issued_by(file("server.crt"), ca):
            pki.Authority.load(folder).server(hosts, self._settings.name, now).write(folder, "server")
            _LOG.info("head.certificate_renewed", file="server.crt", names=hosts)

    async def _look(self, parts: _Parts, tokens: Tokens, at: str) -> None:
        """Follow what other heads make of the authority, of revocations and of users; runs until cancelled."""

        async def look() -> None:
            await parts.keys.load()
            await tokens.revocations.open()
            await parts.head.catch_up()
            await self._renew_administrator(parts, tokens)

        await keep_up(parts.store, at, look)

    async def _renew_administrator(self, parts: _Parts, tokens: Tokens) -> None:
        async with self._renewing:
            try:
                is_new = await administrator.renew(self.folder.path, parts.head, tokens, parts.keys, self._clock)
            except NotActive:
                return  # the active head does it, and this one takes it from the store
            except errors.BedplateError as err:
                _LOG.warning("head.certificate_not_renewed", file=f"{ADMIN}.crt", error=str(err), next=err.hint)
                return
        if is_new:
            _LOG.info("head.certificate_renewed", file=f"{ADMIN}.crt")

    def _refuse_other_store(self) -> None:
        if self._settings.etcd is not None and self.options.etcd is None:
            raise errors.Invalid(
                f"the tree of {self.folder.path} is kept in an etcd; the content of the folder is outdated",
                hint="serve it with --store etcd, or restore a backup into another folder",
            )
        if self.options.etcd is None and not _is_there(self.folder.file(DATABASE)):
            raise errors.Invalid(
                f"{self.folder.path} holds no tree: there is no {DATABASE} in it",
                hint=f"put {DATABASE} back, or restore a backup into another folder; a folder that joined a site is "
                "served with --store etcd --etcd-endpoints ...",
            )


@dataclass(frozen=True, slots=True)
class _Parts:
    store: Store
    head: Head
    notices: Notices
    health: Health
    keys: SiteKeys
    sittings: Sittings


async def _persistently(name: str, work: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Do it until cancelled, again and again where the store was away."""
    backoff = Backoff(first_s=0.5, cap_s=_LONGEST_WAIT_S)
    while True:
        started = clock.monotonic()
        try:
            await work()
        except* errors.Retryable as group:
            if clock.monotonic() - started > _LONGEST_WAIT_S:
                backoff.reset()
            wait_s = backoff.next()
            _LOG.warning("head.store_away", work=name, error=str(group.exceptions[0]), retry_in_s=round(wait_s, 1))
            await clock.sleep(wait_s)


async def _quietly(work: Awaitable[None]) -> None:
    with contextlib.suppress(errors.BedplateError, TimeoutError):
        async with asyncio.timeout(1.0):
            await work


def _listen(bind: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        server = socket.create_server((bind, port), family=family, backlog=1024, reuse_port=False)
    except OSError as err:
        raise errors.Invalid(
            f"cannot listen on {bind}:{port}: {err.strerror}",
            hint="choose another --port or --bind; 0 chooses a free port",
        ) from err
    server.setblocking(False)
    return server


def _bracketed(host: str) -> str:
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    except ValueError:
        return host


def _is_there(path: Path) -> bool:
    return path.exists()
