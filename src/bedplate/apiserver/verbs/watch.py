"""Watch: what comes first, then live events.

In: a `Target`, the query and the wanted form. Out: an HTTP stream. Decides from where a watch starts (now, with the
present state, or after a version), refuses versions that are gone as the real server does, and hands the connection to
`watchers`.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Iterator, Mapping

from bedplate.apiserver import status, views
from bedplate.apiserver.state import registry, watchers
from bedplate.apiserver.verbs import read, request
from bedplate.apiserver.wire import codec
from bedplate.serving import http

__all__ = ["watch"]

MIN_TIMEOUT_S = 1800.0
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


def watch(
    target: request.Target, wish: codec.Wanted, query: Mapping[str, str], hub: watchers.Watchers, rng: random.Random
) -> http.Stream | Awaitable[http.Stream]:
    """Start a watch. Waits only where another server may have written what must be seen first."""
    _check(query)
    chosen = read.selection(target.resource, query, name=target.name)
    view = read.view_for(target, wish, query)
    seconds = request.integer(query, "timeoutSeconds")
    timeout_s = float(seconds) if seconds > 0 else MIN_TIMEOUT_S * (1 + rng.random())
    matcher = watchers.Matcher(f"{target.namespace}\n{chosen.key}\n{target.name}", target.namespace, chosen.predicate)
    start = _Start(target, query, view, matcher, hub, timeout_s)
    stream = http.Stream(start.begin, view.stream_media)
    if target.services.registry.is_shared:
        return _fresh(target, stream)
    return stream


async def _fresh(target: request.Target, stream: http.Stream) -> http.Stream:
    await target.services.registry.freshen()
    return stream


def _check(query: Mapping[str, str]) -> None:
    problem = status.FieldProblem
    initial, match = query.get("sendInitialEvents"), query.get("resourceVersionMatch", "")
    if initial is None:
        if match:
            detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            raise request.list_options_invalid(problem.forbidden("resourceVersionMatch", detail))
        return
    problems = []
    if match != "NotOlderThan":
        if not match:
            detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            problems.append(problem.forbidden("resourceVersionMatch", detail))
        else:
            problems.append(problem.not_supported("resourceVersionMatch", match, ["NotOlderThan"]))
    if problems:
        raise request.list_options_invalid(*problems)


class _Start:
    """The beginning of one watch."""

    def __init__(
        self,
        target: request.Target,
        query: Mapping[str, str],
        view: views.View,
        matcher: watchers.Matcher,
        hub: watchers.Watchers,
        timeout_s: float,
    ) -> None:
        self._registry = target.services.registry
        self._kind = target.kind
        self._view = view
        self._matcher = matcher
        self._hub = hub
        self._timeout_s = timeout_s
        self._version = request.resource_version(query.get("resourceVersion", ""))
        initial = query.get("sendInitialEvents")
        self._is_streaming_list = initial is not None and request.is_true(initial)
        self._wants_state = self._is_streaming_list or (initial is None and self._version == 0)
        self._wants_bookmarks = request.is_true(query.get("allowWatchBookmarks"))

    def begin(self, sink: http.Sink) -> None:
        """Called when the head of the answer is out; nothing can be committed between here and the join."""
        collection = self._registry.collection(self._kind)
        if self._version and not self._wants_state and self._is_gone(collection):
            self._refuse(sink, collection)
            return
        group = self._hub.group(self._kind, self._matcher, self._view)
        bookmark = self._bookmark if self._wants_bookmarks else None
        watcher = self._hub.add(group, sink, bookmark)
        watcher.begin(self._first(group, collection), self._timeout_s)

    def _is_gone(self, collection: registry.Collection) -> bool:
        """Whether changes after the asked version have been forgotten."""
        return self._version < max(collection.floor, self._registry.oldest)

    def _first(self, group: watchers.Group, collection: registry.Collection) -> Iterator[bytes]:
        if self._wants_state:
            yield from self._state(group, collection)
        elif self._version:
            is_first = True
            for event in collection.since(self._version):
                frame = group.frame(event, heading=is_first and self._view.has_heading)
                if frame is not None:
                    is_first = False
                    yield frame

    def _state(self, group: watchers.Group, collection: registry.Collection) -> Iterator[bytes]:
        start, end = collection.span(self._matcher.namespace)
        is_first = self._view.has_heading
        predicate = self._matcher.predicate
        for key in collection.keys[start:end]:
            stored = collection.items[key]
            if predicate is None or predicate(stored):
                yield group.encoded(registry.Event("ADDED", stored, None), "ADDED", heading=is_first)
                is_first = False
        if self._is_streaming_list and self._wants_bookmarks:
            yield http.chunk(self._bookmark(self._registry.revision, {INITIAL_EVENTS_END: "true"}))

    def _bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> bytes:
        return self._view.event("BOOKMARK", self._view.bookmark(revision, annotations))

    def _refuse(self, sink: http.Sink, collection: registry.Collection) -> None:
        oldest = max(collection.floor, self._registry.oldest)
        refusal = status.expired(f"too old resource version: {self._version} ({oldest})").document()
        sink.write(http.chunk(self._view.event("ERROR", self._view.refusal(refusal))))
        sink.finish()
