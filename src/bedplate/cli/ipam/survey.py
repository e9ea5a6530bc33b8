"""Reads what the views of address management show: pools, nodes and pods of a cluster, all at one look.

In: a client, and the namespace of the pools. Out: `Survey`. Reads only; `tell` hears how far a long reading has come. A
cluster without the custom resources is an error that names the next step, not an empty table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bedplate.api import core
from bedplate.api.resources import NODES, PODS, ResourceRef
from bedplate.core import errors
from bedplate.ipam.pools import CIDRPOOLS, IPPOOLS, CIDRPool, IPPool
from bedplate.kube import Client
from bedplate.kube import errors as kube_errors

__all__ = ["Pool", "Survey", "read"]

Pool = IPPool | CIDRPool
Tell = Callable[[str], None]
_INSTALL = (
    "kubectl kustomize deploy/overlays/no-webhook | kubectl apply -f -   # or -n NAMESPACE if the pools are elsewhere"
)


@dataclass(frozen=True, slots=True)
class Survey:
    """What a cluster had when it was asked. Pods are None when they were not asked for."""

    namespace: str
    ippools: tuple[IPPool, ...] = ()
    cidrpools: tuple[CIDRPool, ...] = ()
    nodes: tuple[core.Node, ...] = ()
    pods: tuple[core.Pod, ...] | None = None

    @property
    def pools(self) -> tuple[Pool, ...]:
        """Both kinds, each sorted by name."""
        return (*sorted(self.ippools, key=_name), *sorted(self.cidrpools, key=_name))


async def read(client: Client, namespace: str, tell: Tell, *, with_pods: bool = True) -> Survey:
    """All of it. Raises `NotFound` when the cluster has no such custom resources."""
    ippools = await _pools(client, IPPOOLS, namespace)
    cidrpools = await _pools(client, CIDRPOOLS, namespace)
    nodes = await _counted(client, NODES, tell)
    pods = await _counted(client, PODS, tell) if with_pods else None
    return Survey(namespace, ippools, cidrpools, nodes, pods)


async def _pools(client: Client, ref: ResourceRef[Any], namespace: str) -> tuple[Any, ...]:
    try:
        return tuple((await client.list(ref, namespace)).items)
    except kube_errors.NotFound as err:
        raise errors.NotFound(f"the cluster has no custom resource {ref.qualified}", hint=_INSTALL) from err


async def _counted(client: Client, ref: ResourceRef[Any], tell: Tell) -> tuple[Any, ...]:
    items: list[Any] = []
    try:
        async for page in client.list_pages(ref):
            items += page.items
            tell(f"read {len(items)} {ref.plural}")
    except kube_errors.Expired:
        # The server has forgotten the moment of the first page: the whole list, however long, is of one moment.
        items = (await client.list(ref)).items
    return tuple(items)


def _name(pool: Pool) -> str:
    return pool.name
