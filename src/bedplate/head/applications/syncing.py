"""Keeps the applications of one cluster applied.

In: the tree, the records, a kubeconfig. Out: objects in the cluster, records, notices. An application is looked at when
the tree changes it, when one of its objects changes in the cluster, and every minute; one that fails is tried again
after growing waits and does not keep the others from being applied.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bedplate.api import meta
from bedplate.api.resources import NAMESPACES, ResourceRef
from bedplate.core import errors
from bedplate.core.backoff import Backoff
from bedplate.core.clock import Clock
from bedplate.core.logging import get_logger
from bedplate.head import book as books
from bedplate.head.applications import planning
from bedplate.head.applications.applying import Applier, is_away, manager_of
from bedplate.head.applications.kinds import Kinds
from bedplate.head.applications.passes import Pass
from bedplate.head.applications.planning import Key, Wanted
from bedplate.head.applications.pruning import Pruner
from bedplate.head.applications.records import Application, Item, name_of
from bedplate.head.applications.reporting import told
from bedplate.head.applications.watching import Watches, has_drifted
from bedplate.head.book import Book
from bedplate.head.kubeclusters import until_served
from bedplate.head.notices import Notices, stamp
from bedplate.head.objects import Obj
from bedplate.head.service import Head
from bedplate.kube import Client, config
from bedplate.runtime.controller import Controller, Result
from bedplate.runtime.manager import Manager
from bedplate.runtime.workqueue import RateLimit
from bedplate.store.interface import Store

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["NotApplied", "Sync"]

_LOG = get_logger("head.applications")
RESYNC_S = 60.0
_GOING_S = 2.0
_CALM_S = 300.0
_WORKERS = 4
_QPS = 100.0
_RETRIES = RateLimit(first_s=1.0, cap_s=RESYNC_S)


class NotApplied(errors.Retryable):
    """An application is not as it should be; it is tried again after a while."""


class Sync:
    """The applications of one cluster, while its kubeconfig stays the same."""

    def __init__(
        self, name: str, head: Head, store: Store, book: Book[Application], notices: Notices, clock: Clock
    ) -> None:
        self._name = name
        self._head = head
        self._store = store
        self._book = book
        self._notices = notices
        self._clock = clock
        self._place = ""
        self._parsed: tuple[Obj | None, dict[Key, Wanted]] = (None, {})
        self._applied: dict[Item, meta.ObjectMeta] = {}
        self._drifted: dict[Key, set[Item]] = {}
        self._paces: dict[Key, tuple[float, Backoff]] = {}
        self._kinds: dict[Key, frozenset[ResourceRef[Any]]] = {}
        self._controller = Controller(
            "head-applications", self._reconcile, workers=_WORKERS, limit=_RETRIES, time=clock
        )
        self._client: Client | None = None
        self._served: Kinds | None = None
        self._watches: Watches | None = None
        self.trouble = ""
        """Why the API server cannot be asked; empty while it answers."""

    async def run(self, file: Path) -> None:
        """Keep up until cancelled."""
        try:
            settings = config.load(file, environ={}).with_user_agent("bedplate-head").with_rate(_QPS, 2 * round(_QPS))
            async with Client(settings) as client:
                await until_served(client, self._clock, self._away)
                self._place = (await client.get(NAMESPACES, "kube-system")).metadata.uid
                self._client, self._served = client, Kinds(client)
                self._watches = Watches(client, self._clock, self._changed)
                manager = Manager(client, time=self._clock)
                manager.add(self._controller)
                manager.serve(self._watches.run)
                manager.serve(self._follow)
                self.trouble = ""
                await manager.run()
        except errors.BedplateError as err:
            self.trouble = str(err)
            raise

    def _away(self, why: str) -> None:
        self.trouble = why

    # What there is to do

    def wanted(self) -> dict[Key, Wanted]:
        """The enabled applications of the present tree."""
        cluster = self._head.tree.find("kubernetes", self._name)
        if cluster is not self._parsed[0]:
            self._parsed = cluster, planning.wanted(cluster) if cluster is not None else {}
        return self._parsed[1]

    async def _follow(self) -> None:
        self._look(self._all())
        before = self._head.tree.find("kubernetes", self._name)
        async for _ in self._head.revisions(self._head.revision):
            now = self._head.tree.find("kubernetes", self._name)
            if now is not before:
                before = now
                self._look(self._all())

    def _all(self) -> set[Key]:
        recorded = {
            Key(record.group, record.name) for record in self._book.items().values() if record.cluster == self._name
        }
        return recorded | set(self.wanted())

    def _look(self, keys: Iterable[Key]) -> None:
        for key in keys:
            # A tree that changed is a reason to try at once, however often it has failed before.
            self._controller.queue.forget(str(key))
            self._controller.queue.add(str(key))

    def _changed(self, item: Item, now: meta.ObjectMeta | None) -> None:
        """Somebody has changed an object, maybe we ourselves."""
        key = planning.owners(self.wanted()).get(item.claim)
        if key is None or not has_drifted(self._applied.get(item), now) or (now is not None and now.is_deleting):
            return
        self._drifted.setdefault(key, set()).add(item)
        self._controller.queue.add_after(str(key), self._pace(key))

    def _pace(self, key: Key) -> float:
        """How long to wait with a repair: not at all at first, longer and longer where somebody changes it again and
        again."""
        now = self._clock.monotonic()
        last, backoff = self._paces.get(key, (-_CALM_S, Backoff(first_s=1.0, cap_s=RESYNC_S, jitter=0.0)))
        is_calm = now - last >= _CALM_S
        if is_calm:
            backoff.reset()
        self._paces[key] = now, backoff
        return 0.0 if is_calm else backoff.next()

    # Doing it

    async def _reconcile(self, text: str) -> Result | None:
        key = Key(*text.split("/"))
        if not self._head.standing.is_active or self._head.tree.find("kubernetes", self._name) is None:
            return None
        try:
            result = await self._sync(key)
        except errors.BedplateError as err:
            if is_away(err):
                self.trouble = str(err)
            raise
        self.trouble = ""
        return result

    async def _sync(self, key: Key) -> Result | None:
        assert self._client is not None
        assert self._served is not None
        applications, before = self.wanted(), self._book.get(self._record_name(key))
        application = applications.get(key)
        if before is not None and before.place != self._place:
            # Another cluster than the one of the record: none of those objects is in it.
            await self._forget(key)
            before = None
        if before is None and (application is None or application == Wanted(())):
            return None
        record = before or Application(self._name, key.group, key.name, self._place, since=stamp(self._clock))
        guard, manager = self._head.standing.refuse_writes, manager_of(key)
        work = Pass(
            record,
            application,
            planning.plan(key, applications, record.objects),
            Applier(self._client, self._served, key, guard, self._clock),
            Pruner(self._client, self._served, manager, guard),
            lambda intended: self._save(key, intended),
        )
        drifted = self._drifted.pop(key, set())
        after = await work.run()
        self._cover(key, work)
        await self._conclude(key, before, after, work, sorted(drifted & set(work.applied), key=str))
        if after is None:
            return None
        if after.state == "failed":
            first = after.failures[0]
            raise NotApplied(f"{key}: {first.object}: {first.reason}")
        return Result(_GOING_S if work.going else RESYNC_S)

    async def _conclude(
        self, key: Key, before: Application | None, after: Application | None, work: Pass, repaired: list[Item]
    ) -> None:
        """Keep how the application stands, and tell what became of it."""
        if after is not None:
            is_same = before is not None and (before.state, before.failures) == (after.state, after.failures)
            since = before.since if is_same and before is not None else stamp(self._clock)
            after = msgspec.structs.replace(after, since=since)
        if after != self._book.get(self._record_name(key)):
            await self._save(key, after)
        news = told(
            before,
            after,
            key,
            repaired=repaired,
            deleted=work.deleted,
            kept=work.kept,
            revision=self._head.revision,
        )
        if news:
            await self._notices.add_all(news)
            _LOG.info("head.applications.synced", cluster=self._name, application=str(key), text=news[0].text)

    def _cover(self, key: Key, work: Pass) -> None:
        """Watch what the application has now."""
        assert self._watches is not None
        self._applied.update(work.applied)
        for item in work.deleted:
            self._applied.pop(item, None)
        self._kinds[key] = frozenset(work.kinds)
        self._watches.cover({ref for refs in self._kinds.values() for ref in refs})

    # Records

    def _record_name(self, key: Key) -> str:
        return name_of(self._name, key.group, key.name)

    async def _save(self, key: Key, record: Application | None) -> None:
        self._head.standing.refuse_writes()
        await books.write(self._store, [self._book.change(self._record_name(key), record)])

    async def _forget(self, key: Key) -> None:
        await self._save(key, None)
        text = f"Application {key}: the cluster is another one than before; the objects in the former one were left"
        await self._notices.add(self._name, text, "warning", self._head.revision)
