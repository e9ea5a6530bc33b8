"""Carry out one request of the user management.

In: a `Request`, where to write, and for tests the accounts, the clock and the answers to questions. Out: an exit code;
results on `out`, errors as `BedplateError`, which `perform` turns into one message and a code. Everything that can be
refused is refused before the first write.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TextIO

import msgspec

from bedplate.core import clock, errors
from bedplate.kube import Client, config
from bedplate.kube.config import ClientConfig
from bedplate.people import certificates, issue, plan, settings
from bedplate.people.accounts import PKI, Account, Accounts, SystemAccounts
from bedplate.people.certificates import Authority
from bedplate.people.cluster import Cluster
from bedplate.people.grants import Observed
from bedplate.people.settings import Settings
from bedplate.serving.files import write_private
from bedplate.setup.people import backup, flags, questions, views
from bedplate.setup.people.request import Action, Request
from bedplate.setup.people.request import Cluster as ClusterChoice

__all__ = ["Surroundings", "perform"]

MAX_BACKUP_BYTES = 256 << 20
SHOWN_PODS = 5


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a request finds around it besides the cluster."""

    accounts: Accounts = msgspec.field(default_factory=SystemAccounts)
    time: clock.Clock = msgspec.field(default_factory=clock.SystemClock)
    ask: questions.Ask = input
    pki: Path = PKI


class Desk(msgspec.Struct, frozen=True, kw_only=True):
    """One request at work."""

    request: Request
    given: Settings
    chosen: ClusterChoice
    settings: ClientConfig
    cluster: Cluster
    around: Surroundings
    out: TextIO

    def say(self, text: str) -> None:
        """Write a line of the result."""
        print(text, file=self.out)

    def issuer(self) -> issue.Issuer:
        """Who issues certificates for this request."""
        request, around = self.request, self.around
        given = None
        if request.ca_certificate is not None and request.ca_key is not None:
            given = Authority(request.ca_certificate, request.ca_key)
        name = self.chosen.name or request.cluster
        return issue.Issuer(name, self.settings, self.cluster, around.time, around.pki, given)

    @property
    def life(self) -> timedelta:
        """How long a new certificate is valid."""
        return certificates.LIFE if self.request.days is None else timedelta(days=self.request.days)


def perform(
    request: Request, out: TextIO, *, surroundings: Surroundings | None = None, errors_to: TextIO | None = None
) -> int:
    """Carry out a request in an event loop of its own; the exit code. Errors are one message on standard error."""
    try:
        asyncio.run(carry_out(request, out, surroundings or Surroundings()))
    except errors.BedplateError as err:
        if request.verbose:
            raise
        print("cm-kubernetes-setup: " + errors.describe(err), file=errors_to or sys.stderr)
        return err.exit_code
    return 0


async def carry_out(request: Request, out: TextIO, around: Surroundings) -> None:
    """The same in a running event loop; refusals and failures are errors."""
    if request.is_interactive:
        request = questions.ask_all(request, around.ask, around.accounts)
    given, problems = flags.read(request)
    if problems:
        raise errors.Invalid(f"{request.action} cannot be carried out", problems=problems)
    if request.action in (Action.ADD, Action.RENEW):
        _account(request.user, around.accounts)
    chosen = choose(request)
    connection = config.load(chosen.kubeconfig).with_rate(-1, 1).with_user_agent("cm-kubernetes-setup")
    async with Client(connection) as client:
        desk = Desk(
            request=request,
            given=given,
            chosen=chosen,
            settings=connection,
            cluster=Cluster(client, around.time, request.timeout_s),
            around=around,
            out=out,
        )
        await _ACTIONS[request.action](desk, await desk.cluster.observe())


def choose(request: Request) -> ClusterChoice:
    """The cluster that a request is about."""
    if not request.clusters:
        raise errors.Invalid(
            "there is no cluster",
            hint="name one with --cluster-kubeconfig FILE, or set one up with cm-kubernetes-setup",
        )
    names = ", ".join(cluster.name for cluster in request.clusters)
    if not request.cluster:
        if len(request.clusters) > 1:
            raise errors.Invalid(f"there are several clusters: {names}", hint="choose one with --cluster")
        return request.clusters[0]
    for cluster in request.clusters:
        if cluster.name in (request.cluster, ""):
            return cluster
    raise errors.Invalid(f"there is no cluster {request.cluster!r}", hint=f"known clusters: {names}")


def _account(user: str, accounts: Accounts) -> Account:
    account = accounts.find(user)
    if account is None:
        raise errors.NotFound(
            f"there is no account {user!r} on this machine; nothing was changed",
            hint=f"create it first (getent passwd {user} must find it)",
        )
    return account


async def _add(desk: Desk, observed: Observed) -> None:
    account = _account(desk.request.user, desk.around.accounts)
    changes = plan.add(account, desk.given, observed, is_shared=desk.request.add_to_namespace)
    issuer = desk.issuer()
    issuer.check(account)
    await desk.cluster.carry_out(changes)
    grant = plan.grant_of(account.name, desk.given.namespace, await desk.cluster.observe())
    try:
        expires = await issuer.issue(account, [grant], is_current=True, life=desk.life)
    except errors.BedplateError as err:
        steps = (err.hint, f"run --renew-user {account.name}")
        raise errors.Terminal(
            f"the user {account.name!r} was added, but has no certificate yet: {err}",
            hint="; then ".join(filter(None, steps)),
        ) from err
    desk.say(f"Added user {account.name}: role {grant.role} in namespace {views.namespace_of(grant)}.")
    desk.say(f"Kubeconfig: {issue.path_of(account)}; the certificate expires on {expires:%Y-%m-%d}.")


async def _modify(desk: Desk, observed: Observed) -> None:
    user, namespace = desk.request.user, desk.given.namespace
    if desk.request.remove_from_namespace:
        assert namespace is not None, "settings.read refuses --remove-from-namespace without one"
        changes = plan.revoke(user, namespace, observed)
        if namespace in plan.namespaces_alone(user, observed):
            await _refuse_running(desk, [namespace], f"{user} cannot be removed from {namespace}")
        await desk.cluster.carry_out(changes, keeps_bindings=desk.request.force)
        await desk.cluster.ending([namespace])
        left = _left(await desk.cluster.bindings_of(user, namespace), user)
        desk.say(
            f"User {user} in {namespace}: {left}"
            if left
            else f"User {user} has no rights in namespace {namespace} any more."
        )
        return
    changes = plan.modify(user, desk.given, observed, is_shared=desk.request.add_to_namespace)
    if desk.given.role == settings.CLUSTER_ADMIN:
        # The user's own namespace goes with the role that needed it.
        before = plan.grant_of(user, namespace, observed)
        if before.role != settings.CLUSTER_ADMIN and before.namespace in plan.namespaces_alone(user, observed):
            await _refuse_running(desk, [before.namespace], f"{user} cannot become {settings.CLUSTER_ADMIN}")
    await desk.cluster.carry_out(changes)
    desk.say(f"Changed user {user}." if changes else f"User {user} is already as requested.")


async def _refuse_running(desk: Desk, namespaces: list[str], what: str) -> None:
    """Nobody loses work unasked."""
    if desk.request.force:
        return
    pods = await desk.cluster.running_pods(namespaces)
    if pods:
        more = f" and {len(pods) - SHOWN_PODS} more" if len(pods) > SHOWN_PODS else ""
        raise errors.Invalid(
            f"{what} while pods run: {', '.join(pods[:SHOWN_PODS])}{more}; nothing was changed",
            hint="delete them, or repeat the command with --force",
        )


def _left(bindings: list[str], user: str) -> str:
    """What to say of bindings that others made; "" where there are none."""
    if not bindings:
        return ""
    return f"the granted rights are gone. Others gave {user} rights that stay: {', '.join(bindings)}."


async def _remove(desk: Desk, observed: Observed) -> None:
    user = desk.request.user
    changes = plan.remove(user, observed)
    await _refuse_running(desk, plan.namespaces_alone(user, observed), f"the user {user!r} cannot be removed")
    await desk.cluster.carry_out(changes, keeps_bindings=desk.request.force)
    left = _left(await desk.cluster.bindings_of(user), user)
    desk.say(f"Removed user {user}: {left or 'their certificate gives no rights any more.'}")
    # The account may have been deleted already; the rights must go all the same.
    account = desk.around.accounts.find(user)
    if account is not None and desk.issuer().forget(account):
        desk.say(f"Kubeconfig: the entries of {user} were removed from {issue.path_of(account)}.")
    for namespace in await desk.cluster.ending(plan.namespaces_alone(user, observed)):
        desk.say(f"Namespace {namespace} is still being deleted.")


async def _renew(desk: Desk, observed: Observed) -> None:
    grants = plan.grants_of(desk.request.user, observed)
    account = _account(desk.request.user, desk.around.accounts)
    issuer = desk.issuer()
    issuer.check(account)
    expires = await issuer.issue(account, grants, is_current=False, life=desk.life)
    desk.say(f"Renewed the certificate of {account.name}: it expires on {expires:%Y-%m-%d}.")


async def _list(desk: Desk, observed: Observed) -> None:
    desk.say(views.json_of(observed.grants) if desk.request.as_json else views.table(observed.grants))


async def _get(desk: Desk, observed: Observed) -> None:
    grants = plan.grants_of(desk.request.user, observed)
    if desk.given.namespace is not None:
        grants = [plan.grant_of(desk.request.user, desk.given.namespace, observed)]
    desk.say(views.json_of(grants) if desk.request.as_json else views.described(grants))


async def _backup(desk: Desk, observed: Observed) -> None:
    file = _file(desk.request)
    write_private(file, backup.text_of(observed).encode())
    count = sum(len(objects) for objects in observed.objects.values())
    desk.say(f"Saved {count} permission objects to {file}.")


async def _restore(desk: Desk, observed: Observed) -> None:
    file = _file(desk.request)
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(MAX_BACKUP_BYTES)
    except (OSError, UnicodeDecodeError) as err:
        raise errors.Invalid(f"the backup {file} cannot be read: {err}") from err
    changes = backup.read(text, observed)
    await desk.cluster.restore(changes)
    await desk.cluster.wait(changes)
    desk.say(f"Restored {len(changes)} permission objects from {file}; the others were already as in the file.")


def _file(request: Request) -> Path:
    if request.file is None or not str(request.file):
        raise errors.Invalid(f"{request.action} needs a file")
    return request.file


_ACTIONS: dict[Action, Callable[[Desk, Observed], Awaitable[None]]] = {
    Action.ADD: _add,
    Action.MODIFY: _modify,
    Action.REMOVE: _remove,
    Action.LIST: _list,
    Action.GET: _get,
    Action.RENEW: _renew,
    Action.BACKUP: _backup,
    Action.RESTORE: _restore,
}
