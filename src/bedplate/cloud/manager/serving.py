"""The HTTPS port of the manager: health, metrics, configuration, debugging.

In: checks, registries, options, who may ask (`RequestGate`). Out: answers. It is open before leader election begins,
and says of the cloud only what `/readyz` must: a cloud that is down never makes the process look dead. `prepare` makes
it of options and clients, with the tasks that keep it up to date. `/configz` shows nothing secret: no flag takes a
secret (tokens stand in files and in the environment), and addresses lose what may stand before an `@`.

    /healthz, /livez      ping, leaderElection, one check per started controller     everybody
    /readyz               caches filled; while leading: credentials verified         everybody
    /metrics, /metrics/slis, /configz, /debug/flags/v, /debug/pprof/*                whom the API server authorises
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from bedplate.cloud.manager import access, connection, profiling
from bedplate.cloud.manager.access import Caller, DelegatedGate, Keep, RequestGate
from bedplate.cloud.manager.certificates import ServingCertificates
from bedplate.cloud.manager.metrics import HealthMetrics
from bedplate.cloud.manager.options import GROUPS, Options
from bedplate.core import clock, errors, flags, logging
from bedplate.core.metrics import shared
from bedplate.kube.client import Client
from bedplate.program import endpoints
from bedplate.program.clients import Clients
from bedplate.program.options import redacted
from bedplate.serving import routes
from bedplate.serving.health import Check, Checks
from bedplate.serving.http import Request, Response
from bedplate.serving.routes import Listener, Routes

__all__ = ["KEY", "ManagerServer", "Port", "configz", "prepare"]

log = logging.get_logger("cloud.serving")
KEY = "cloudcontrollermanager.config.k8s.io"
_RELOAD_PERIOD_S = 30.0
_STOP_S = 1.0


@dataclass(slots=True)
class ManagerServer:
    """Open with `async with`; `port` then says where. `maintain` keeps the certificates fresh."""

    options: Options
    registry: CollectorRegistry
    gate: RequestGate
    certificates: ServingCertificates
    port: int = 0
    contention: profiling.Contention | None = None
    live: Checks = field(init=False)
    ready: Checks = field(init=False)
    _slis: CollectorRegistry = field(default_factory=CollectorRegistry)
    _listener: Listener | None = None

    def __post_init__(self) -> None:
        self.live, self.ready = Checks("healthz"), Checks("readyz")
        self.add_live("ping", lambda: None)
        self.add_ready("ping", lambda: None)

    def add_live(self, name: str, check: Check) -> None:
        """Let `/healthz` and `/livez` depend on this."""
        self.live.add(name, shared(self._slis, HealthMetrics).observed("healthz", name, check))

    def add_ready(self, name: str, check: Check) -> None:
        """Let `/readyz` depend on this."""
        self.ready.add(name, shared(self._slis, HealthMetrics).observed("readyz", name, check))

    async def __aenter__(self) -> ManagerServer:
        serving = self.options.secure_serving
        served = self._routes()

        async def answer(request: Request) -> Response:
            return await self._refusal(request) or await served.answer(request)

        self._listener = Listener(answer)
        try:
            await self._listener.open(
                serving.bind_address,
                serving.secure_port,
                self.certificates.context,
                reuse_port=serving.permit_port_sharing,
            )
        except OSError as err:
            raise errors.Invalid(
                f"cannot listen on {serving.bind_address}:{serving.secure_port}: {err.strerror}",
                hint="choose another --secure-port, or 0 for none",
            ) from err
        self.port = self._listener.port
        log.info("serving.started", address=f"{serving.bind_address}:{self.port}")
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._listener is not None:
            await self._listener.close(_STOP_S)
            self._listener = None

    async def maintain(self) -> None:
        """Load changed certificates until cancelled."""
        while True:
            await asyncio.sleep(_RELOAD_PERIOD_S)
            self.certificates.check()

    def _routes(self) -> Routes:
        served = Routes()
        for name, checks in (("healthz", self.live), ("livez", self.live), ("readyz", self.ready)):
            endpoints.add_health(served, name, checks)
        served.add("GET", "/metrics", endpoints.metrics_handler(self.registry))
        served.add("GET", "/metrics/slis", endpoints.metrics_handler(self._slis))
        served.add("GET", "/configz", self._configz)
        served.add("GET", "/debug/flags/v", _verbosity)
        served.add("PUT", "/debug/flags/v", _set_verbosity)
        if self.options.debugging.profiling:
            served.add("GET", "/debug/pprof/", self._index)
            served.get_below("/debug/pprof/", self._profile)
        return served

    async def _refusal(self, request: Request) -> Response | None:
        """Why a caller gets nothing; None when it may ask."""
        if _is_allowed(request.path, self.options.authorization.authorization_always_allow_paths):
            return None
        access = await self.gate.admit(request.method.lower(), request.path, _caller(request))
        return routes.text(access.status, access.reason + "\n") if access.status != 200 else None

    async def _configz(self, request: Request) -> Response:
        return Response(200, json.dumps(configz(self.options)).encode())

    async def _index(self, request: Request) -> Response:
        lines = [f"/debug/pprof/{name}\n    {text}" for name, text in profiling.PROFILES.items()]
        return routes.text(200, "\n".join(lines) + "\n")

    async def _profile(self, request: Request, profile: str) -> Response:
        match profile:
            case "cmdline":
                return routes.text(200, "\x00".join(sys.argv))
            case "goroutine":
                return routes.text(200, profiling.tasks() + "\n" + profiling.threads())
            case "threadcreate":
                return routes.text(200, profiling.threads())
            case "heap" | "allocs":
                return routes.text(200, profiling.heap())
            case "profile":
                try:
                    seconds = float(request.query.get("seconds", "30"))
                except ValueError:
                    return routes.text(400, "seconds must be a number\n")
                return routes.text(200, await profiling.sample(seconds))
            case "block" | "mutex" if self.contention is not None:
                return routes.text(200, self.contention.report())
        return routes.text(404, "no such profile; /debug/pprof/ lists them\n")


def _is_allowed(path: str, always: Sequence[str]) -> bool:
    return any(path == pattern or (pattern.endswith("*") and path.startswith(pattern[:-1])) for pattern in always)


def _caller(request: Request) -> Caller:
    scheme, _, token = request.header(b"authorization").strip().partition(" ")
    connection = request.connection.transport.get_extra_info("ssl_object")
    headers: dict[str, list[str]] = {}
    for key, value in request.all_headers():
        headers.setdefault(key, []).append(value)
    return Caller(
        token.strip() if scheme.lower() == "bearer" else "",
        (connection.getpeercert(True) or b"") if connection is not None else b"",
        headers,
    )


async def _verbosity(request: Request) -> Response:
    return routes.text(200, f"{logging.verbosity()}\n")


async def _set_verbosity(request: Request) -> Response:
    text = request.body.decode("utf-8", "replace").strip()
    if not text.isdigit():
        return routes.text(400, f"error: {text[:40]!r} is not a log level\n")
    logging.set_verbosity(int(text))
    log.info("logging.verbosity", v=int(text))
    return routes.text(200, f"successfully set klog.logging.verbosity to {int(text)}\n")


def configz(options: Options) -> dict[str, Any]:
    """The configuration by group, in the words of Kubernetes' configuration files (durations as text)."""
    groups: dict[str, Any] = {}
    for group in GROUPS:
        chosen = getattr(options, group.field)
        groups[_camel(group.field)] = {
            _camel(flag.field): _value(flag, getattr(chosen, flag.field))
            for flag in flags.flags_of(group.kind)
            if flag.name not in ("help", "version")
        }
    return {KEY: groups}


def _value(flag: flags.Flag, value: Any) -> Any:
    if flag.kind == "duration":
        return flags.render(flag, value)
    return [redacted(part) for part in value] if isinstance(value, tuple) else redacted(value)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


@dataclass(frozen=True, slots=True)
class Port:
    """A server that is not open yet, and what runs beside it."""

    server: ManagerServer
    tasks: tuple[Callable[[], Awaitable[None]], ...]


async def prepare(
    options: Options,
    environ: Mapping[str, str],
    clients: Clients,
    registry: CollectorRegistry,
    time: clock.Clock,
) -> Port:
    """Everything but opening it. Raises when a certificate cannot be used, or the lookup of authorities is refused."""
    login = options.authentication
    reviews = await clients.plain(connection.review_config(login.authentication_kubeconfig, clients.config, environ))
    gate = access.RequestGate(await _delegate(options, environ, clients, reviews, time))
    certificates = ServingCertificates(options.secure_serving, time)
    given = access.from_flags(login)

    def apply(authorities: access.Authorities) -> None:
        gate.authorities = authorities
        certificates.trust(authorities.all)

    apply(await _first_authorities(reviews, options, given))
    contention = profiling.Contention() if options.debugging.contention_profiling else None
    server = ManagerServer(options, registry, gate, certificates, contention=contention)
    tasks = [server.maintain, lambda: access.follow(reviews, login, given, apply, time)]
    return Port(server, (*tasks, contention.run) if contention is not None else tuple(tasks))


async def _delegate(
    options: Options,
    environ: Mapping[str, str],
    clients: Clients,
    reviews: Client,
    time: clock.Clock,
) -> DelegatedGate:
    rights = options.authorization
    config = connection.review_config(rights.authorization_kubeconfig, clients.config, environ)
    keep = Keep(
        options.authentication.authentication_token_webhook_cache_ttl,
        rights.authorization_webhook_cache_authorized_ttl,
        rights.authorization_webhook_cache_unauthorized_ttl,
    )
    return DelegatedGate(reviews, access_client=await clients.plain(config), keep=keep, time=time)


async def _first_authorities(client: Client, options: Options, given: access.Authorities) -> access.Authorities:
    try:
        return await access.look_up(client, options.authentication, given)
    except errors.Retryable as err:
        # Whether the API server lives is judged later; here it only means: no client certificates yet.
        log.warning("access.lookup_failed", error=str(err))
        return given
