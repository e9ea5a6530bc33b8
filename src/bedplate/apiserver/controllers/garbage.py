"""What is deleted because nobody needs it: objects of deleted owners, which go with them or are set free; old Events.

In: every committed change of every kind. Out: deletions of dependents whose owners are all gone (background), removal
of the `foregroundDeletion` finalizer once no blocking dependent is left, and of the `orphan` finalizer once
dependents are freed. An owner is gone only when the registry, which holds everything, has no object of that uid:
never because a look-up failed. Events older than an hour are deleted; `expired` is pure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from bedplate.apiserver import hooks, services
from bedplate.apiserver.access import subjects
from bedplate.apiserver.controllers.loop import Loop, absent_is_fine, insist
from bedplate.apiserver.controllers.namespaces import stored_kinds
from bedplate.core import clock as clocks
from bedplate.core.tasks import TaskGroup

__all__ = ["expired", "run", "run_expiry"]

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
_KINDS_POLL_S = 0.2
LIFETIME = timedelta(hours=1)
"""How long an Event stays after it was last seen."""
_EXPIRY_S = 60.0


class Ref(NamedTuple):
    """Where an object is kept."""

    group: str
    resource: str
    namespace: str
    name: str


class _Owner(msgspec.Struct):
    uid: str = ""
    kind: str = ""
    name: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")
    blocks: bool | None = msgspec.field(default=False, name="blockOwnerDeletion")


class _Meta(msgspec.Struct):
    uid: str = ""
    owners: list[_Owner] = msgspec.field(default_factory=list, name="ownerReferences")
    finalizers: list[str] = []
    deleted: str | None = msgspec.field(default="", name="deletionTimestamp")


class _Thing(msgspec.Struct):
    metadata: _Meta


_decode = msgspec.json.Decoder(_Thing).decode


class Graph:
    """Who exists (by uid), where, and who names whom as owner."""

    def __init__(self) -> None:
        self.places: dict[str, Ref] = {}
        self.metas: dict[str, _Meta] = {}
        self.dependents: dict[str, set[str]] = {}

    def note(self, ref: Ref, meta: _Meta, *, is_gone: bool) -> Iterable[str]:
        """Take in a change; the uids to look at."""
        previous = self.metas.get(meta.uid)
        for owner in previous.owners if previous is not None else ():
            self.dependents.get(owner.uid, set()).discard(meta.uid)
            if not self.dependents.get(owner.uid):
                self.dependents.pop(owner.uid, None)
        owners = list(dict.fromkeys(owner.uid for owner in [*(previous.owners if previous else ()), *meta.owners]))
        if is_gone:
            self.places.pop(meta.uid, None)
            self.metas.pop(meta.uid, None)
            return [*owners, *self.dependents.get(meta.uid, ())]
        self.places[meta.uid] = ref
        self.metas[meta.uid] = meta
        for owner in meta.owners:
            self.dependents.setdefault(owner.uid, set()).add(meta.uid)
        return [meta.uid, *owners] if meta.owners or meta.deleted else owners


class Collector:
    """Keeps the graph and acts on it."""

    def __init__(self, parts: services.Services) -> None:
        self._parts = parts
        self._client = parts.client.acting_as(subjects.LOOPBACK, "garbage-collector")
        self._graph = Graph()
        self._loop: Loop[str] = Loop("garbage", self._client, self._look)
        self._followed: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Follow every kind there is, and those that come, until cancelled."""
        async with TaskGroup() as tasks:
            generation = -1
            # Judge only with a complete graph: a dependent not yet seen would not be freed, and then be collected.
            self._load()
            self._follow_new(tasks)
            tasks.create_task(self._loop.work())
            while True:
                if generation != self._parts.kinds.generation:
                    generation = self._parts.kinds.generation
                    self._follow_new(tasks)
                await asyncio.sleep(_KINDS_POLL_S)

    def _load(self) -> None:
        """Take in everything there is."""
        for kind in stored_kinds(self._parts):
            for stored in self._parts.registry.items((kind.group, kind.resource)):
                ref = Ref(kind.group, kind.resource, stored.namespace, stored.name)
                self._note(ref, stored.body, is_gone=False)

    def _note(self, ref: Ref, body: bytes, *, is_gone: bool) -> None:
        for uid in self._graph.note(ref, _decode(body).metadata, is_gone=is_gone):
            self._loop.add(uid)

    def _follow_new(self, tasks: TaskGroup) -> None:
        stored = {(kind.group, kind.resource) for kind in stored_kinds(self._parts)}
        for key in stored - set(self._followed):
            self._followed[key] = tasks.create_task(self._follow(*key))
        for key in set(self._followed) - stored:
            self._followed.pop(key).cancel()

    async def _follow(self, group: str, resource: str) -> None:
        with self._client.watch(group, resource) as changes:
            async for change in changes:
                ref = Ref(group, resource, change.namespace, change.name)
                self._note(ref, change.body, is_gone=change.type == "DELETED")

    async def _look(self, uid: str) -> None:
        meta, ref = self._graph.metas.get(uid), self._graph.places.get(uid)
        if meta is None or ref is None:
            return
        if meta.deleted and ORPHAN in meta.finalizers:
            await self._free_dependents(uid)
            await self._drop_finalizer(ref, uid, ORPHAN)
        elif meta.deleted and FOREGROUND in meta.finalizers:
            await self._delete_dependents(uid)
            if not any(self._is_blocking(dependent, uid) for dependent in self._graph.dependents.get(uid, ())):
                await self._drop_finalizer(ref, uid, FOREGROUND)
        elif not meta.deleted and meta.owners:
            await self._judge(ref, uid, meta)

    async def _judge(self, ref: Ref, uid: str, meta: _Meta) -> None:
        """Delete an object all of whose owners are gone, or are going and wait for it."""
        alive = [owner for owner in meta.owners if self._is_there(owner, ref)]
        waiting = [owner for owner in alive if self._waits(owner.uid)]
        if alive and len(waiting) < len(alive):
            await self._let_go(ref, uid, {owner.uid for owner in meta.owners} - {owner.uid for owner in alive})
            return
        dependents = self._graph.dependents.get(uid, set())
        if waiting and any(self._waits(dependent) for dependent in dependents):
            await self._unblock(ref, uid)
        policy = "Foreground" if waiting and dependents else "Background"
        if FOREGROUND in meta.finalizers:
            policy = "Foreground"
        if ORPHAN in meta.finalizers:
            policy = "Orphan"
        options = {"propagationPolicy": policy, "preconditions": {"uid": uid}}
        await absent_is_fine(self._client.delete(ref.group, ref.resource, ref.namespace, ref.name, options))

    async def _let_go(self, ref: Ref, uid: str, owners: set[str]) -> None:
        """Take references to these owners off an object that stays."""

        def freed(metadata: hooks.Object) -> hooks.Object:
            references = metadata.get("ownerReferences") or []
            return {"ownerReferences": [each for each in references if each.get("uid") not in owners] or None}

        if owners:
            await self._amend(ref, uid, freed)

    async def _unblock(self, ref: Ref, uid: str) -> None:
        """Break a circle of owners that each wait for the other: this one no longer blocks its own."""

        def unblocked(metadata: hooks.Object) -> hooks.Object | None:
            references = metadata.get("ownerReferences") or []
            if not any(each.get("blockOwnerDeletion") for each in references):
                return None
            return {"ownerReferences": [{**each, "blockOwnerDeletion": False} for each in references]}

        await self._amend(ref, uid, unblocked)

    async def _amend(self, ref: Ref, uid: str, change: Callable[[hooks.Object], hooks.Object | None]) -> None:
        """Patch an object's metadata with what `change` makes of it, if the object is still the one of that uid."""
        obj = self._client.get(*ref)
        if obj is None or obj["metadata"]["uid"] != uid:
            return
        metadata = change(obj["metadata"])
        if metadata is not None:
            metadata |= {"uid": uid, "resourceVersion": obj["metadata"]["resourceVersion"]}
            await absent_is_fine(self._client.patch(*ref, {"metadata": metadata}))

    def _is_there(self, owner: _Owner, dependent: Ref) -> bool:
        place = self._graph.places.get(owner.uid)
        if place is not None:
            return place.namespace in ("", dependent.namespace)
        kind = self._parts.kinds.by_api_version(owner.api_version, owner.kind)
        if kind is None:
            # A kind that is not served (any more, or not yet) says nothing about its objects.
            return True
        # The graph may not have heard of it yet: a kind just defined, an owner just created. The registry has.
        namespace = dependent.namespace if kind.namespaced else ""
        live = self._client.get(kind.stored_at[0], kind.stored_at[2], namespace, owner.name)
        return live is not None and live["metadata"].get("uid") == owner.uid

    def _waits(self, uid: str) -> bool:
        meta = self._graph.metas.get(uid)
        return meta is not None and bool(meta.deleted) and FOREGROUND in meta.finalizers

    def _is_blocking(self, dependent: str, owner: str) -> bool:
        meta = self._graph.metas.get(dependent)
        return meta is not None and any(reference.uid == owner and reference.blocks for reference in meta.owners)

    async def _delete_dependents(self, owner: str) -> None:
        for uid in list(self._graph.dependents.get(owner, ())):
            meta = self._graph.metas.get(uid)
            if meta is not None and not meta.deleted:
                self._loop.add(uid)

    async def _free_dependents(self, owner: str) -> None:
        for uid in list(self._graph.dependents.get(owner, ())):
            ref = self._graph.places.get(uid)
            if ref is not None:
                await self._let_go(ref, uid, {owner})

    async def _drop_finalizer(self, ref: Ref, uid: str, finalizer: str) -> None:
        def dropped(metadata: hooks.Object) -> hooks.Object:
            return {"finalizers": [name for name in metadata.get("finalizers") or [] if name != finalizer] or None}

        await self._amend(ref, uid, dropped)


async def run(parts: services.Services) -> None:
    """Run until cancelled."""
    await Collector(parts).run()


async def run_expiry(parts: services.Services) -> None:
    """Delete old events until cancelled."""
    client = parts.client.acting_as(subjects.LOOPBACK, "event-expiry")

    async def sweep() -> None:
        for namespace, name in expired(client.list("", "events"), parts.clock.now()):
            await absent_is_fine(client.delete("", "events", namespace, name))

    await insist("event-expiry", _EXPIRY_S, parts.clock, sweep)


def expired(events: Iterable[hooks.Object], now: datetime) -> list[tuple[str, str]]:
    """Namespace and name of the events last seen more than `LIFETIME` ago."""
    event_keys = []
    for event in events:
        last = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
        series = event.get("series") or {}
        last = max(str(last or ""), str(series.get("lastObservedTime") or ""))
        try:
            is_old = bool(last) and clocks.parse_rfc3339(last) < now - LIFETIME
        except ValueError:
            is_old = True  # not a valid time: the event will never be renewed
        if is_old:
            event_keys.append((str(event["metadata"]["namespace"]), str(event["metadata"]["name"])))
    return event_keys
