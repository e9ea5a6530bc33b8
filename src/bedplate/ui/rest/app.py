"""The REST API as an aiohttp application.

In: `Service`. Out: an application with every address of the API, the OpenAPI document, health and metrics; the daemon
serves it over TLS, and mounts the page on it (`bedplate.ui.web.mount`). Its event stream runs as long as the
application does. Metrics have labels from small fixed sets (operations, not addresses); each request that writes is a
line in the log with its author, reads are logged at `-v 6`. What is not HTTP is refused by aiohttp itself, before any
handler; it would write a traceback for each such request to standard error, where a line is enough.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections import Counter as Counts
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from itertools import groupby
from typing import Any, Final

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Middleware
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from bedplate.core import errors
from bedplate.core.logging import get_logger
from bedplate.core.metrics import shared
from bedplate.head import Identity
from bedplate.head.daemon import Limits, Service
from bedplate.serving.health import Checks
from bedplate.ui.rest import auth, problems
from bedplate.ui.rest.accounts import Accounts
from bedplate.ui.rest.addresses import OPERATIONS
from bedplate.ui.rest.clusters import KubernetesClusters
from bedplate.ui.rest.commits import Commits
from bedplate.ui.rest.document import document
from bedplate.ui.rest.enrolment import Enrolling
from bedplate.ui.rest.events import Events
from bedplate.ui.rest.images import ImageTrees
from bedplate.ui.rest.nodes import Nodes
from bedplate.ui.rest.objects import Encoder, Objects, json
from bedplate.ui.rest.operations import Ask, Handler, Operation
from bedplate.ui.rest.setups import SetupRuns
from bedplate.ui.rest.snapshots import Snapshotting
from bedplate.ui.rest.stream import Feed
from bedplate.ui.rest.turns import Turning

__all__ = ["RequestMetrics", "make", "peer_of", "runner"]

_LOG = get_logger("head.rest")
_HTTP_LOG = get_logger("head.http")
_LONGEST_LINE = 32 * 1024
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_OPERATION: Final = web.RequestKey("operation", str)
_NOBODY = Identity("", "")
_OURS = ("/api/", "/openapi.json", "/ca.crt", "/metrics", "/healthz", "/livez", "/readyz")
_LASTING = (
    *("events", "desired", "enrolment", "take_turn", "act_on_image"),
    *("transfer_image", "transfer_snapshot", "agent_archive"),
)
_Plain = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make(service: Service) -> web.Application:
    """The application; routes may be added to it until it starts. The head must be open."""
    feed = Feed(service)
    metrics = shared(service.registry, RequestMetrics)
    metrics.readers.set_function(lambda: feed.readers)
    app = web.Application(
        middlewares=[_watch(service, metrics), auth.guard(service.access, service.failures)],
        client_max_size=service.limits.body_bytes,
    )
    handlers = _handlers(service, feed)
    for path, group in groupby(OPERATIONS, key=lambda route: route.path):
        operations = list(group)
        for operation in operations:
            answering = _answering(service, operation, handlers[operation.name], metrics)
            app.router.add_route(operation.method, path, answering)
            if operation.method == "GET" and operation.name != "events":
                app.router.add_route("HEAD", path, answering)
        app.router.add_route("*", path, _refusing(sorted({route.method for route in operations})))
    app.router.add_route("*", "/api/{rest:.*}", _nothing)
    app.cleanup_ctx.append(_feeding(service, feed))
    app.on_shutdown.append(_closing(feed))
    app.on_response_prepare.append(_insist_on_tls)
    return app


async def _insist_on_tls(request: web.Request, response: web.StreamResponse) -> None:
    """Have browsers never come back without TLS."""
    if request.secure:
        response.headers["Strict-Transport-Security"] = "max-age=31536000"


def _handlers(service: Service, feed: Feed) -> Mapping[str, Handler]:
    objects = Objects(service, Encoder(service.head.tree.schema))
    commits, nodes = Commits(service), Nodes(service, feed)
    events, accounts, enrolling = Events(service, feed), Accounts(service), Enrolling(service)
    turning, imaging, clusters = Turning(service), ImageTrees(service), KubernetesClusters(service)
    setups = SetupRuns(service)
    shown = msgspec.json.encode(document(service.head.tree.schema))

    async def openapi(ask: Ask) -> web.StreamResponse:
        return json(shown)

    async def metrics(ask: Ask) -> web.StreamResponse:
        return web.Response(body=generate_latest(service.registry), content_type="text/plain", charset="utf-8")

    return {
        "schema": accounts.schema,
        "tree": objects.tree,
        "list": objects.list,
        "create": objects.create,
        "get": objects.get,
        "put": objects.put,
        "patch": objects.patch,
        "delete": objects.delete,
        "commit": commits.commit,
        "rollout": commits.rollout,
        "act_on_rollout": commits.act_on_rollout,
        "plan": commits.plan,
        "plan_between": commits.plan_between,
        "revisions": commits.revisions,
        "revision": commits.revision,
        "undo": commits.undo,
        "audit": commits.audit,
        "export": commits.export,
        "import_": commits.import_,
        "nodes": nodes.list,
        "errands": nodes.errands,
        "ask_errand": nodes.ask_errand,
        "explain": nodes.explain,
        "pending": nodes.pending,
        "progress": nodes.progress,
        "desired": nodes.desired,
        "report": nodes.report,
        "health": nodes.health,
        "agent_archive": nodes.archive,
        "cluster": clusters.state,
        "cluster_health": clusters.health,
        "people": clusters.people,
        "setup_form": setups.form,
        "check_setup": setups.check,
        "setups": setups.list,
        "start_setup": setups.start,
        "setup": setups.get,
        "act_on_setup": setups.act,
        "images": imaging.list,
        "act_on_image": imaging.act,
        "transfer_image": imaging.transfer,
        "transfer_snapshot": Snapshotting(service).transfer,
        "take_turn": turning.take,
        "end_turn": turning.end,
        "turns": turning.list,
        "release_turn": turning.release,
        "renew": enrolling.renew,
        "enrolments": enrolling.list,
        "enrol": enrolling.ask,
        "enrolment": enrolling.get,
        "decide_enrolment": enrolling.decide,
        "events": events.stream,
        "notices": events.notices,
        "whoami": accounts.whoami,
        "tokens": accounts.tokens,
        "create_token": accounts.create,
        "revoke_token": accounts.revoke,
        "authority": accounts.authority,
        "authority_file": accounts.authority_file,
        "rotate": accounts.rotate,
        "join": accounts.join,
        "certificates": accounts.certificates,
        "revocations": accounts.revocations,
        "revoke_certificates": accounts.revoke_certificates,
        "openapi": openapi,
        "healthz": _probe("healthz", service.live),
        "livez": _probe("livez", service.live),
        "readyz": _probe("readyz", service.ready),
        "metrics": metrics,
    }


def _answering(service: Service, operation: Operation, handler: Handler, metrics: RequestMetrics) -> _Plain:
    """A route: the request checked against its operation, then the handler."""
    largest = service.limits.import_bytes if operation.is_large else service.limits.body_bytes

    async def answer(request: web.Request) -> web.StreamResponse:
        request[_OPERATION] = operation.name
        if (request.content_length or 0) > largest:
            raise web.HTTPRequestEntityTooLarge(max_size=largest, actual_size=request.content_length or 0)
        # A body without a length may still be larger than told; reading it stops there.
        request._client_max_size = largest
        arrives_s = service.limits.body_s * (10 if operation.is_large else 1)
        identity = _NOBODY if operation.is_public else auth.identity(request)
        before = service.head.revision
        response = await handler(Ask(request, operation, identity, operation.check(request), arrives_s))
        if operation.name == "report":
            metrics.reports.inc()
        elif operation.is_write and service.head.revision > before:
            metrics.commits.inc()
        return response

    return answer


def _refusing(allowed: list[str]) -> _Plain:
    async def refuse(request: web.Request) -> web.StreamResponse:
        raise web.HTTPMethodNotAllowed(request.method, allowed)

    return refuse


async def _nothing(request: web.Request) -> web.StreamResponse:
    raise web.HTTPNotFound


def _watch(service: Service, metrics: RequestMetrics) -> Middleware:
    """Turns errors into problems, counts and logs. The page's requests pass: it has answers of its own."""

    @web.middleware
    async def watch(request: web.Request, handler: _Plain) -> web.StreamResponse:
        if not request.path.startswith(_OURS):
            return await handler(request)
        started = service.clock.monotonic()
        status = 499
        metrics.inflight.inc()
        try:
            response = await _answered(request, handler)
            status = response.status
            return response
        finally:
            metrics.inflight.dec()
            duration_s = service.clock.monotonic() - started
            operation, method = request.get(_OPERATION, "unknown"), request.method
            method = method if method in ("GET", "PUT", "POST", "PATCH", "DELETE", "HEAD") else "other"
            metrics.requests.labels(operation, method, str(status)).inc()
            if operation not in _LASTING:
                metrics.duration.labels(operation).observe(duration_s)
            _log_request(operation, request.method, request.path, status, _author(request), duration_s)

    return watch


def _author(request: web.Request) -> str:
    try:
        return auth.identity(request).name
    except KeyError:
        return ""


async def _answered(request: web.Request, handler: _Plain) -> web.StreamResponse:
    try:
        return await handler(request)
    except (errors.BedplateError, web.HTTPException) as err:
        return problems.from_error(err)
    except ConnectionError:
        raise
    except RecursionError:
        # What can just be read may be too deep for whoever works with it: nothing of ours is nested like that.
        return problems.from_error(problems.Malformed("the body is nested too deep", hint="see GET /openapi.json"))
    except Exception as err:
        _LOG.exception("head.bug", operation=request.get(_OPERATION, "unknown"), path=request.path)
        return problems.from_error(err)


def _probe(name: str, checks: Checks) -> Handler:
    async def answer(ask: Ask) -> web.StreamResponse:
        report = await checks.report(exclude=ask.names("exclude"), verbose=bool(ask.text("verbose")), shown_as=name)
        return web.Response(status=report.status, text=report.text, headers={"X-Content-Type-Options": "nosniff"})

    return answer


def _feeding(service: Service, feed: Feed) -> Callable[[web.Application], AsyncIterator[None]]:
    async def run(app: web.Application) -> AsyncIterator[None]:
        await feed.open()
        task = asyncio.create_task(feed.run())
        yield
        task.cancel()
        await asyncio.wait([task])

    return run


def _closing(feed: Feed) -> Callable[[web.Application], Awaitable[None]]:
    async def close(app: web.Application) -> None:
        feed.close()

    return close


class _Forward(logging.Handler):
    """aiohttp's own messages as ours: a peer that speaks no HTTP is its own trouble, anything else is a bug of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        err = record.exc_info[1] if record.exc_info else None
        if isinstance(err, HttpProcessingError):
            _HTTP_LOG.v(2).info("head.no_http", error=" ".join(err.message.split())[:200])
        elif record.levelno >= logging.ERROR:
            text = record.getMessage()
            _HTTP_LOG.error("head.connection_failed", error=f"{text}: {err}" if err else text)
        else:
            _HTTP_LOG.v(6).info("head.connection", text=record.getMessage())


def _logger() -> logging.Logger:
    logger = logging.Logger("head.http", logging.INFO)
    logger.addHandler(_Forward())
    return logger


class _Runner(web.AppRunner):
    """Closes connections of an address that has too many: before anything of them is read."""

    def __init__(self, app: web.Application, most: int, **options: Any) -> None:
        super().__init__(app, **options)
        self._most = most

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        begin, end = server.connection_made, server.connection_lost
        counts: Counts[str] = Counts()
        addresses: dict[Any, str] = {}

        def made(handler: Any, transport: asyncio.Transport) -> None:
            begin(handler, transport)
            address = peer_of(transport)
            if not address:
                return
            if counts[address] >= self._most:
                _HTTP_LOG.v(2).info("head.too_many_connections", remote=address, most=self._most)
                transport.abort()
                return
            counts[address] += 1
            addresses[handler] = address

        def lost(handler: Any, exc: BaseException | None = None) -> None:
            end(handler, exc)
            address = addresses.pop(handler, "")
            if address:
                counts[address] -= 1
                if not counts[address]:
                    del counts[address]

        server.connection_made = made  # type: ignore[method-assign]
        server.connection_lost = lost  # type: ignore[method-assign]
        return server


def peer_of(transport: asyncio.Transport) -> str:
    """The address of a peer, if its connections are counted: not those of this machine."""
    peer = transport.get_extra_info("peername")
    host = str(peer[0]) if isinstance(peer, tuple) else ""
    try:
        return "" if ipaddress.ip_address(host.partition("%")[0]).is_loopback else host
    except ValueError:
        return ""


def runner(
    app: web.Application, limits: Limits, *, shutdown_s: float = 2.0, kept_alive_s: float = 75.0
) -> web.AppRunner:
    """To be set up, given sites, and cleaned up by its owner."""
    return _Runner(
        app,
        limits.connections,
        access_log=None,
        handle_signals=False,
        shutdown_timeout=shutdown_s,
        keepalive_timeout=kept_alive_s,
        logger=_logger(),
        max_line_size=_LONGEST_LINE,
        max_field_size=_LONGEST_LINE,
    )


class RequestMetrics:
    """One set for each registry (`core.metrics.shared`)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "bedplate_head_requests_total",
            "API requests handled.",
            ("operation", "method", "code"),
            registry=registry,
        )
        self.duration = Histogram(
            "bedplate_head_request_duration_seconds",
            "Duration of requests, without event streams and waiting requests.",
            ("operation",),
            buckets=_BUCKETS,
            registry=registry,
        )
        self.inflight = Gauge("bedplate_head_requests_inflight", "Requests in progress.", registry=registry)
        self.commits = Counter("bedplate_head_commits_total", "Revisions made through the API.", registry=registry)
        self.readers = Gauge("bedplate_head_event_readers", "Open event streams.", registry=registry)
        self.reports = Counter("bedplate_head_reports_total", "Reports of nodes.", registry=registry)


def _log_request(operation: str, method: str, path: str, status: int, author: str, duration_s: float) -> None:
    """One line: what was asked, by whom, how it ended. The query and bodies are left out: they may hold secrets."""
    is_worth_it = status >= 500 or method not in ("GET", "HEAD", "OPTIONS")
    logger = _LOG if is_worth_it else _LOG.v(6)
    if operation == "report" and status < 400:
        logger = _LOG.v(4)
    logger.info(
        "head.request",
        operation=operation,
        method=method,
        path=path,
        status=status,
        author=author or "nobody",
        duration_ms=round(duration_s * 1000, 1),
    )
