"""Reads what the checks of address management judge: definitions, pools, programs, accounts, the webhook.

In: a client. Out: `IpamFacts`, in which what could not be read is the error itself, and what is not there is None. It
writes nothing: access reviews change nothing, and the pool that tries the webhook is a dry run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bedplate.api import coordination, core, discovery, names, resources
from bedplate.cli.doctor import reading
from bedplate.cli.doctor.reading import Permission
from bedplate.cli.ipam import survey
from bedplate.ipam.pools import CIDRPOOLS, GROUP, IPPOOLS
from bedplate.kube.client import Client

__all__ = ["LEASE", "PROBE", "Account", "IpamFacts", "Names", "accounts_of", "gather"]

LEASE = "dd1643cf.nvidia.com"
_DAEMON_SETS = resources.custom("apps", "v1", "daemonsets", "DaemonSet", True)
_ROLES = resources.custom("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False)
_BINDINGS = resources.custom("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False)
_WEBHOOKS = resources.custom(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False
)
# What the webhook has to refuse: a block larger than the network. The rules of the definition cannot, and let it pass.
PROBE = {"metadata": {"generateName": "bedplate-doctor-"}, "spec": {"subnet": "192.0.2.0/30", "perNodeBlockSize": 100}}


@dataclass(frozen=True, slots=True)
class Names:
    """What the objects are called, and where they are."""

    namespace: str = "kube-system"
    prefix: str = "nv-ipam-"
    overlay: str = "no-webhook"

    @property
    def deployment(self) -> str:
        return f"{self.prefix}controller"

    @property
    def daemon_set(self) -> str:
        return f"{self.prefix}node-ds"

    @property
    def webhook(self) -> str:
        return f"{self.prefix}validating-webhook-configuration"

    @property
    def service(self) -> str:
        return f"{self.prefix}webhook-service"

    @property
    def remedy(self) -> str:
        """The command that brings everything as it is shipped."""
        return f"kubectl kustomize deploy/overlays/{self.overlay} | kubectl apply -f -"


def _rows(verbs: str, resource: str, group: str = "", subresource: str = "", namespace: str = "") -> list[Permission]:
    return [Permission(verb, resource, group, subresource, namespace) for verb in verbs.split()]


@dataclass(frozen=True, slots=True)
class Account:
    """A service account, which has the name of its role, and what it must be allowed to do."""

    name: str
    program: str
    needed: tuple[Permission, ...]

    def user(self, namespace: str) -> str:
        return f"system:serviceaccount:{namespace}:{self.name}"


def accounts_of(called: Names) -> tuple[Account, Account]:
    """Both programs' accounts."""
    home, plurals = called.namespace, ("ippools", "cidrpools")
    pools = [row for plural in plurals for row in _rows("list watch", plural, GROUP, namespace=home)]
    status = [row for plural in plurals for row in _rows("update", plural, GROUP, "status", home)]
    leases = _rows("get create update", "leases", "coordination.k8s.io", namespace=home)
    events = _rows("create patch", "events", namespace=home)
    controller = (*_rows("list watch", "nodes"), *pools, *status, *leases, *events)
    node = (*_rows("get list watch", "pods"), *pools)
    return (
        Account(f"{called.prefix}controller", "ipam-controller", controller),
        Account(f"{called.prefix}node", "ipam-node", node),
    )


@dataclass(frozen=True, slots=True)
class IpamFacts:
    """What was read. An exception stands where something could not be read; None where it does not exist."""

    names: Names
    now: datetime
    version: str | Exception = ""
    definitions: Mapping[str, Mapping[str, Any] | Exception | None] = field(default_factory=dict)
    survey: survey.Survey | Exception | None = None
    elsewhere: tuple[str, ...] = ()
    """Pools of other namespaces, which are not served."""
    deployment: Mapping[str, Any] | Exception | None = None
    lease: coordination.Lease | Exception | None = None
    daemon_set: Mapping[str, Any] | Exception | None = None
    roles: Mapping[str, Mapping[str, Any] | Exception | None] = field(default_factory=dict)
    bindings: Mapping[str, Mapping[str, Any] | Exception | None] = field(default_factory=dict)
    accounts: Mapping[str, core.ServiceAccount | Exception | None] = field(default_factory=dict)
    rights: Mapping[str, Mapping[Permission, bool | Exception]] = field(default_factory=dict)
    webhook: Mapping[str, Any] | Exception | None = None
    service: core.Service | Exception | None = None
    endpoints: tuple[discovery.EndpointSlice, ...] | Exception = ()
    verdict: Exception | None = None
    """What a server said to a pool that means nothing; None: it took it."""

    @property
    def pods(self) -> tuple[core.Pod, ...]:
        return self.survey.pods if isinstance(self.survey, survey.Survey) else ()


Acting = Callable[[str], Client]
"""A client that pretends to be this user."""


async def gather(client: Client, acting: Acting, called: Names, now: datetime, tell: survey.Tell) -> IpamFacts:
    """Read everything, or nothing when the API server does not respond at all."""
    version = await reading.attempt(reading.version(client))
    if isinstance(version, Exception):
        return IpamFacts(called, now, version)
    kinds = [ref.qualified for ref in (IPPOOLS, CIDRPOOLS)]
    definitions = await reading.get_each(client, resources.CRDS.raw(), kinds)
    read = await reading.find(survey.read(client, called.namespace, tell, keeps_pods=True))
    space, accounts = called.namespace, accounts_of(called)
    deployment = await reading.get(client, resources.DEPLOYMENTS.raw(), called.deployment, space)
    lease = await reading.get(client, resources.LEASES, LEASE, space)
    daemon_set = await reading.get(client, _DAEMON_SETS, called.daemon_set, space)
    whose = [account.name for account in accounts]
    roles = await reading.get_each(client, _ROLES, whose)
    bindings = await reading.get_each(client, _BINDINGS, whose)
    people = await reading.get_each(client, resources.SERVICE_ACCOUNTS, whose, space)
    webhook = await reading.get(client, _WEBHOOKS, called.webhook)
    service = await reading.get(client, resources.SERVICES, called.service, space)
    return IpamFacts(
        called,
        now,
        version,
        definitions,
        read,
        await _elsewhere(client, space),
        deployment,
        lease,
        daemon_set,
        roles,
        bindings,
        people,
        {account.name: await _rights(acting(account.user(space)), account) for account in accounts},
        webhook,
        service,
        await reading.attempt(_slices(client, space, f"{names.LABEL_SERVICE_NAME}={called.service}")),
        await _verdict(client, space) if isinstance(webhook, Mapping) else None,
    )


async def _elsewhere(client: Client, namespace: str) -> tuple[str, ...]:
    foreign: list[str] = []
    for ref in (IPPOOLS, CIDRPOOLS):
        pools = await reading.find(client.list(ref))
        if pools is not None and not isinstance(pools, Exception):
            items: Sequence[Any] = pools.items
            foreign += [f"{ref.kind} {pool.namespace}/{pool.name}" for pool in items if pool.namespace != namespace]
    return tuple(foreign)


async def _slices(client: Client, namespace: str, label: str) -> tuple[discovery.EndpointSlice, ...]:
    return tuple((await client.list(resources.ENDPOINT_SLICES, namespace, label_selector=label)).items)


async def _verdict(client: Client, namespace: str) -> Exception | None:
    answer = await reading.attempt(client.create(IPPOOLS.raw(), PROBE, namespace, dry_run=True))
    return answer if isinstance(answer, Exception) else None


async def _rights(client: Client, account: Account) -> dict[Permission, bool | Exception]:
    async with client:
        return await reading.rights(client, account.needed, LEASE)
