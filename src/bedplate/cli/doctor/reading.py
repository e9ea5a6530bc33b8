"""Reading for a doctor: what could not be read is an answer too.

In: questions to an API server. Out: the answer, the error that came instead, or None for what does not exist. `needed`
is what the manager must be allowed to do; the shipped manifests are tested by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from bedplate.api import names, resources
from bedplate.api.resources import ResourceRef
from bedplate.core import errors
from bedplate.kube.client import Client

__all__ = ["TOKENS", "Permission", "attempt", "find", "get", "get_each", "needed", "rights", "version"]

T = TypeVar("T")
_AT_ONCE = 8


async def attempt(reading: Awaitable[T]) -> T | Exception:
    """The answer, or the error."""
    try:
        return await reading
    except (errors.BedplateError, TimeoutError) as err:
        return err


async def find(reading: Awaitable[T]) -> T | Exception | None:
    """The answer, the error, or None when the server said that there is nothing."""
    try:
        return await reading
    except errors.NotFound:
        return None
    except (errors.BedplateError, TimeoutError) as err:
        return err


async def get(client: Client, ref: ResourceRef[T], name: str, namespace: str | None = None) -> T | Exception | None:
    """One object."""
    asked: Awaitable[T] = client.get(ref, name, namespace)
    return await find(asked)


async def get_each(
    client: Client, ref: ResourceRef[T], names: Iterable[str], namespace: str | None = None
) -> dict[str, T | Exception | None]:
    """Several objects, by name."""
    objects: dict[str, T | Exception | None] = {}
    for name in names:
        asked: Awaitable[T] = client.get(ref, name, namespace)
        objects[name] = await find(asked)
    return objects


async def version(client: Client) -> str:
    """The server's version."""
    answer = await client.request("GET", "/version")
    return str(msgspec.json.decode(answer.body, type=dict[str, Any]).get("gitVersion", ""))


async def rights(client: Client, asked: Iterable[Permission], lease: str) -> dict[Permission, bool | Exception]:
    """What the client's own user may do. `lease`: the one Lease to which a role may limit a right."""
    slots, rows = asyncio.Semaphore(_AT_ONCE), tuple(asked)

    async def ask(row: Permission) -> bool | Exception:
        body = {"spec": {"resourceAttributes": row.attributes(lease)}}
        async with slots:
            answer = await attempt(client.create(resources.SELF_SUBJECT_ACCESS_REVIEWS, body))
        return answer if isinstance(answer, Exception) else answer.status.allowed

    answers = await asyncio.gather(*(ask(row) for row in rows))
    return dict(zip(rows, answers, strict=True))


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """One verb on one resource."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def target(self) -> str:
        """What the verb acts on."""
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        what += f"/{self.subresource}" if self.subresource else ""
        what += f" of {self.name}" if self.name else ""
        return what + (f" in {self.namespace}" if self.namespace else "")

    def attributes(self, lease: str) -> dict[str, str]:
        """The resourceAttributes of an access review. `lease`: the one Lease to which a role may limit the right."""
        # A Lease is created before its name can be a condition.
        is_of_lease = self.resource == "leases" and self.verb != "create"
        return {
            "verb": self.verb,
            "resource": self.resource,
            "group": self.group,
            "subresource": self.subresource,
            "namespace": self.namespace,
            "name": lease if is_of_lease else self.name,
        }


def _rows(verbs: str, resource: str, group: str = "", subresource: str = "", namespace: str = "") -> list[Permission]:
    return [Permission(verb, resource, group, subresource, namespace) for verb in verbs.split()]


def _tokens(account: str) -> Permission:
    return Permission("create", "serviceaccounts", "", "token", names.NAMESPACE_SYSTEM, account)


TOKENS = _tokens("node-controller")
"""Who may do this can let its controllers write as accounts of their own."""


def needed(*, has_accounts: bool, has_load_balancers: bool) -> tuple[Permission, ...]:
    """What a manager's account must be allowed to do. `has_accounts`: its controllers write as accounts of their own
    (--use-service-account-credentials). `has_load_balancers`: its cloud has some."""
    rows = _rows("list watch" if has_accounts else "get list watch patch delete", "nodes")
    if has_load_balancers:
        rows += [*_rows("list watch", "services"), *_rows("list watch", "endpointslices", "discovery.k8s.io")]
    if has_accounts:
        rows += _rows("create", "events", namespace=names.NAMESPACE_SYSTEM)
        rows += [TOKENS, _tokens("service-controller")] if has_load_balancers else [TOKENS]
    else:
        rows += _rows("patch", "nodes", subresource="status")
        rows += _rows("patch", "services", subresource="status") if has_load_balancers else []
        rows += _rows("create patch", "events")
    return (
        *rows,
        *_rows("get create update", "leases", "coordination.k8s.io", namespace=names.NAMESPACE_SYSTEM),
        *_rows("create", "tokenreviews", "authentication.k8s.io"),
        *_rows("create", "subjectaccessreviews", "authorization.k8s.io"),
    )
