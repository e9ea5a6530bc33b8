"""Reads what the checks judge: objects of the cluster, rights of the manager's account, the manager's metrics.

In: a client (and one that acts as the manager's service account). Out: `ClusterFacts`, in which everything that could
not be read is the error itself, and what is not there is None. Writes nothing but access reviews, which change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from bedplate.api import coordination, core, names, resources
from bedplate.cli.doctor import reading
from bedplate.cli.doctor.reading import TOKENS, Permission, needed
from bedplate.kube.client import Client

__all__ = ["ClusterFacts", "Names", "gather", "subjects_of"]

_ROLES = resources.custom("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False)
_BINDINGS = resources.custom("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False)
_SELF_REVIEWS = resources.custom("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False)


@dataclass(frozen=True, slots=True)
class Names:
    """What the manager's objects are called in this cluster. Without an account it is outside, with our own rights."""

    role: str
    account: str
    namespace: str
    lease: str
    manifests: str = "deploy/rbac"
    binding: str = ""
    """Where it has another name than the role; what binds the role to the account counts, not what it is called."""
    lease_namespace: str = names.NAMESPACE_SYSTEM
    is_lease_given: bool = True
    """False: the name is that of the manifests, and the manager may use another."""
    elects: bool = True
    has_load_balancers: bool = True
    has_accounts: bool | None = None
    """Whether controllers write as accounts of their own; None: when the manager's account may request their tokens."""

    @property
    def remedy(self) -> str:
        """The command that brings account, role and binding as they are shipped."""
        return f"kubectl apply -f {self.manifests}"

    @property
    def user(self) -> str:
        """The user name of the service account."""
        return f"system:serviceaccount:{self.namespace}:{self.account}" if self.account else "the kubeconfig's user"


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What was read. An exception stands where something could not be read; None where it does not exist."""

    names: Names
    now: datetime
    version: str | Exception = ""
    nodes: tuple[core.Node, ...] | Exception = ()
    account: core.ServiceAccount | Exception | None = None
    role: Mapping[str, Any] | Exception | None = None
    binding: Mapping[str, Any] | Exception | None = None
    lease: coordination.Lease | Exception | None = None
    rights: Mapping[Permission, bool | Exception] = field(default_factory=dict)
    leases: tuple[coordination.Lease, ...] = ()
    """The other Leases in the same namespace that look like a manager's."""


async def gather(client: Client, acting: Client, called: Names, now: datetime) -> ClusterFacts:
    """Read everything, or nothing when the API server does not answer at all. `acting` asks about its own rights: it is
    the manager's account, or pretends to be."""
    version = await reading.attempt(reading.version(client))
    if isinstance(version, Exception):
        # A server that cannot be reached is not asked for everything else, with a time limit each.
        return ClusterFacts(called, now, version, version)
    lease = await reading.get(client, resources.LEASES, called.lease, called.lease_namespace)
    leases = await _leases(client, called) if lease is None else ()
    nodes = await reading.attempt(_nodes(client))
    if not called.account:
        rights = await _rights(client, called)
        return ClusterFacts(called, now, version, nodes, lease=lease, rights=rights, leases=leases)
    account = await reading.get(client, resources.SERVICE_ACCOUNTS, called.account, called.namespace)
    binding = await _binding(client, called)
    if isinstance(binding, Mapping) and not called.binding:
        called = replace(called, binding=binding["metadata"]["name"])
    role = await reading.get(client, _ROLES, called.role)
    if await _whoami(client) == called.user:
        # We run as the manager itself, which may not impersonate anybody and need not.
        acting = client
    rights = await _rights(acting, called)
    return ClusterFacts(called, now, version, nodes, account, role, binding, lease, rights, leases)


async def _rights(acting: Client, called: Names) -> dict[Permission, bool | Exception]:
    has_accounts = called.has_accounts
    if has_accounts is None:
        has_accounts = called.account != "" and (await reading.rights(acting, [TOKENS], ""))[TOKENS] is True
    rows = needed(has_accounts=has_accounts, has_load_balancers=called.has_load_balancers)
    return await reading.rights(acting, rows, called.lease)


async def _binding(client: Client, called: Names) -> Mapping[str, Any] | Exception | None:
    """What binds the role to the account, whatever its name is; else the one of the manifests' name."""
    bindings = await reading.attempt(client.list(_BINDINGS))
    if isinstance(bindings, Exception):
        return bindings
    by_name = {binding["metadata"]["name"]: binding for binding in bindings.items}
    named = by_name.get(called.binding or called.role)
    fitting = [binding for binding in by_name.values() if _binds(binding, called)]
    if named is not None and (named in fitting or not fitting):
        return named
    return fitting[0] if fitting else None


def _binds(binding: Mapping[str, Any], called: Names) -> bool:
    account = ("ServiceAccount", called.namespace, called.account)
    role = (binding.get("roleRef") or {}).get("name")
    return role == called.role and account in subjects_of(binding)


def subjects_of(binding: Mapping[str, Any]) -> list[tuple[Any, Any, Any]]:
    """Kind, namespace and name of those whom a binding names."""
    return [(each.get("kind"), each.get("namespace"), each.get("name")) for each in binding.get("subjects") or ()]


async def _leases(client: Client, called: Names) -> tuple[coordination.Lease, ...]:
    leases = await reading.attempt(client.list(resources.LEASES, called.lease_namespace))
    if isinstance(leases, Exception):
        return ()
    return tuple(lease for lease in leases.items if "cloud-controller-manager" in lease.name)


async def _whoami(client: Client) -> str:
    """Our own user name; empty when the server does not tell."""
    answer = await reading.attempt(client.create(_SELF_REVIEWS, {}))
    return "" if isinstance(answer, Exception) else str(answer["status"]["userInfo"]["username"])


async def _nodes(client: Client) -> tuple[core.Node, ...]:
    return tuple((await client.list(resources.NODES)).items)
