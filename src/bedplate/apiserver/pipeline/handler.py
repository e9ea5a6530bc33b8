"""The way of a request: who asks, what for, whether it is allowed, which verb answers, how errors look.

In: `http.Request`. Out: `http.Response` or `http.Stream`. Reads that need no waiting are answered at once; everything
else becomes a coroutine. Decides nothing about objects; that is the verbs' part.
"""

from __future__ import annotations

import asyncio
import collections
import gzip
import ipaddress
import random
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from bedplate.apiserver import hooks, kinds, meta, services, status
from bedplate.apiserver.access import identity, subjects
from bedplate.apiserver.pipeline import routes
from bedplate.apiserver.state import bodies, watchers
from bedplate.apiserver.verbs import delete, patch, read, request, scale, strictness, watch, write
from bedplate.apiserver.wire import codec, http
from bedplate.core import errors, logging

__all__ = ["Pipeline"]

log = logging.get_logger("apiserver.pipeline")

GZIP_FROM_BYTES = 128 * 1024
_GZIP_LEVEL = 1
_ZIPPED_KEPT = 8
_ZIPPED_BYTES = 8 * 1024 * 1024
_ALLOWED_KEPT = 10_000
_TOO_LARGE = f"Request entity too large: limit is {http.MAX_BODY_BYTES}"
_ONE_NAME = re.compile(r"metadata\.name==?([^,=!]+)\Z")
_NOT_FOUND = "the server could not find the requested resource"
_NOT_ALLOWED = "the server does not allow this method on the requested resource"

Page = Callable[[http.Request], http.Response | None]


class Pipeline:
    """One server's request handler."""

    def __init__(
        self, parts: services.Services, hub: watchers.Watchers, decoder: Any, encoder: Any, pages: Page
    ) -> None:
        self._services = parts
        self._hub = hub
        self._decoder = decoder
        self._encoder = encoder
        self._pages = pages
        self._rng = random.Random()
        self._allowed: dict[tuple[subjects.User, subjects.Attributes], bool] = {}
        self._allowed_generation = -1
        self._tokens: dict[str, tuple[subjects.User, float]] = {}
        self._zipped: collections.OrderedDict[int, tuple[bytes, bytes]] = collections.OrderedDict()
        self.counts: collections.Counter[tuple[str, str, str, str, str, int]] = collections.Counter()
        """Requests by verb, group, version, resource, subresource and code."""

    def __call__(self, incoming: http.Request) -> http.Answer | Awaitable[http.Answer]:
        info = routes.parse(incoming.method, incoming.path, incoming.query, bool(incoming.raw_query))
        try:
            user = self._authenticate(incoming)
            if b"impersonate-user" in incoming.headers or b"impersonate-group" in incoming.headers:
                user = self._impersonate(incoming, user)
            self._authorize(user, info, incoming)
            if incoming.is_too_large:
                raise status.StatusError(413, "RequestEntityTooLarge", _TOO_LARGE)
            answer = self._dispatch(incoming, info, user)
        except status.StatusError as err:
            answer = self._failure(err, incoming)
        except Exception as err:
            answer = self._crashed(err, incoming)
        if isinstance(answer, http.Response):
            self._count(info, answer.code)
            return answer
        if isinstance(answer, http.Stream):
            self._count(info, 200)
            return answer
        return self._later(incoming, info, answer)

    async def _later(
        self, incoming: http.Request, info: routes.RequestInfo, pending: Awaitable[http.Answer]
    ) -> http.Answer:
        try:
            answer = await pending
        except status.StatusError as err:
            answer = self._failure(err, incoming)
        except (errors.Retryable, errors.Unavailable) as err:
            # The store is full or away: nothing wrong with the request, and nothing to look for in the code.
            log.warning("request.store_failed", method=incoming.method, path=incoming.path, reason=str(err))
            answer = self._failure(
                status.StatusError(500, "InternalError", f"Internal error occurred: {err}"), incoming
            )
        except Exception as err:
            answer = self._crashed(err, incoming)
        self._count(info, answer.code if isinstance(answer, http.Response) else 200)
        return answer

    def _count(self, info: routes.RequestInfo, code: int) -> None:
        key = (info.verb, info.group, info.version, info.resource, info.subresource, code)
        if key not in self.counts:
            resource = self._services.kinds.get(info.group, info.version, info.resource)
            if resource is None or (info.subresource and info.subresource not in resource.subresources):
                # Paths that lead nowhere are not worth a number each: anybody can think up any number of them.
                key = ("other", "", "", "", "", code)
        self.counts[key] += 1

    # who

    def _authenticate(self, incoming: http.Request) -> subjects.User:
        authorization = incoming.headers.get(b"authorization")
        if authorization is not None:
            scheme, _, token = authorization.decode("latin-1").partition(" ")
            if scheme.lower() == "bearer" and token:
                return self._by_token(token.strip())
        connection = incoming.connection
        if connection.identity is None:
            connection.identity = self._by_certificate(connection) or subjects.ANONYMOUS
        user: subjects.User = connection.identity
        return user

    def _by_token(self, token: str) -> subjects.User:
        now = self._services.clock.now().timestamp()
        cached = self._tokens.get(token)
        if cached is not None and now < cached[1]:
            return cached[0]
        found = self._services.authenticator.by_token(token)
        if found is None:
            raise status.unauthorized()
        if found[1] > now:
            self._tokens[token] = found
        return found[0]

    def _by_certificate(self, connection: http.Connection) -> subjects.User | None:
        certificate = connection.transport.get_extra_info("peercert")
        if not certificate:
            return None
        subject: dict[str, list[str]] = {}
        for names in certificate.get("subject", ()):
            for key, value in names:
                subject.setdefault(key, []).append(value)
        return self._services.authenticator.by_certificate(subject)

    def _impersonate(self, incoming: http.Request, user: subjects.User) -> subjects.User:
        headers: dict[str, list[str]] = {}
        for name, value in incoming.all_headers():
            headers.setdefault(name, []).append(value)
        try:
            wish = identity.impersonation(headers)
        except ValueError as err:
            raise status.StatusError(500, "InternalError", f"Internal error occurred: {err}") from None
        if wish is None:
            return user
        for attributes in wish.needs:
            if not self._is_allowed(user, attributes):
                raise status.not_allowed(user.name, attributes)
        return wish.user

    # whether

    def _authorize(self, user: subjects.User, info: routes.RequestInfo, incoming: http.Request) -> None:
        name = info.name
        if not name and info.resource and incoming.raw_query:
            # Who asks for a list of one name needs no more than the right to that name.
            found = _ONE_NAME.match(incoming.query.get("fieldSelector", ""))
            name = found[1] if found else ""
        attributes = subjects.Attributes(
            info.verb, info.group, info.version, info.resource, info.subresource, info.namespace, name,
            "" if info.resource else info.path,
        )  # fmt: skip
        is_trusted = subjects.MASTERS in user.groups
        if not is_trusted and not self._is_allowed(user, attributes):
            reason = self._services.authorizer.authorize(user, attributes).reason
            raise status.not_allowed(user.name, attributes, reason)

    def _is_allowed(self, user: subjects.User, attributes: subjects.Attributes) -> bool:
        authorizer = self._services.authorizer
        if self._allowed_generation != authorizer.generation or len(self._allowed) > _ALLOWED_KEPT:
            self._allowed = {}
            self._allowed_generation = authorizer.generation
        key = (user, attributes)
        known = self._allowed.get(key)
        if known is None:
            known = self._allowed[key] = authorizer.authorize(user, attributes).allowed
        return known

    # what

    def _dispatch(
        self, incoming: http.Request, info: routes.RequestInfo, user: subjects.User
    ) -> http.Answer | Awaitable[http.Answer]:
        if not info.resource:
            page = self._pages(incoming)
            if page is None:
                return http.Response(404, b"404 page not found\n", "text/plain; charset=utf-8")
            return self._maybe_zipped(incoming, page)
        resource = self._services.kinds.get(info.group, info.version, info.resource)
        if resource is None:
            raise status.StatusError(404, "NotFound", _NOT_FOUND, details={})
        self._check_verb(info, resource)
        wish = codec.wanted(incoming.header(b"accept"))
        if wish is None:
            raise codec.not_acceptable()
        if incoming.raw_query and "pretty" in incoming.query:
            wish = wish._replace(is_pretty=request.is_true(incoming.query["pretty"]))
        target = request.Target(
            services=self._services,
            resource=resource,
            namespace=info.namespace if resource.namespaced else "",
            name=info.name,
            user=user,
            subresource=info.subresource,
        )
        if info.verb in ("list", "watch") and wish == codec.Wanted() and self._prefers_protobuf(incoming):
            target.protobuf = self._encoder
        if info.subresource and info.subresource != "status":
            return self._subresource(incoming, info, target, wish)
        match info.verb:
            case "get":
                return self._shown(incoming, wish, read.get(target, wish, incoming.query))
            case "list":
                listed = read.list_(target, wish, incoming.query)
                return self._shown(incoming, wish, listed, target.media)
            case "watch":
                return watch.watch(target, wish, incoming.query, self._hub, self._rng)
        return self._write(incoming, info, target, wish)

    def _check_verb(self, info: routes.RequestInfo, resource: kinds.Resource) -> None:
        verbs = resource.verbs
        if info.subresource:
            sub = resource.subresources.get(info.subresource)
            if sub is None:
                raise status.StatusError(404, "NotFound", _NOT_FOUND, details={})
            verbs = sub.verbs
        is_misplaced = (info.namespace and not resource.namespaced and info.resource != "namespaces") or (
            resource.namespaced and not info.namespace and info.name
        )
        if is_misplaced:
            raise status.StatusError(404, "NotFound", _NOT_FOUND, details={})
        self._check_method(info, resource, verbs)

    @staticmethod
    def _check_method(info: routes.RequestInfo, resource: kinds.Resource, verbs: Collection[str]) -> None:
        needs_namespace = resource.namespaced and not info.namespace and info.verb not in ("list", "watch")
        is_nameless = not info.name and info.verb in ("update", "patch")
        is_named = bool(info.name) and info.verb == "create" and not info.subresource
        if info.verb not in verbs or needs_namespace or is_nameless or is_named:
            raise status.StatusError(405, "MethodNotAllowed", _NOT_ALLOWED, details={})

    async def _write(
        self, incoming: http.Request, info: routes.RequestInfo, target: request.Target, wish: codec.Wanted
    ) -> http.Answer:
        await self._services.registry.freshen()
        query = incoming.query
        match info.verb:
            case "create":
                request.read_options(target, query, incoming.header(b"user-agent"), "CreateOptions")
                if (handler := target.behaviour.call) is not None:
                    code, obj = await handler(self._call(incoming, info, target, self._object(incoming, target)))
                    return self._answer(incoming, target, wish, code, bodies.encode(obj))
                outcome = await write.create_outcome(target, self._object(incoming, target))
            case "update":
                request.read_options(target, query, incoming.header(b"user-agent"), "UpdateOptions")
                outcome = await write.replace(target, self._object(incoming, target))
            case "patch":
                request.read_options(target, query, incoming.header(b"user-agent"), "PatchOptions")
                outcome = await patch.patch(target, incoming.header(b"content-type"), incoming.body, query)
            case _:
                return await self._delete(incoming, info, target, wish)
        return self._answer(incoming, target, wish, outcome.code, outcome.body)

    async def _delete(
        self, incoming: http.Request, info: routes.RequestInfo, target: request.Target, wish: codec.Wanted
    ) -> http.Answer:
        body = self._decode(incoming).object if incoming.body else None
        options = delete.read_options(body, incoming.query)
        if info.verb == "delete":
            code, obj = await delete.delete(target, options)
        else:
            code, obj = 200, await delete.delete_collection(target, options, incoming.query)
        return self._answer(incoming, target, wish, code, bodies.encode(obj))

    async def _subresource(
        self, incoming: http.Request, info: routes.RequestInfo, target: request.Target, wish: codec.Wanted
    ) -> http.Answer:
        await self._services.registry.freshen()
        handler = target.behaviour.subresources.get(info.subresource)
        if handler is None and info.subresource != "scale":
            what = f"{info.resource}/{info.subresource}"
            text = f"{what} needs a node behind the pod, which this embedded API server does not reach"
            raise status.StatusError(501, "NotImplemented", text, details={})
        if info.verb not in ("get", "delete"):
            request.read_options(target, incoming.query, incoming.header(b"user-agent"), "UpdateOptions")
        if handler is not None:
            body = self._body(incoming, info, target)
            code, obj = await handler(self._call(incoming, info, target, body))
            return self._answer(incoming, target, wish, code, bodies.encode(obj))
        if info.verb == "get":
            return self._answer(incoming, target, wish, 200, bodies.encode(scale.get(target)))
        change = self._scale_change(incoming, info)
        return self._answer(incoming, target, wish, 200, bodies.encode(await scale.update(target, change)))

    def _scale_change(
        self, incoming: http.Request, info: routes.RequestInfo
    ) -> Callable[[bodies.Object], bodies.Object]:
        if info.verb == "patch":
            from bedplate.apiserver.merge import patches

            body = codec.decode_patch(incoming.body)
            if incoming.header(b"content-type").startswith(patch.JSON_PATCH):
                return lambda old: patches.json_patch(old, body)
            return lambda old: patches.merge_patch(old, body)
        wanted = self._decode(incoming).object
        return lambda _old: wanted

    def _body(self, incoming: http.Request, info: routes.RequestInfo, target: request.Target) -> bodies.Object | None:
        """The body for a behaviour's own handler: decoded, a patch as the object it leads to."""
        if not incoming.body:
            return None
        if info.verb == "patch":
            return patch.preview(target, incoming.header(b"content-type"), incoming.body)
        body = self._decode(incoming).object
        return body if isinstance(body, dict) else None

    def _call(
        self, incoming: http.Request, info: routes.RequestInfo, target: request.Target, body: bodies.Object | None
    ) -> hooks.Call:
        peer = incoming.connection.transport.get_extra_info("peername")
        return hooks.Call(
            services=self._services,
            resource=target.resource,
            verb=info.verb,
            subresource=info.subresource,
            namespace=target.namespace,
            name=target.name,
            user=target.user,
            body=body,
            query=incoming.query,
            dry_run=target.dry_run,
            warnings=target.warnings,
            remote=ipaddress.ip_address(peer[0]) if peer else None,
        )

    def _decode(self, incoming: http.Request, *, find_duplicates: bool = False) -> codec.Body:
        content_type = incoming.header(b"content-type")
        return codec.decode_body(content_type, incoming.body, self._decoder, find_duplicates=find_duplicates)

    def _object(self, incoming: http.Request, target: request.Target) -> bodies.Object:
        """The body as an object of the target's kind, without unknown fields."""
        body = self._decode(incoming, find_duplicates=target.field_validation != "Ignore")
        obj = meta.check_object(target.resource, body.object)
        return obj if body.is_protobuf else strictness.checked(target, obj, body.problems)

    # how it looks

    @staticmethod
    def _prefers_protobuf(incoming: http.Request) -> bool:
        return incoming.headers.get(b"accept", b"").startswith(codec.PROTOBUF.encode())

    def _shown(
        self, incoming: http.Request, wish: codec.Wanted, body: bytes | Awaitable[bytes], media: str = codec.JSON
    ) -> http.Answer | Awaitable[http.Answer]:
        if not isinstance(body, bytes):
            return self._shown_later(incoming, wish, body, media)
        if media == codec.PROTOBUF:
            return self._maybe_zipped(incoming, http.Response(200, body, media))
        encoded, media = (
            (body, codec.JSON) if wish.media == codec.JSON and not wish.is_pretty else codec.encode(wish, body)
        )
        return self._maybe_zipped(incoming, http.Response(200, encoded, media))

    async def _shown_later(
        self, incoming: http.Request, wish: codec.Wanted, body: Awaitable[bytes], media: str
    ) -> http.Answer:
        answer = self._shown(incoming, wish, await body, media)
        return answer if isinstance(answer, (http.Response, http.Stream)) else await answer

    def _answer(
        self, incoming: http.Request, target: request.Target, wish: codec.Wanted, code: int, body: bytes
    ) -> http.Response:
        encoded, media = codec.encode(wish, body)
        headers = tuple(("Warning", f"299 - {_quoted(text)}") for text in dict.fromkeys(target.warnings))
        return http.Response(code, encoded, media, headers)

    def _maybe_zipped(self, incoming: http.Request, answer: http.Response) -> http.Answer | Awaitable[http.Answer]:
        accepted = incoming.headers.get(b"accept-encoding", b"")
        if len(answer.body) < GZIP_FROM_BYTES or b"gzip" not in accepted:
            return answer
        return self._zip(answer)

    async def _zip(self, answer: http.Response) -> http.Answer:
        known = self._zipped.get(id(answer.body))
        if known is None:
            zipped = await asyncio.to_thread(gzip.compress, answer.body, _GZIP_LEVEL)
            if len(answer.body) > _ZIPPED_BYTES:
                return _zipped_response(answer, zipped)
            # Holding the body keeps its id from being used again.
            known = self._zipped[id(answer.body)] = (answer.body, zipped)
            if len(self._zipped) > _ZIPPED_KEPT:
                self._zipped.popitem(last=False)
        return _zipped_response(answer, known[1])

    def _failure(self, err: status.StatusError, incoming: http.Request) -> http.Response:
        wish = codec.wanted(incoming.header(b"accept")) or codec.Wanted()
        body, media = codec.encode(wish, bodies.encode(err.document()))
        return http.Response(err.code, body, media, tuple(err.headers))

    def _crashed(self, err: Exception, incoming: http.Request) -> http.Response:
        log.exception("request.failed", method=incoming.method, path=incoming.path)
        text = f"Internal error occurred: {type(err).__name__}: {err}"
        return self._failure(status.StatusError(500, "InternalError", text), incoming)


def _zipped_response(answer: http.Response, zipped: bytes) -> http.Response:
    headers = (*answer.headers, ("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding"))
    return http.Response(answer.code, zipped, answer.content_type, headers)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'


def counters(counts: Mapping[tuple[str, str, str, str, str, int], int]) -> str:
    """`apiserver_request_total` in the text form of Prometheus."""
    lines = ["# HELP apiserver_request_total Requests answered.", "# TYPE apiserver_request_total counter"]
    for (verb, group, version, resource, subresource, code), count in sorted(counts.items()):
        names = {
            "code": code, "group": group, "resource": resource, "subresource": subresource,
            "verb": verb.upper(), "version": version,
        }  # fmt: skip
        labels = ",".join(f'{key}="{value}"' for key, value in names.items())
        lines.append(f"apiserver_request_total{{{labels}}} {count}")
    return "\n".join(lines) + "\n"
