"""The embedded API server put together: data directory, certificates, store, registry, verbs, controllers, socket.

In: `Options`. Out: a running server, as an async context manager. Opening it takes the data directory (or connects to
etcd), loads the state, creates what a fresh cluster contains and then listens; leaving it ends watches, answers what
is in work, and closes the store.
"""

from __future__ import annotations

import asyncio
import collections
import errno
import itertools
import pathlib
import random
import ssl
import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass

from bedplate.apiserver import (
    behaviours,
    bootstrap,
    certificates,
    controllers,
    facts,
    hooks,
    kinds,
    loopback,
    services,
    sharing,
)
from bedplate.apiserver.access import identity, rbac, tokens
from bedplate.apiserver.crds import definitions
from bedplate.apiserver.documents import pages
from bedplate.apiserver.pipeline import dispatch, handler
from bedplate.apiserver.protobuf import decoding, encoding
from bedplate.apiserver.shape import rules
from bedplate.apiserver.state import registry, watchers
from bedplate.apiserver.webhooks import admission, calls
from bedplate.core import clock as clocks
from bedplate.core import errors, extras, folders, logging
from bedplate.core.tasks import TaskGroup
from bedplate.serving import http
from bedplate.serving.files import write_private
from bedplate.store import interface

__all__ = ["ApiServer", "EtcdSettings", "Options"]

log = logging.get_logger("apiserver")

_HISTORY_STEPS = 10
_STOP_GRACE_S = 5.0
_HANDSHAKE_S = 20.0


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """How to reach an etcd; files are empty for plain HTTP."""

    endpoints: tuple[str, ...]
    prefix: str = "/bedplate"
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""


@dataclass(frozen=True, slots=True)
class Options:
    """What a server is started with. Port 0 takes a free one; without `etcd` the state is in the data directory."""

    data: pathlib.Path
    port: int = 0
    bind_address: str = "127.0.0.1"
    kubeconfig_out: pathlib.Path | None = None
    history_s: float = 300.0
    kubernetes: str = facts.DEFAULT_VERSION
    etcd: EtcdSettings | None = None
    texts: pathlib.Path | None = None
    """Folder with a real server's OpenAPI documents, for the texts of `kubectl explain`."""


class ApiServer:
    """A running API server: `async with ApiServer(options) as server`."""

    def __init__(self, options: Options, clock: clocks.Clock | None = None) -> None:
        self.options = options
        self.clock = clock or clocks.SystemClock()
        self.services: services.Services
        self.pki: certificates.Pki
        self.url = ""
        self._stack = AsyncExitStack()
        self._connections = http.Connections()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def kubeconfig(self) -> bytes:
        """The administrator's kubeconfig."""
        return certificates.kubeconfig(self.pki, self.url)

    async def __aenter__(self) -> ApiServer:
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stop()

    async def _start(self) -> None:
        options = self.options
        table = facts.load(options.kubernetes)
        self._prepare_folder()
        names = certificates.serving_names(options.bind_address)
        store = await self._stack.enter_async_context(self._store())
        if options.etcd is not None:
            await sharing.share_keys(store, options.data / "pki", lambda: self._keys(names))
        signer = self._keys(names)
        state = registry.Registry(store, is_shared=options.etcd is not None)
        group = await self._stack.enter_async_context(TaskGroup())
        # Left in reverse order: connections are closed first, then tasks end, then the store closes.
        self._stack.callback(lambda: [task.cancel() for task in self._tasks])
        parts = self.services = self._wire(table, state, signer)
        await state.load()
        self._tasks.append(group.create_task(state.run()))
        await state.freshen_all()
        hub = watchers.Watchers(state)
        server = await self._listen()
        port = server.sockets[0].getsockname()[1]
        await bootstrap.ensure(parts, options.kubernetes, port)
        host = "127.0.0.1" if options.bind_address in ("", "0.0.0.0", "::") else options.bind_address
        self.url = f"https://{f'[{host}]' if ':' in host else host}:{port}"
        counts = pages.RequestCounts(parts.kinds)
        site = pages.Pages(parts.kinds, table, state, hub, counts, address=f"{host}:{port}", texts=options.texts)
        dispatcher = dispatch.Dispatcher(parts, hub, decoding.Decoder(table), encoding.Encoder(table), site)
        self._application = handler.Pipeline(parts, dispatcher, counts)
        await server.start_serving()
        self._tasks.append(group.create_task(self._connections.run()))
        self._tasks.append(group.create_task(self._forget(state)))
        self._tasks.append(group.create_task(sharing.while_leading(parts, lambda: self._control(signer))))
        if options.kubeconfig_out is not None:
            write_private(options.kubeconfig_out, self.kubeconfig)
        log.info("apiserver.ready", url=self.url, objects=sum(state.sizes().values()))

    def _keys(self, names: list[str]) -> tokens.Signer:
        """Certificates and the key of tokens, made where they are missing."""
        folder = self.options.data / "pki"
        self.pki = certificates.ensure(folder, names, self.clock)
        return tokens.Signer.open(folder / "service-accounts.key", self.clock)

    async def _control(self, signer: tokens.Signer) -> None:
        async with TaskGroup() as group:
            group.create_task(controllers.run(self.services, signer, self.pki.text("ca.crt")))
            group.create_task(definitions.run(self.services))

    def _prepare_folder(self) -> None:
        folders.check_trusted(self.options.data, "choose another directory with --data")
        try:
            self.options.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as err:
            hint = "choose a directory this user can write, with --data"
            raise errors.Invalid(f"cannot use {self.options.data}: {err.strerror}", hint=hint) from err

    def _store(self) -> interface.Store:
        etcd = self.options.etcd
        if etcd is not None:
            extras.require("--store etcd", "etcd")
            from bedplate.store.etcd import EtcdOptions, EtcdStore

            settings = EtcdOptions(
                etcd.endpoints,
                prefix=etcd.prefix,
                ca_file=etcd.ca_file,
                cert_file=etcd.cert_file,
                key_file=etcd.key_file,
            )
            return EtcdStore(settings, clock=self.clock)
        from bedplate.store.sqlite import SqliteStore

        return SqliteStore(self.options.data / "state.db", history_s=None, clock=self.clock)

    def _wire(self, table: facts.Facts, state: registry.Registry, signer: tokens.Signer) -> services.Services:
        live = kinds.Kinds(table.resources())
        rng = random.Random()

        def lookup(group: str, resource: str, namespace: str, name: str) -> hooks.Object | None:
            return parts.client.get(group, resource, namespace, name)

        shapes = rules.ShapeRules()
        hooked = admission.WebhookAdmission(calls.Caller(calls.endpoint_resolver(lookup)))
        self._stack.push_async_callback(hooked.close)
        identities = identity.Identities(signer, lookup)
        authorizer = rbac.RoleAuthorizer(lambda group, resource: parts.client.list(group, resource))
        parts = services.Services(
            kinds=live,
            registry=state,
            clock=self.clock,
            rules=shapes,
            admission=hooked,
            authenticator=identities,
            authorizer=authorizer,
            behaviours=behaviours.built_in(identities, authorizer, signer, rng),
            version=self.options.kubernetes,
        )
        parts.client = loopback.Client(parts)
        parts.behaviours[definitions.GROUP, definitions.RESOURCE] = definitions.DefinitionBehaviour(live, shapes.custom)
        parts.behaviours |= hooked.behaviours()
        for kind, behaviour in parts.behaviours.items():
            if type(behaviour).after_commit is not hooks.Behaviour.after_commit:
                state.subscribe(kind, behaviour.after_commit)
        return parts

    async def _listen(self) -> asyncio.Server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.pki.path("server.crt"), self.pki.path("server.key"))
        context.load_verify_locations(self.pki.path("ca.crt"))
        context.verify_mode = ssl.CERT_OPTIONAL
        context.set_alpn_protocols(["http/1.1"])
        loop = asyncio.get_running_loop()
        options = self.options
        try:
            server = await loop.create_server(
                lambda: http.Connection(self._application, self._connections, signature=_audit_id),
                options.bind_address or None,
                options.port,
                ssl=context,
                backlog=1024,
                ssl_handshake_timeout=_HANDSHAKE_S,
                start_serving=False,
            )
        except OSError as err:
            raise _cannot_listen(err, options) from err
        self._stack.push_async_callback(self._close, server)
        return server

    async def _forget(self, state: registry.Registry) -> None:
        """Forget revisions older than `history_s`."""
        seen: collections.deque[tuple[float, int]] = collections.deque()
        history_s = self.options.history_s
        while True:
            now = self.clock.monotonic()
            seen.append((now, state.revision))
            reached = 0
            while seen and seen[0][0] <= now - history_s:
                reached = seen.popleft()[1]
            if reached > state.oldest:
                try:
                    await state.compact(reached)
                except errors.BedplateError as err:
                    # A full disk, an etcd that is away: what is not forgotten now is forgotten next time.
                    log.warning("apiserver.history_kept", reason=str(err))
            await self.clock.sleep(max(0.1, min(history_s / _HISTORY_STEPS, 30.0)))

    async def _close(self, server: asyncio.Server) -> None:
        server.close()
        await self._connections.close(_STOP_GRACE_S)

    async def _stop(self) -> None:
        for task in self._tasks[1:]:
            task.cancel()
        await self._stack.aclose()


def _cannot_listen(err: OSError, options: Options) -> errors.Invalid:
    where = f"{options.bind_address}:{options.port}"
    if err.errno == errno.EADDRINUSE:
        return errors.Invalid(f"port {options.port} is in use", hint="choose another with --port, or 0 for a free one")
    if err.errno in (errno.EACCES, errno.EPERM):
        return errors.Invalid(f"this user may not listen on {where}", hint="choose a port above 1023 with --port")
    return errors.Invalid(f"cannot listen on {where}: {err.strerror or err}", hint="check --bind-address")


def _audit_id() -> bytes:
    """Unique per request, and cheap: the process's random part and a number."""
    return b"Audit-Id: %b-%012x\r\n" % (_AUDIT_PREFIX, next(_audit_numbers))


_AUDIT_PREFIX = str(uuid.uuid4())[:23].encode()
_audit_numbers = itertools.count(1)
