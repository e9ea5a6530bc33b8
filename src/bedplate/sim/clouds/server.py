"""What all simulated clouds share: an HTTP server with tokens, limits, faults, a journal and an admin API.

In: HTTP requests on a port of its own choice. Out: the answers of the routes that a subclass gives. `async with`
starts and stops it; everything runs in the caller's event loop. State moves by the passed clock; the network's own
delays are real.
"""

from __future__ import annotations

import abc
import asyncio
import heapq
import itertools
import random
import ssl
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, TypedDict

from aiohttp import web

from bedplate.core import clock
from bedplate.core.backoff import TokenBucket
from bedplate.core.logging import get_logger
from bedplate.sim.clouds import admin, delivery
from bedplate.sim.clouds.exchange import Entry, Journal, Refused, Reply, Request, Route, Routes
from bedplate.sim.clouds.faults import Fault, Faults, Script
from bedplate.sim.clouds.tokens import Grant, Problem, Tokens

__all__ = ["Agenda", "Change", "Conditions", "Machine", "SimulatedCloud", "Surroundings"]

log = get_logger("simcloud")


class Machine(Protocol):
    """What all clouds say of a machine; each has more."""

    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def state(self) -> str: ...

    @property
    def addresses(self) -> tuple[str, ...]: ...

    @property
    def provider_id(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Change:
    """Something happened to a machine: it was `added`, its state was `changed`, or it was `removed`."""

    what: str
    machine: Machine


@dataclass(slots=True)
class Conditions:
    """How a cloud behaves on a normal day; may be changed while it runs."""

    latency_s: float = 0.0
    jitter_s: float = 0.0
    list_lag_s: float = 0.0
    """Lists show what was true so long ago; views are always right."""
    transition_s: float = 0.0
    """How long a machine or an address takes from one state to the next."""
    rate_limit: tuple[float, int] | None = None
    """Requests a second and at once; (10, 30) is BMM's, off by default there too."""
    token_life_s: float | None = None


class Surroundings(TypedDict, total=False):
    """What every simulated cloud takes, see `SimulatedCloud`: where it listens, and what it is subject to."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    seed: int
    time: clock.Clock | None
    conditions: Conditions | None
    faults: Script | None


class Agenda:
    """What will happen later, by the passed clock: done when the cloud is read, so that no task has to wait for it."""

    def __init__(self, time: clock.Clock) -> None:
        self._time = time
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Do it then; at once when there is nothing to wait for."""
        if seconds <= 0:
            act()
        else:
            heapq.heappush(self._due, (self._time.monotonic() + seconds, next(self._order), act))

    def run(self) -> None:
        """Do what is due."""
        now = self._time.monotonic()
        while self._due and self._due[0][0] <= now:
            heapq.heappop(self._due)[2]()


class SimulatedCloud(abc.ABC):
    """A cloud's HTTP API with state; see the package for what a subclass adds."""

    kind = ""
    token_prefix = ""
    roles: frozenset[str] = frozenset()
    """Those of the usual token."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        seed: int = 0,
        time: clock.Clock | None = None,
        conditions: Conditions | None = None,
        faults: Script | None = None,
    ) -> None:
        self.time = time or clock.SystemClock()
        self.conditions = conditions or Conditions()
        self.rng = random.Random(f"{self.kind}-{seed}")
        self.journal = Journal()
        self.faults = Faults(self.time, faults)
        self.agenda = Agenda(self.time)
        self.tokens = Tokens(self.time, self.rng, prefix=self.token_prefix)
        self.token = self.new_token()
        self.listeners: list[Callable[[Change], None]] = []
        """Called at once when a machine changes, from any source: a test, a schedule, the admin API, the API."""
        self.url = ""
        self._host, self._port, self._tls = host, port, tls
        self._closing = asyncio.Event()
        self._runner: web.ServerRunner | None = None
        self._limit: tuple[tuple[float, int], TokenBucket] | None = None
        self._routes = Routes([*self.routes(), *admin.routes(self)])

    @abc.abstractmethod
    def routes(self) -> list[Route]:
        """The vendor's operations."""

    @abc.abstractmethod
    def refuse(self, refused: Refused, request: Request) -> Reply:
        """An error as this API writes it."""

    @abc.abstractmethod
    def unauthorized(self, problem: Problem) -> Refused:
        """What this API says to a request without a good token."""

    @abc.abstractmethod
    def admit(self, request: Request, grant: Grant) -> None:
        """Raise `Refused` where this API turns the request away for another reason than its token."""

    @abc.abstractmethod
    def add(self, name: str = "") -> Machine:
        """A new machine, running."""

    @abc.abstractmethod
    def get(self, ref: str) -> Machine:
        """The machine of that ID or name; raises `NotFound`."""

    @abc.abstractmethod
    def all(self) -> Sequence[Machine]:
        """Every machine."""

    @abc.abstractmethod
    def stop(self, ref: str) -> Machine:
        """Switch it off."""

    @abc.abstractmethod
    def start(self, ref: str) -> Machine:
        """Switch it on again."""

    @abc.abstractmethod
    def terminate(self, ref: str) -> None:
        """Let it go the way machines go in this cloud: after a while it is gone."""

    @abc.abstractmethod
    def remove(self, ref: str) -> None:
        """Gone at once."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Listen; after a `close` on the same port as before."""
        self._closing.clear()
        # The hang of a fault must end when its client goes away: hence the cancellation.
        server = web.Server(self._serve, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port, ssl_context=self._tls).start()
        self._port = self._runner.addresses[0][1]
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"{'https' if self._tls else 'http'}://{host}:{self._port}"

    async def close(self) -> None:
        """Stop listening and cut every connection; nothing is forgotten. Clients are refused until `open`."""
        self._closing.set()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def new_id(self) -> str:
        """A UUID; the same ones in the same order for the same seed."""
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def new_token(self, roles: Sequence[str] | None = None) -> str:
        """Issue a token; without `roles` with the usual ones, and then it becomes `token`."""
        token = self.tokens.issue(self.roles if roles is None else frozenset(roles), self.conditions.token_life_s)
        if roles is None:
            self.token = token
        return token

    def expire_tokens(self) -> None:
        """From now on revoke every token issued so far (401)."""
        self.tokens.expire()

    def tell(self, what: str, machine: Machine) -> None:
        """Let the listeners know."""
        for listener in list(self.listeners):
            listener(Change(what, machine))

    def now(self) -> str:
        """Wall time as both APIs write it."""
        return clock.rfc3339_micro(self.time.now())

    async def _serve(self, http: web.BaseRequest) -> web.StreamResponse:
        request = Request(http.method, http.rel_url.raw_path, http.query, http.headers, request_id=str(uuid.uuid4()))
        route = self._routes.find(request.method, request.path)
        if route is not None:
            request.operation, request.params = route[0].operation, route[1]
        request.body = await http.read()
        if request.path.startswith(admin.ROOT):
            return await delivery.send(http, self._answer(request, route[0] if route else None), None)
        return await self._serve_api(http, request, route[0] if route else None)

    async def _serve_api(self, http: web.BaseRequest, request: Request, route: Route | None) -> web.StreamResponse:
        faults = self.faults.of(request)
        last = faults[-1] if faults else None
        status, name = 0, "+".join(fault.kind for fault in faults)
        try:
            if self.conditions.latency_s or self.conditions.jitter_s:
                await asyncio.sleep(self.conditions.latency_s + self.rng.random() * self.conditions.jitter_s)
            await delivery.prepare(request, faults, self.rng)
            reply = await self._befall(http, request, route, last) if last is not None else None
            if reply is None:
                reply = self._answer(request, route)
            status = reply.status
            return await delivery.send(http, reply, last)
        except delivery.Cut:
            return web.Response()
        finally:
            at = self.time.monotonic()
            self.journal.add(Entry(at, request.operation or "?", request.method, request.path, status, name))

    async def _befall(self, http: web.BaseRequest, request: Request, route: Route | None, fault: Fault) -> Reply | None:
        """Cut the connection, or give the fault's answer; None: the cloud's own is wanted."""
        if fault.is_done:
            self._answer(request, route)
        if fault.kind == "reset":
            delivery.reset(http)
        if fault.kind == "timeout":
            await delivery.hang(http, fault, self._closing)
        return delivery.replace(fault, self.refuse, request)

    def _answer(self, request: Request, route: Route | None) -> Reply:
        self.agenda.run()
        try:
            if request.path.startswith(admin.ROOT):
                if route is None:
                    raise Refused(404, f"not found; {admin.ROOT} lists the paths")
                return route.handler(request)
            self._check_rate()
            if route is None:
                raise Refused(404, "", code="method" if self._routes.knows(request.path) else "route")
            if route.needs_token:
                grant = self.tokens.check(request.headers.get("Authorization"))
                if isinstance(grant, Problem):
                    raise self.unauthorized(grant)
                self.admit(request, grant)
            return route.handler(request)
        except Refused as refused:
            reply = self.refuse(refused, request)
            wait_s = refused.retry_after_s
            return reply if wait_s is None else reply.with_headers({"Retry-After": str(wait_s)})
        except Exception:
            log.exception("simcloud.bug", path=request.path)
            return self.refuse(Refused(500, "Internal error"), request)

    def _check_rate(self) -> None:
        limit = self.conditions.rate_limit
        if limit is None:
            self._limit = None
            return
        if self._limit is None or self._limit[0] != limit:
            self._limit = limit, TokenBucket(*limit, self.time)
        bucket = self._limit[1]
        if wait_s := bucket.reserve():
            bucket.give_back()
            message = "Request rate limit exceeded, please re-evaluate your request patterns"
            raise Refused(429, message, retry_after_s=max(1, round(wait_s)))
