"""Third stage: which verb answers, and what the body means to it.

In: an authorized request. Out: an answer, or a coroutine where something has to be waited for; 404, 405, 406 where no
verb takes it; 400, 415, 422 where its body cannot be read. Decides nothing about objects; that is the verbs' part.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection

from bedplate.apiserver import hooks, kinds, meta, services, status
from bedplate.apiserver.access import subjects
from bedplate.apiserver.merge import patches
from bedplate.apiserver.pipeline import answers, routes
from bedplate.apiserver.protobuf import encoding
from bedplate.apiserver.state import bodies, watchers
from bedplate.apiserver.verbs import delete, patch, read, request, scale, watch, write
from bedplate.apiserver.wire import codec
from bedplate.serving import http

__all__ = ["Dispatcher", "Page"]

_NOT_FOUND = "the server could not find the requested resource"
_NOT_ALLOWED = "the server does not allow this method on the requested resource"

Page = Callable[[http.Request], http.Response | None]
"""Answers a path that is not that of a resource; None where there is nothing at it."""


class Dispatcher:
    """Chooses the verb for a request and runs it."""

    def __init__(
        self,
        parts: services.Services,
        hub: watchers.Watchers,
        decoder: codec.Decoder,
        encoder: encoding.Encoder,
        pages: Page,
    ) -> None:
        self._services = parts
        self._hub = hub
        self._decoder = decoder
        self._encoder = encoder
        self._pages = pages
        self._answers = answers.Answers()
        self._rng = random.Random()

    def dispatch(
        self, incoming: http.Request, info: routes.RequestInfo, user: subjects.User
    ) -> http.Answer | Awaitable[http.Answer]:
        if not info.resource:
            page = self._pages(incoming)
            if page is None:
                return http.Response(404, b"404 page not found\n", "text/plain; charset=utf-8")
            return self._answers.compressed(incoming, page)
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
            size_bytes=len(incoming.body),
        )
        if info.verb in ("list", "watch") and wish == codec.Wanted() and _prefers_protobuf(incoming):
            target.protobuf = self._encoder
        if info.subresource and info.subresource != "status":
            return self._subresource(incoming, info, target, wish)
        match info.verb:
            case "get":
                return self._answers.read(incoming, wish, read.get(target, wish, incoming.query))
            case "list":
                listed = read.list_(target, wish, incoming.query)
                return self._answers.read(incoming, wish, listed, target.media)
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
                obj = await self._object(incoming, target)
                if (handler := target.behaviour.call) is not None:
                    code, obj = await handler(self._call(incoming, info, target, obj))
                    return answers.written(wish, code, bodies.encode(obj), target.warnings)
                outcome = await write.create_outcome(target, obj)
            case "update":
                request.read_options(target, query, incoming.header(b"user-agent"), "UpdateOptions")
                outcome = await write.replace(target, await self._object(incoming, target))
            case "patch":
                request.read_options(target, query, incoming.header(b"user-agent"), "PatchOptions")
                outcome = await patch.patch(target, incoming.header(b"content-type"), incoming.body, query)
            case _:
                return await self._delete(incoming, info, target, wish)
        return answers.written(wish, outcome.code, outcome.body, target.warnings)

    async def _delete(
        self, incoming: http.Request, info: routes.RequestInfo, target: request.Target, wish: codec.Wanted
    ) -> http.Answer:
        body = (await self._decode(incoming)).object if incoming.body else None
        options = delete.read_options(body, incoming.query)
        if info.verb == "delete":
            code, obj = await delete.delete(target, options)
        else:
            code, obj = 200, await delete.delete_collection(target, options, incoming.query)
        return answers.written(wish, code, bodies.encode(obj), target.warnings)

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
            body = await self._preview(incoming, info, target)
            code, obj = await handler(self._call(incoming, info, target, body))
            return answers.written(wish, code, bodies.encode(obj), target.warnings)
        if info.verb == "get":
            return answers.written(wish, 200, bodies.encode(scale.get(target)), target.warnings)
        change = await self._scale_change(incoming, info)
        return answers.written(wish, 200, bodies.encode(await scale.update(target, change)), target.warnings)

    def _call(
        self, incoming: http.Request, info: routes.RequestInfo, target: request.Target, body: bodies.Object | None
    ) -> hooks.Call:
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
        )

    async def _decode(self, incoming: http.Request, *, find_duplicates: bool = False) -> codec.Body:
        """The body by its content type."""
        content_type, raw = incoming.header(b"content-type"), incoming.body
        return await request.aside(
            len(raw), lambda: codec.decode_body(content_type, raw, self._decoder, find_duplicates=find_duplicates)
        )

    async def _object(self, incoming: http.Request, target: request.Target) -> bodies.Object:
        """The body as an object of the target's kind, without unknown fields."""
        body = await self._decode(incoming, find_duplicates=target.field_validation != "Ignore")
        obj = meta.check_object(target.resource, body.object)
        if body.is_protobuf:
            return obj
        return await request.aside(target.size_bytes, lambda: request.checked(target, obj, body.problems))

    async def _preview(
        self, incoming: http.Request, info: routes.RequestInfo, target: request.Target
    ) -> bodies.Object | None:
        """The body for a behaviour's own handler: decoded, a patch as the object it leads to."""
        if not incoming.body:
            return None
        if info.verb == "patch":
            return patch.preview(target, incoming.header(b"content-type"), incoming.body)
        body = (await self._decode(incoming)).object
        return body if isinstance(body, dict) else None

    async def _scale_change(
        self, incoming: http.Request, info: routes.RequestInfo
    ) -> Callable[[bodies.Object], bodies.Object]:
        """What the body makes of a Scale."""
        if info.verb == "patch":
            body = codec.decode_patch(incoming.body)
            if incoming.header(b"content-type").startswith(patch.JSON_PATCH):
                return lambda old: patches.json_patch(old, body)
            return lambda old: patches.merge_patch(old, body)
        asked = (await self._decode(incoming)).object
        return lambda _old: asked


def _prefers_protobuf(incoming: http.Request) -> bool:
    return incoming.headers.get(b"accept", b"").startswith(codec.PROTOBUF.encode())
