"""Reads what the checks judge: objects of the cluster, rights of the manager's account, the manager's metrics.

In: a client (and one that acts as the manager's service account). Out: `ClusterFacts`, in which everything that could
not be read is the error itself, and what is not there is None. Writes nothing but access reviews, which change nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from bedplate.api import coordination, core, names, resources
from bedplate.cli.doctor.permissions import NEEDED, Permission
from bedplate.core import errors
from bedplate.kube import errors as kube_errors
from bedplate.kube.client import Client

__all__ = ["ClusterFacts", "Names", "gather"]

T = TypeVar("T")
_ROLES = resources.custom("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False)
_BINDINGS = resources.custom("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False)
_SELF_REVIEWS = resources.custom("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False)
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Names:
    """What the manager's objects are called in this cluster."""

    role: str
    account: str
    namespace: str
    lease: str
    manifests: str = "deploy/rbac"

    @property
    def mend(self) -> str:
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
    version = await _attempt(_version(client))
    if isinstance(version, Exception):
        # Whoever cannot be reached need not be asked for everything else, with a time limit each.
        return ClusterFacts(called, now, version, version)
    account = await _find(client.get(resources.SERVICE_ACCOUNTS, called.account, called.namespace))
    role = await _find(client.get(_ROLES, called.role))
    binding = await _find(client.get(_BINDINGS, called.role))
    lease = await _find(client.get(resources.LEASES, called.lease, names.NAMESPACE_SYSTEM))
    nodes = await _attempt(_nodes(client))
    if await _whoami(client) == called.user:
        # We run as the manager itself, which may not impersonate anybody and need not.
        acting = client
    return ClusterFacts(called, now, version, nodes, account, role, binding, lease, await _rights(acting, called.lease))


async def _version(client: Client) -> str:
    answer = await client.request("GET", "/version")
    return str(msgspec.json.decode(answer.body, type=dict[str, Any]).get("gitVersion", ""))


async def _whoami(client: Client) -> str:
    """Our own user name; empty when the server does not tell."""
    answer = await _attempt(client.create(_SELF_REVIEWS, {}))
    return "" if isinstance(answer, Exception) else str(answer["status"]["userInfo"]["username"])


async def _nodes(client: Client) -> tuple[core.Node, ...]:
    return tuple((await client.list(resources.NODES)).items)


async def _attempt(reading: Awaitable[T]) -> T | Exception:
    try:
        return await reading
    except (errors.BedplateError, TimeoutError) as err:
        return err


async def _find(reading: Awaitable[T]) -> T | Exception | None:
    try:
        return await reading
    except kube_errors.NotFound:
        return None
    except (errors.BedplateError, TimeoutError) as err:
        return err


async def _rights(client: Client, lease: str) -> dict[Permission, bool | Exception]:
    slots = asyncio.Semaphore(_AT_ONCE)

    async def ask(row: Permission) -> bool | Exception:
        body = {"spec": {"resourceAttributes": row.attributes(lease)}}
        async with slots:
            answer = await _attempt(client.create(resources.SELF_SUBJECT_ACCESS_REVIEWS, body))
        return answer if isinstance(answer, Exception) else answer.status.allowed

    answers = await asyncio.gather(*(ask(row) for row in NEEDED))
    return dict(zip(NEEDED, answers, strict=True))
