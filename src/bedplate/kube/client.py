"""The Kubernetes client: verbs on typed or raw objects.

In: a `ClientConfig`, resource descriptors, plain mappings as bodies. Out: models, lists, watch events, errors of
`kube.errors`. It keeps no state but its connections: caches, queues and the repetition of decisions live in
`runtime`.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Self, TypeVar

import msgspec

from bedplate.api.identity import name_of
from bedplate.api.resources import ResourceRef
from bedplate.core import clock
from bedplate.kube import codec, errors, paging
from bedplate.kube.codec import EventDecoder, ListResult, WatchEvent
from bedplate.kube.config import ClientConfig
from bedplate.kube.metrics import RequestMetrics
from bedplate.kube.options import DeleteOptions, ListOptions, PatchType, WriteOptions
from bedplate.kube.transport import Request, Response, Transport

__all__ = ["Client"]

T = TypeVar("T")
# `list` is a verb inside the class, so its types are named out here.
Events = list[WatchEvent[Any]]
PAGE_SIZE = 500
# The server ends a watch after `timeout_s`; a connection that outlives that by this much is dead.
WATCH_GRACE_S = 30.0
_PLAIN = WriteOptions()


class Client:
    """Verbs against one API server. Open with `async with`."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        time: clock.Clock | None = None,
        rng: random.Random | None = None,
        metrics: RequestMetrics | None = None,
    ) -> None:
        self.config = config
        self._rng = rng if rng is not None else random.Random()
        self._transport = Transport(
            config, time=time if time is not None else clock.SystemClock(), rng=self._rng, metrics=metrics
        )

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._transport.__aexit__(*exc)

    # Reading

    async def get(
        self, ref: ResourceRef[T], name: str, namespace: str | None = None, *, resource_version: str = ""
    ) -> T:
        """One object. Raises `NotFound` only when the server said so about this very object."""
        target = _target("GET", ref, namespace, name)
        query = ListOptions(resource_version=resource_version).query()
        answer = await self._perform(Request(target, query=query, accept=codec.accept_header(ref)))
        return codec.decode_object(target, ref, answer.body, name)

    async def list(
        self,
        ref: ResourceRef[T],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
        resource_version_match: str = "",
    ) -> ListResult[T]:
        """All objects, fetched in pages; with `limit` or `continue_token` one page alone.

        When history needed for a later page is gone, the whole list is fetched at once instead, so that the answer is
        always one moment of the server.
        """
        options = ListOptions(
            label_selector=label_selector,
            field_selector=field_selector,
            resource_version=resource_version,
            resource_version_match=resource_version_match,
            limit=limit,
            continue_token=continue_token,
        )
        if limit or continue_token:
            return await self._page(ref, namespace, options)
        items: list[T] = []
        version = ""
        try:
            async with aclosing(
                self._pages(ref, namespace, msgspec.structs.replace(options, limit=PAGE_SIZE))
            ) as pages:
                async for page in pages:
                    items += page.items
                    version = page.resource_version
        except errors.Expired:
            if not items:
                raise
            return await self._page(ref, namespace, options)
        return ListResult(items, version)

    def list_pages(
        self,
        ref: ResourceRef[T],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = PAGE_SIZE,
        resource_version: str = "",
    ) -> AsyncGenerator[ListResult[T], None]:
        """Pages as they come, all of one moment. Raises `Expired` when that is forgotten half-way: start again."""
        options = ListOptions(label_selector, field_selector, resource_version, "", page_size)
        return self._pages(ref, namespace, options)

    def _pages(
        self, ref: ResourceRef[T], namespace: str | None, options: ListOptions
    ) -> AsyncGenerator[ListResult[T], None]:
        target = _target("GET", ref, namespace)
        accept = codec.accept_header(ref, is_list=True)

        async def open_page(token: str) -> AsyncIterator[bytes]:
            query = options.following(token).query()
            request = Request(target, query=query, accept=accept, is_limited=not token)
            async with self._transport.stream(request) as stream:
                async for chunk in stream.chunks():
                    yield chunk

        return paging.read_ahead(open_page, lambda body: codec.decode_list(target, ref, body))

    async def _page(self, ref: ResourceRef[T], namespace: str | None, options: ListOptions) -> ListResult[T]:
        target = _target("GET", ref, namespace)
        accept = codec.accept_header(ref, is_list=True)
        answer = await self._perform(Request(target, query=options.query(), accept=accept))
        return codec.decode_list(target, ref, answer.body)

    async def watch(
        self,
        ref: ResourceRef[T],
        namespace: str | None = None,
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout_s: int = 0,
        bookmarks: bool = True,
        send_initial_events: bool = False,
    ) -> AsyncGenerator[WatchEvent[Any], None]:
        """Events one by one; see `watch_batches`."""
        batches = self.watch_batches(
            ref,
            namespace,
            resource_version=resource_version,
            label_selector=label_selector,
            field_selector=field_selector,
            timeout_s=timeout_s,
            bookmarks=bookmarks,
            send_initial_events=send_initial_events,
        )
        async with aclosing(batches):
            async for batch in batches:
                for event in batch:
                    yield event

    async def watch_batches(
        self,
        ref: ResourceRef[T],
        namespace: str | None = None,
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout_s: int = 0,
        bookmarks: bool = True,
        send_initial_events: bool = False,
    ) -> AsyncGenerator[Events, None]:
        """Events in the batches in which they arrive, until the server ends the watch (then the iteration ends).

        `timeout_s`: after how long the server ends it; 0 takes five to ten minutes at random, so that watches do not
        end all at once. Raises `Expired` when `resource_version` is forgotten, `Interrupted` when the stream breaks.
        """
        target = _target("GET", ref, namespace)
        timeout_s = timeout_s or self._rng.randint(300, 600)
        match = "NotOlderThan" if send_initial_events else ""
        query = ListOptions(label_selector, field_selector, resource_version, match).query()
        query += [("watch", "true"), ("timeoutSeconds", str(timeout_s))]
        if bookmarks or send_initial_events:
            query.append(("allowWatchBookmarks", "true"))
        if send_initial_events:
            query.append(("sendInitialEvents", "true"))
        accept = codec.accept_header(ref)
        request = Request(target, query=query, accept=accept, timeout_s=timeout_s + WATCH_GRACE_S, is_watch=True)
        decoder = EventDecoder(codec.codec_of(ref), target)
        async with self._transport.stream(request) as stream:
            async for chunk in stream.chunks():
                if events := decoder.feed(chunk):
                    yield events
                if decoder.failure is not None:
                    raise decoder.failure
            if events := decoder.finish():
                yield events
            if decoder.failure is not None:
                raise decoder.failure

    # Writing

    async def create(
        self,
        ref: ResourceRef[T],
        obj: Mapping[str, Any],
        namespace: str | None = None,
        *,
        field_manager: str = "",
        dry_run: bool = False,
        field_validation: str = "",
    ) -> T:
        """Create an object; apiVersion and kind may be left out."""
        target = _target("POST", ref, namespace or _own_namespace(ref, obj))
        query = WriteOptions(field_manager, dry_run, False, field_validation).query()
        request = Request(target, query, _typed(ref, obj), accept=codec.accept_header(ref))
        answer = await self._perform(request)
        return codec.decode_object(target, ref, answer.body)

    async def update(
        self,
        ref: ResourceRef[T],
        obj: Mapping[str, Any],
        namespace: str | None = None,
        *,
        subresource: str = "",
        field_manager: str = "",
        dry_run: bool = False,
        field_validation: str = "",
    ) -> T:
        """Replace an object whole. For raw objects only: a lean model would lose the fields it does not know."""
        name = name_of(obj)
        target = _target("PUT", ref, namespace or _own_namespace(ref, obj), name, subresource)
        query = WriteOptions(field_manager, dry_run, False, field_validation).query()
        request = Request(target, query, _typed(ref, obj), accept=codec.accept_header(ref))
        answer = await self._perform(request)
        return codec.decode_object(target, ref, answer.body, name)

    async def patch(
        self,
        ref: ResourceRef[T],
        name: str,
        body: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        namespace: str | None = None,
        *,
        type: PatchType = PatchType.MERGE,
        field_manager: str = "",
        force: bool = False,
        subresource: str = "",
        dry_run: bool = False,
        field_validation: str = "",
    ) -> T:
        """Change an object. `PatchType.APPLY` needs `field_manager` and creates the object when it is not there."""
        if type is PatchType.APPLY:
            if not field_manager:
                raise ValueError("server-side apply needs a field manager")
            if isinstance(body, Mapping):
                metadata = {"name": name, **(body.get("metadata") or {})}
                body = {"apiVersion": ref.api_version, "kind": ref.kind, **body, "metadata": metadata}
        target = _target("PATCH", ref, namespace, name, subresource)
        query = WriteOptions(field_manager, dry_run, force, field_validation).query()
        request = Request(target, query, msgspec.json.encode(body), type.value, codec.accept_header(ref))
        answer = await self._perform(request)
        return codec.decode_object(target, ref, answer.body, name)

    async def delete(
        self,
        ref: ResourceRef[Any],
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: str = "",
        grace_period_s: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """Delete an object. With `uid` only that very one: a later object of the same name raises `Conflict`."""
        target = _target("DELETE", ref, namespace, name)
        options = DeleteOptions(uid, resource_version, propagation, grace_period_s, dry_run)
        await self._perform(Request(target, body=msgspec.json.encode(options.body())))

    async def delete_collection(
        self,
        ref: ResourceRef[Any],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        propagation: str = "",
        grace_period_s: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """Delete all objects that match."""
        options = DeleteOptions("", "", propagation, grace_period_s, dry_run)
        query = ListOptions(label_selector, field_selector).query()
        target = _target("DELETE", ref, namespace)
        await self._perform(Request(target, query=query, body=msgspec.json.encode(options.body())))

    async def subresource(
        self,
        method: str,
        ref: ResourceRef[Any],
        name: str,
        subresource: str,
        namespace: str | None = None,
        *,
        model: type[T],
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        options: WriteOptions = _PLAIN,
    ) -> T:
        """A subresource that has a kind of its own (scale, eviction, binding, token); `model` may be `dict`."""
        target = _target(method, ref, namespace, name, subresource)
        encoded = msgspec.json.encode(body) if body is not None else None
        answer = await self._perform(Request(target, query=options.query(), body=encoded, content_type=content_type))
        return codec.decode_object(target, ref.with_model(model), answer.body)

    # Anything else

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout_s: float | None = None,
    ) -> Response:
        """A request to any path, such as `/healthz` or `/version`; the answer as bytes."""
        target = errors.Target(method, path)
        return await self._perform(Request(target, list(query), body, content_type, accept, timeout_s))

    async def _perform(self, request: Request) -> Response:
        """Every request but a watch passes here: the one place where a kind of client may refuse or change it."""
        return await self._transport.request(request)


def _target(
    method: str, ref: ResourceRef[Any], namespace: str | None, name: str | None = None, subresource: str = ""
) -> errors.Target:
    # An empty name would turn "this object" into "all objects", for a deletion as well.
    if name is not None and not name:
        raise ValueError(f"{method} {ref.qualified}: the name is empty")
    path = ref.path(namespace, name or "", subresource)
    return errors.Target(method, path, ref, namespace or "", name or "")


def _own_namespace(ref: ResourceRef[Any], obj: Mapping[str, Any]) -> str | None:
    return (obj.get("metadata") or {}).get("namespace") if ref.namespaced else None


def _typed(ref: ResourceRef[Any], obj: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": ref.api_version, "kind": ref.kind, **obj})
