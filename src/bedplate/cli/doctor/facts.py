"""Reads what the checks judge: objects of the cluster, rights of the manager's account, the manager's metrics.

In: a client (and one that acts as the manager's service account). Out: `ClusterFacts`, in which everything that could
not be read is the error itself, and what is not there is None. Writes nothing but access reviews, which change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bedplate.api import coordination, core, names, resources
from bedplate.cli.doctor import reading
from bedplate.cli.doctor.reading import NEEDED, Permission
from bedplate.kube.client import Client

__all__ = ["ClusterFacts", "Names", "gather"]

_ROLES = resources.custom("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False)
_BINDINGS = resources.custom("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False)
_SELF_REVIEWS = resources.custom("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False)


@dataclass(frozen=True, slots=True)
class Names:
    """What the manager's objects are called in this cluster."""

    role: str
    account: str
    namespace: str
    lease: str
    manifests: str = "deploy/rbac"

    @property
    def remedy(self) -> str:
        """The command that brings account, role and binding as they are shipped."""
        return f"kubectl apply -f {self.manifests}"

    @property
    def user(self) -> str:
        """The user name of the service account."""
        return f"system:serviceaccount:{self.namespace}:{self.account}"


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


async def gather(client: Client, acting: Client, called: Names, now: datetime) -> ClusterFacts:
    """Read everything, or nothing when the API server does not answer at all. `acting` asks about its own rights: it is
    the manager's account, or pretends to be."""
    version = await reading.attempt(reading.version(client))
    if isinstance(version, Exception):
        # A server that cannot be reached is not asked for everything else, with a time limit each.
        return ClusterFacts(called, now, version, version)
    account = await reading.get(client, resources.SERVICE_ACCOUNTS, called.account, called.namespace)
    role = await reading.get(client, _ROLES, called.role)
    binding = await reading.get(client, _BINDINGS, called.role)
    lease = await reading.get(client, resources.LEASES, called.lease, names.NAMESPACE_SYSTEM)
    nodes = await reading.attempt(_nodes(client))
    if await _whoami(client) == called.user:
        # We run as the manager itself, which may not impersonate anybody and need not.
        acting = client
    rights = await reading.rights(acting, NEEDED, called.lease)
    return ClusterFacts(called, now, version, nodes, account, role, binding, lease, rights)


async def _whoami(client: Client) -> str:
    """Our own user name; empty when the server does not tell."""
    answer = await reading.attempt(client.create(_SELF_REVIEWS, {}))
    return "" if isinstance(answer, Exception) else str(answer["status"]["userInfo"]["username"])


async def _nodes(client: Client) -> tuple[core.Node, ...]:
    return tuple((await client.list(resources.NODES)).items)
