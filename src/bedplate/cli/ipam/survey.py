"""Reads what the views of address management show: pools, nodes and pods of a cluster, all at one look.

In: a client, and the namespace of the pools. Out: `Survey`. Reads only; `tell` hears how far a long reading has come. A
cluster without the custom resources is an error that names the next step, not an empty table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from bedplate.api import core
from bedplate.api.resources import NODES, PODS, ResourceRef
from bedplate.cli.ipam import holders
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
    """What a cluster had when it was asked. Pods are kept only for those who want more of them than their addresses."""

    namespace: str
    ippools: tuple[IPPool, ...] = ()
    cidrpools: tuple[CIDRPool, ...] = ()
    nodes: tuple[core.Node, ...] = ()
    holdings: tuple[holders.Holding, ...] = ()
    pods: tuple[core.Pod, ...] = ()

    @property
    def pools(self) -> tuple[Pool, ...]:
        """Both kinds, each sorted by name."""
        return (*sorted(self.ippools, key=_name), *sorted(self.cidrpools, key=_name))


async def read(client: Client, namespace: str, tell: Tell, *, keeps_pods: bool = False) -> Survey:
    """All of it. Raises `NotFound` when the cluster has no such custom resources."""
    ippools = await _pools(client, IPPOOLS, namespace)
    cidrpools = await _pools(client, CIDRPOOLS, namespace)
    nodes = await _counted(client, NODES, tell)
    if keeps_pods:
        pods = await _counted(client, PODS, tell)
        return Survey(namespace, ippools, cidrpools, nodes, tuple(holders.of_pods(pods)), pods)
    # Page by page, while the server prepares the next one.
    holdings = await _counted(client, holders.LEAN_PODS, tell, holders.of_pods)
    return Survey(namespace, ippools, cidrpools, nodes, holdings)


async def _pools(client: Client, ref: ResourceRef[Any], namespace: str) -> tuple[Any, ...]:
    try:
        return tuple((await client.list(ref, namespace)).items)
    except kube_errors.NotFound as err:
        raise errors.NotFound(f"the cluster has no custom resource {ref.qualified}", hint=_INSTALL) from err


async def _counted(
    client: Client, ref: ResourceRef[Any], tell: Tell, keep: Callable[[list[Any]], Iterable[Any]] = iter
) -> tuple[Any, ...]:
    """What `keep` makes of all objects."""
    kept: list[Any] = []
    count = 0
    try:
        async for page in client.list_pages(ref):
            kept += keep(page.items)
            count += len(page.items)
            tell(f"read {count} {ref.plural}")
    except kube_errors.Expired:
        # The server has forgotten the moment of the first page: the whole list, however long, is of one moment.
        kept = list(keep((await client.list(ref)).items))
    return tuple(kept)


def _name(pool: Pool) -> str:
    return pool.name
