"""Issues and renews the certificates of one cluster's users, in their kubeconfigs, where this machine has their homes.

In: who was granted what, and whom the tree has. Out: certificates in `~/.kube/config`, their dates on the permission
objects, notices. What cannot be done is said with what to do instead, and tried again after an hour or when the tree
changes. Home folders and the name service are asked in threads: both may be on another machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from bedplate.api import permissions
from bedplate.core import clock, errors
from bedplate.core.tasks import TaskGroup
from bedplate.head.entities.people import KubernetesUser
from bedplate.head.notices import one_line
from bedplate.head.objects import Obj
from bedplate.head.people import renewing
from bedplate.head.people.renewing import Need
from bedplate.head.people.telling import Telling
from bedplate.head.service import Head
from bedplate.people import certificates, grants
from bedplate.people.accounts import Account, Accounts
from bedplate.people.cluster import Cluster
from bedplate.people.grants import Grant, Observed
from bedplate.people.issue import Issuer, path_of

__all__ = ["Certifier"]

_AT_ONCE = 8
_RETRY_S = 3600.0
_ROOT = "root"


class Certifier:
    """`look` does what is due; `access` says of a user why there is no valid certificate."""

    def __init__(self, head: Head, accounts: Accounts, telling: Telling, time: clock.Clock) -> None:
        self._head = head
        self._accounts = accounts
        self._telling = telling
        self._time = time
        self._retry_at: dict[str, float] = {}
        self.access: dict[str, str] = {}

    def try_again(self) -> None:
        """Something changed: what failed may work now."""
        self._retry_at.clear()

    async def look(self, cluster: Cluster, issuer: Issuer, observed: Observed, users: Mapping[str, Obj]) -> bool:
        """Issue what is due; whether anything was."""
        present: dict[str, list[Grant]] = {}
        for grant in observed.grants:
            present.setdefault(grant.user, []).append(grant)
        due: dict[str, Need] = {}
        for user, own in present.items():
            is_managed = user in users and bool(KubernetesUser.manage_kubeconfig.value(users[user]))
            what = renewing.need(own, self._time.now(), in_tree=user in users, is_managed=is_managed)
            if what is not Need.NOTHING:
                due[user] = what
        self.access = {user: text for user, text in self.access.items() if user in due}
        turns, now, done = asyncio.Semaphore(_AT_ONCE), self._time.monotonic(), list[str]()

        async def one(user: str, what: Need) -> None:
            async with turns:
                try:
                    await self._issue(cluster, issuer, user, present[user], what, in_tree=user in users)
                    done.append(user)
                    self.access.pop(user, None)
                except errors.BedplateError as err:
                    self._retry_at[user] = now + _RETRY_S
                    self.access[user] = f"the certificate {_fate(present[user])}: {one_line(errors.describe(err))}"

        async with TaskGroup() as group:
            for user, what in due.items():
                if self._retry_at.get(user, 0.0) <= now:
                    group.create_task(one(user, what))
        troubles = {user: f"User {user}: {text}" for user, text in self.access.items()}
        await self._telling.troubles("certificates", troubles)
        return bool(done)

    async def _issue(
        self, cluster: Cluster, issuer: Issuer, user: str, own: Sequence[Grant], what: Need, *, in_tree: bool
    ) -> None:
        if user == _ROOT and what is Need.FIRST:
            # Operators edit users of clusters: none of them decides which cluster root on a head node talks to.
            raise errors.Denied(
                "the head makes no kubeconfig for root", hint=f"set managekubeconfig no; {_by_hand(user)}"
            )
        account = await asyncio.to_thread(self._accounts.find, user)
        if account is None:
            raise errors.NotFound(f"there is no account {user} on the head", hint=_by_hand(user))
        present = await asyncio.to_thread(issuer.present, account)
        if present is not None and self._is_young(present.certificate):
            await issuer.note(own, present)  # somebody else was first
            return
        if present is None and what is Need.RENEWAL and not in_tree:
            raise errors.NotFound(f"{path_of(account)} has no entry of {user} for this cluster", hint=_by_hand(user))
        if not await _is_granted(cluster, own):
            return
        self._head.standing.refuse_writes()
        await self._renew(issuer, account, own, what)

    def _is_young(self, certificate: bytes) -> bool:
        try:
            return self._time.now() < renewing.due_at(*certificates.validity_of(certificate))
        except ValueError:
            return False  # not a certificate

    async def _renew(self, issuer: Issuer, account: Account, own: Sequence[Grant], what: Need) -> None:
        last, life = renewing.newest(own), certificates.LIFE
        if last is not None and last.expires is not None:
            life = renewing.life_of(last.issued, last.expires)
        until = await issuer.issue(account, own, is_current=what is Need.FIRST, life=life)
        verb = "Issued" if what is Need.FIRST else "Renewed"
        text = f"{verb} the certificate of {account.name} in {path_of(account)}: it expires on {until:%Y-%m-%d}"
        await self._telling.tell(text)


async def _is_granted(cluster: Cluster, own: Sequence[Grant]) -> bool:
    """Whether one of the grants is there at this moment: nobody who was removed gets a certificate."""
    for grant in own:
        try:
            obj = await cluster.client.get(grants.USERS, grant.name, permissions.NAMESPACE)
        except errors.NotFound:
            continue
        if not obj["metadata"].get("deletionTimestamp") and grants.owner_of(obj) != grants.LEAVING:
            return True
    return False


def _fate(own: Sequence[Grant]) -> str:
    last = renewing.newest(own)
    if last is None or last.expires is None:
        return "was not issued"
    return f"expires on {last.expires:%Y-%m-%d} and was not renewed"


def _by_hand(user: str) -> str:
    return f"run cm-kubernetes-setup --renew-user {user} where the home folder is"
