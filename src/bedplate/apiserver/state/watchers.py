"""Fan-out of events to watch connections.

In: events of a `registry.Collection`. Out: chunks on sinks. Watchers that ask for the same thing form a `Group`: an
event is matched and encoded once for the group and the bytes are shared; all events of one batch go out in one write
per connection. A connection that does not read is cut once `MAX_BACKLOG_BYTES` wait for it, so that its client lists
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from bedplate.apiserver.state import bodies, registry
from bedplate.core import logging
from bedplate.serving import http

__all__ = ["Group", "Matcher", "Watcher", "Watchers"]

log = logging.get_logger("apiserver.watchers")

MAX_BACKLOG_BYTES = 16 * 1024 * 1024
BOOKMARK_INTERVAL_S = 60.0
BOOKMARK_BEFORE_END_S = 2.0


class View(Protocol):
    """How objects are shown to a watcher: `key` names equal views, `show` makes an object's bytes.

    `has_heading` says that the first object of a watch is shown differently (a table's columns).
    """

    key: str
    has_heading: bool

    def show(self, body: bytes, *, heading: bool = False) -> bytes: ...

    def event(self, type: str, shown: bytes) -> bytes: ...


class Matcher(NamedTuple):
    """What a watcher wants to see; `key` is equal for equal wishes."""

    key: str
    namespace: str
    predicate: Callable[[bodies.Stored], bool] | None


class Group:
    """Watchers with the same wishes."""

    __slots__ = ("_first", "key", "matcher", "members", "pending", "view")

    def __init__(self, kind: registry.Kind, matcher: Matcher, view: View) -> None:
        self.key = (kind, matcher.key, view.key)
        self.matcher = matcher
        self.view = view
        self.members: list[Watcher] = []
        self.pending: list[bytes] = []
        self._first: tuple[registry.Event, str] | None = None

    def frame(self, event: registry.Event, *, heading: bool = False) -> bytes | None:
        """The event as this group sees it: an object that starts or stops matching is added or deleted."""
        type = self._type(event)
        return None if type is None else self.encoded(event, type, heading=heading)

    def _type(self, event: registry.Event) -> str | None:
        matcher = self.matcher
        if matcher.namespace and not event.stored.item.startswith(matcher.namespace + "/"):
            return None
        if matcher.predicate is None:
            return event.type
        matches = event.type != "DELETED" and matcher.predicate(event.stored)
        matched = event.previous is not None and matcher.predicate(event.previous)
        if matches:
            return "MODIFIED" if matched else "ADDED"
        return "DELETED" if matched else None

    def encoded(self, event: registry.Event, type: str, *, heading: bool = False) -> bytes:
        key = (self.view.key, type)
        frame = None if heading else event.frames.get(key)
        if frame is None:
            body = event.stored.body
            if type == "DELETED" and event.previous is not None and event.type != "DELETED":
                # It left the selection: clients see what they knew, at the revision of the change.
                body = bodies.respliced(event.previous.body, event.revision)
            shown = self.view.show(body, heading=heading)
            frame = http.chunk(self.view.event(type, shown))
            if not heading:
                event.frames[key] = frame
        return frame

    def offer(self, event: registry.Event) -> bool:
        """Take an event in; whether it is the first since the last `take`."""
        type = self._type(event)
        if type is None:
            return False
        if not self.pending:
            self._first = (event, type)
        self.pending.append(self.encoded(event, type))
        return len(self.pending) == 1

    def take(self) -> tuple[bytes, Callable[[], bytes]]:
        """What has gathered, and the same for a watcher that needs the heading."""
        pending, first = self.pending, self._first
        self.pending, self._first = [], None
        assert first is not None
        return b"".join(pending), lambda: b"".join([self.encoded(*first, heading=True), *pending[1:]])


class Watcher:
    """One watch connection."""

    __slots__ = ("_bookmark", "_bookmark_timer", "_end_timer", "_group", "_loop", "_owner", "needs_heading", "sink")

    def __init__(self, owner: Watchers, group: Group, sink: http.Sink, bookmark: Callable[[int], bytes] | None) -> None:
        self.sink = sink
        self._owner = owner
        self._group = group
        self._bookmark = bookmark
        self.needs_heading = group.view.has_heading
        self._loop = asyncio.get_running_loop()
        self._end_timer: asyncio.TimerHandle | None = None
        self._bookmark_timer: asyncio.TimerHandle | None = None

    def begin(self, frames: Iterable[bytes], timeout_s: float) -> None:
        """Send what comes first and join the group; ends itself after the timeout."""
        first = b"".join(frames)
        if first:
            self.sink.write(first)
            self.needs_heading = False
        self._group.members.append(self)
        self.sink.on_close = self.leave
        self._end_timer = self._loop.call_later(timeout_s, self.end)
        if self._bookmark is not None:
            before_end = timeout_s - BOOKMARK_BEFORE_END_S
            delay = before_end if 0 < before_end < BOOKMARK_INTERVAL_S else BOOKMARK_INTERVAL_S
            self._bookmark_timer = self._loop.call_later(delay, self._send_bookmark)

    def _send_bookmark(self) -> None:
        if self._bookmark is not None:
            self.sink.write(http.chunk(self._bookmark(self._owner.revision)))
            self._bookmark_timer = self._loop.call_later(BOOKMARK_INTERVAL_S, self._send_bookmark)

    def end(self) -> None:
        self.sink.finish()

    def leave(self) -> None:
        for timer in (self._end_timer, self._bookmark_timer):
            if timer is not None:
                timer.cancel()
        self._owner.remove(self, self._group)


class Watchers:
    """All watch connections of a server, grouped."""

    def __init__(self, state: registry.Registry) -> None:
        self._registry = state
        self._groups: dict[registry.Kind, dict[tuple[str, str], Group]] = {}
        self._touched: list[Group] = []
        self.count = 0
        state.flush.append(self._flush)

    @property
    def revision(self) -> int:
        return self._registry.revision

    def group(self, kind: registry.Kind, matcher: Matcher, view: View) -> Group:
        groups = self._groups.get(kind)
        if groups is None:
            groups = self._groups[kind] = {}
            self._registry.collection(kind).sinks.append(lambda event: self._dispatch(groups, event))
        key = (matcher.key, view.key)
        group = groups.get(key)
        if group is None:
            group = groups[key] = Group(kind, matcher, view)
        return group

    def add(self, group: Group, sink: http.Sink, bookmark: Callable[[int], bytes] | None) -> Watcher:
        self.count += 1
        return Watcher(self, group, sink, bookmark)

    def remove(self, watcher: Watcher, group: Group) -> None:
        if watcher in group.members:
            self.count -= 1
            group.members.remove(watcher)
            if not group.members:
                kind, matcher, view = group.key
                self._groups[kind].pop((matcher, view), None)

    def _dispatch(self, groups: dict[tuple[str, str], Group], event: registry.Event) -> None:
        for group in tuple(groups.values()):
            try:
                if group.offer(event):
                    self._touched.append(group)
            except Exception:
                # What one kind of watcher cannot be shown must not stop the others: they list again.
                log.exception("watch.event_not_shown", item=event.stored.item, view=group.view.key)
                for watcher in tuple(group.members):
                    watcher.end()

    def _flush(self) -> None:
        touched, self._touched = self._touched, []
        for group in touched:
            data, with_heading = group.take()
            for watcher in tuple(group.members):
                sink = watcher.sink
                sink.write(with_heading() if watcher.needs_heading else data)
                watcher.needs_heading = False
                if sink.backlog_bytes > MAX_BACKLOG_BYTES:
                    sink.cut()
