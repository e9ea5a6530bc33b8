"""Keeps the users of one cluster as the tree says, with their certificates.

In: the tree, the records, accounts of this machine, a kubeconfig. Out: permission objects, which the permission manager
turns into rights; certificates in users' kubeconfigs; records and notices. A pass follows a change of the tree at once,
what was not ready soon, and everything every minute. One user's failure does not stop the others; one that cannot be
asked about (an account server that is away, a cluster that does not answer) loses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec

from bedplate.api import permissions
from bedplate.api.headapi import PeopleState
from bedplate.api.resources import NAMESPACES
from bedplate.core import clock, errors
from bedplate.core.logging import get_logger
from bedplate.core.tasks import TaskGroup
from bedplate.head import book as books
from bedplate.head.book import Book
from bedplate.head.entities.people import KubernetesUser
from bedplate.head.notices import Notices, one_line
from bedplate.head.objects import Obj
from bedplate.head.people import deciding, records, views
from bedplate.head.people.certifying import Certifier
from bedplate.head.people.deciding import Verdict
from bedplate.head.people.records import Person
from bedplate.head.people.telling import Telling
from bedplate.head.service import Head
from bedplate.kube import Client, config
from bedplate.people import grants, plan
from bedplate.people.accounts import PKI, Account, Accounts
from bedplate.people.cluster import Cluster
from bedplate.people.grants import Grant, Observed
from bedplate.people.issue import Issuer, path_of
from bedplate.people.plan import Change
from bedplate.people.settings import CLUSTER_ADMIN
from bedplate.store.interface import Store

__all__ = ["Upkeep"]

_LOG = get_logger("head.people")
MANAGER = "bedplate-head"
RESYNC_S = 60.0
SOON_S = 1.0
_AT_ONCE = 16
_QPS = 200.0
_TIMEOUT_S = 30.0
_ACCOUNT_S = 600.0
_NO_ACCOUNT_S = 30.0
_SHOWN_PODS = 3
Key = tuple[str, str]
Found = Account | errors.BedplateError | None


class Upkeep:
    """The users of one cluster, while its kubeconfig stays the same."""

    def __init__(
        self,
        name: str,
        head: Head,
        store: Store,
        book: Book[Person],
        notices: Notices,
        accounts: Accounts,
        time: clock.Clock,
        pki: Path = PKI,
    ) -> None:
        self._name = name
        self._head = head
        self._store = store
        self._book = book
        self._accounts = accounts
        self._time = time
        self._pki = pki
        self._wake = asyncio.Event()
        self._place = ""
        self._known: dict[str, tuple[float, Found]] = {}
        self._observed: Observed | None = None
        self._verdicts: dict[Key, Verdict] = {}
        self._reasons: dict[Key, str] = {}
        self._telling = Telling(name, notices)
        self._certifier = Certifier(head, accounts, self._telling, time)
        self._trouble = "the cluster has not answered yet"

    def state(self) -> PeopleState:
        """Who may do what, as of the last pass."""
        if self._observed is None:
            return PeopleState(cluster=self._name, reached=False, trouble=self._trouble)
        people = views.shown(
            self._name, self._observed.grants, self._verdicts, self._reasons, self._certifier.access, self._users()
        )
        return PeopleState(cluster=self._name, reached=not self._trouble, trouble=self._trouble, people=people)

    async def run(self, file: Path) -> None:
        """Keep up until cancelled."""
        settings = config.load(file, environ={}).with_user_agent(MANAGER).with_rate(_QPS, 2 * round(_QPS))
        async with Client(settings) as client, TaskGroup() as tasks:
            cluster = Cluster(client, self._time, _TIMEOUT_S, MANAGER)
            issuer = Issuer(self._name, settings, cluster, self._time, self._pki)
            tasks.create_task(self._follow())
            while True:
                self._wake.clear()
                try:
                    pause_s = await self._pass(cluster, issuer)
                    self._trouble = ""
                except errors.BedplateError as err:
                    # Without users a cluster need not have a permission manager.
                    self._trouble, pause_s = one_line(errors.describe(err)), RESYNC_S if not self._users() else 5.0
                    _LOG.v(1).info("head.people.not_asked", cluster=self._name, error=str(err))
                await clock.sleep_unless(self._wake, pause_s, self._time)

    async def _follow(self) -> None:
        before = self._head.tree.find("kubernetes", self._name)
        async for _ in self._head.revisions(self._head.revision):
            now = self._head.tree.find("kubernetes", self._name)
            if now is not before:
                before = now
                self._known.clear()
                self._certifier.try_again()
                self._wake.set()

    def _users(self) -> Mapping[str, Obj]:
        cluster = self._head.tree.find("kubernetes", self._name)
        return cluster.below("kubernetes_users") if cluster is not None else {}

    # One pass

    async def _pass(self, cluster: Cluster, issuer: Issuer) -> float:
        """Look at everything once; how long to wait until the next time."""
        self._place = (await cluster.client.get(NAMESPACES, "kube-system")).metadata.uid
        observed = await cluster.observe()
        users = self._users()
        accounts = await self._look_up(users)
        verdicts: dict[Key, Verdict] = {}
        reasons: dict[Key, str] = {}
        for name, user in users.items():
            try:
                account = accounts[name]
                if isinstance(account, errors.BedplateError):
                    raise account
                targets = deciding.wanted(user, account)
            except errors.BedplateError as err:
                reasons[name, KubernetesUser.own_namespace(user)] = one_line(errors.describe(err))
                continue
            for verdict in deciding.decide(targets, observed, self._recorded(name)):
                verdicts[name, verdict.grant.namespace] = verdict
        for record in self._left(users):
            own = [grant for grant in observed.grants if grant.user == record.user]
            for verdict in deciding.removal(own, observed, record.objects):
                verdicts[record.user, verdict.grant.namespace] = verdict
        await self._carry_out(cluster, verdicts, observed, reasons)
        if any(verdict.changes for verdict in verdicts.values()):
            observed = await cluster.observe()
        await self._forget(users, observed, issuer)
        self._observed, self._verdicts, self._reasons = observed, verdicts, reasons
        await self._tell_troubles()
        has_issued = await self._certifier.look(cluster, issuer, observed, users)
        is_moving = has_issued or any(verdict.changes for verdict in verdicts.values())
        is_waiting = any(
            grant.owner == grants.OWNED and not grant.is_ready and not grant.message for grant in observed.grants
        )
        return SOON_S if is_moving or is_waiting else RESYNC_S

    def _recorded(self, user: str) -> tuple[str, ...]:
        record = self._book.get(records.name_of(self._name, user))
        return record.objects if record is not None and record.place == self._place else ()

    def _left(self, users: Mapping[str, Obj]) -> list[Person]:
        """Records of users whom the tree has no more."""
        return [
            record
            for record in self._book.items().values()
            if record.cluster == self._name and record.place == self._place and record.user not in users
        ]

    async def _look_up(self, users: Mapping[str, Obj]) -> dict[str, Found]:
        """Accounts, in a thread: the name service may be another machine. One that could not be asked about is the
        error, or the account as it was known before."""
        now = self._time.monotonic()
        stale = [name for name in users if self._known.get(name, (0.0, None))[0] <= now]

        def find(name: str) -> Found:
            try:
                return self._accounts.find(name)
            except errors.BedplateError as err:
                before = self._known.get(name, (0.0, None))[1]
                return before if isinstance(before, Account) else err

        results = await asyncio.to_thread(lambda: [find(each) for each in stale])
        for name, result in zip(stale, results, strict=True):
            self._known[name] = (now + (_ACCOUNT_S if isinstance(result, Account) else _NO_ACCOUNT_S), result)
        return {name: self._known[name][1] for name in users}

    async def _carry_out(
        self, cluster: Cluster, verdicts: Mapping[Key, Verdict], observed: Observed, reasons: dict[Key, str]
    ) -> None:
        turns = asyncio.Semaphore(_AT_ONCE)

        async def one(key: Key, verdict: Verdict) -> None:
            async with turns:
                try:
                    if verdict.is_removal:
                        obstacle = await self._remove(cluster, verdict, observed)
                        if obstacle:
                            reasons[key] = obstacle
                    else:
                        await self._make(cluster, verdict)
                except errors.BedplateError as err:
                    reasons[key] = one_line(errors.describe(err))

        # Rights of one user are recorded one after the other: two of them must not write one record at once.
        async def all_of(own: list[tuple[Key, Verdict]]) -> None:
            for key, verdict in own:
                await one(key, verdict)

        by_user: dict[str, list[tuple[Key, Verdict]]] = {}
        for key, verdict in verdicts.items():
            if verdict.changes:
                by_user.setdefault(key[0], []).append((key, verdict))
        async with TaskGroup() as group:
            for own in by_user.values():
                group.create_task(all_of(own))

    async def _make(self, cluster: Cluster, verdict: Verdict) -> None:
        grant = verdict.grant
        self._head.standing.refuse_writes()
        await self._record(grant.user, {deciding.key_of(change) for change in verdict.changes})
        for change in verdict.changes:
            await cluster.write(change)
        where = f"in namespace {grant.namespace}" if not _is_everywhere(grant) else "in the whole cluster"
        if verdict.is_adopted:
            await self._telling.tell(f"User {grant.user} {where}: taken over as it was, the tree keeps it from now on")
        elif verdict.before is None:
            await self._telling.tell(f"User {grant.user}: role {grant.role} {where}")
        elif other := deciding.differences(verdict.before, grant):
            await self._telling.tell(f"User {grant.user} {where} was changed to what the tree says: {', '.join(other)}")

    async def _remove(self, cluster: Cluster, verdict: Verdict, observed: Observed) -> str:
        """Remove a grant; why it cannot go yet."""
        grant = verdict.grant
        self._head.standing.refuse_writes()
        if not _is_everywhere(grant) and grant.namespace in plan.namespaces_alone(grant.user, observed):
            pods = await cluster.running_pods([grant.namespace])
            if pods:
                if grant.owner != grants.LEAVING:
                    leaving = msgspec.structs.replace(grant, owner=grants.LEAVING)
                    for change in plan.changes(grant, leaving, observed):
                        await cluster.write(change)
                more = f" and {len(pods) - _SHOWN_PODS} more" if len(pods) > _SHOWN_PODS else ""
                return (
                    f"pods run: {', '.join(pods[:_SHOWN_PODS])}{more}; delete them, or run cm-kubernetes-setup"
                    f" --remove-user {grant.user} --force"
                )
        present = [change for change in verdict.changes if not _is_going(change)]
        for change in present:
            await cluster.write(change)
        where = f"in namespace {grant.namespace}" if not _is_everywhere(grant) else "in the whole cluster"
        if present:
            await self._telling.tell(f"User {grant.user} has no rights {where} any more")
        states = [grants.state_of(change.before) for change in verdict.changes]
        return "; ".join(one_line(each.message) for each in states if each.reason in permissions.HELD)

    async def _record(self, user: str, more: set[str]) -> None:
        """Record objects before they are there."""
        known = self._recorded(user)
        if more <= set(known):
            return
        record = Person(self._name, user, self._place, (*known, *sorted(more - set(known))))
        await books.write(self._store, [self._book.change(records.name_of(self._name, user), record)])

    async def _forget(self, users: Mapping[str, Obj], observed: Observed, issuer: Issuer) -> None:
        """Whoever left the tree and the cluster: their entries in the kubeconfig, and the record."""
        there = {grant.user for grant in observed.grants}
        for record in self._left(users):
            if record.user in there:
                continue
            try:
                account = await asyncio.to_thread(self._accounts.find, record.user)
                if account is not None and await asyncio.to_thread(issuer.forget, account):
                    await self._telling.tell(f"User {record.user}: the entries in {path_of(account)} were removed")
            except errors.BedplateError as err:
                await self._telling.tell(f"User {record.user}: the kubeconfig was left as it is: {err}")
            await books.write(self._store, [self._book.change(records.name_of(self._name, record.user), None)])
        for name, record in list(self._book.items().items()):
            # Another cluster behind the same name has none of these objects.
            if record.cluster == self._name and record.place != self._place:
                await books.write(self._store, [self._book.change(name, None)])

    async def _tell_troubles(self) -> None:
        lines = dict(self._reasons)
        for key, verdict in self._verdicts.items():
            if verdict.problem or verdict.conflict:
                lines.setdefault(key, verdict.problem or verdict.conflict)
        troubles = {key: f"User {key[0]} in namespace {key[1]}: {text}" for key, text in lines.items()}
        await self._telling.troubles("rights", troubles)


def _is_everywhere(grant: Grant) -> bool:
    return grant.role == CLUSTER_ADMIN


def _is_going(change: Change) -> bool:
    """An object that was deleted before, and that a finalizer holds: there is nothing to do, and nothing to tell."""
    return bool(((change.before or {}).get("metadata") or {}).get("deletionTimestamp"))
