"""Asks one cluster what its checks need to know.

In: a client. Out: nodes, pods that are neither running nor done, checks that the API server fails, pods of the control
plane, renewals of leases. Only what may be an offender is fetched, so that it costs little in a large cluster. Errors
are raised.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bedplate.api import core
from bedplate.api.names import NAMESPACE_SYSTEM
from bedplate.api.resources import LEASES, NODES, PODS
from bedplate.core import errors
from bedplate.head.clusters.judging import Beat
from bedplate.kube import errors as kube_errors

if TYPE_CHECKING:
    from bedplate.kube.client import Client

__all__ = ["LEADERS", "beats", "failing", "nodes", "pods", "static_pods"]

LEADERS = ("kube-controller-manager", "kube-scheduler")
_FAILING = "status.phase!=Running,status.phase!=Succeeded,status.phase!=Pending"
_LINE = re.compile(r"^\[-\](\S+) (.*)$", re.MULTILINE)
_TIMEOUT_S = 30.0


async def nodes(client: Client) -> list[core.Node]:
    """All nodes."""
    return (await client.list(NODES)).items


async def pods(client: Client) -> list[core.Pod]:
    """The pods that are in none of the phases that pass."""
    return (await client.list(PODS, field_selector=_FAILING)).items


async def static_pods(client: Client) -> list[core.Pod]:
    """The pods of the control plane, where kubeadm has made it."""
    return (await client.list(PODS, NAMESPACE_SYSTEM, label_selector="tier=control-plane")).items


async def failing(client: Client) -> list[str]:
    """The checks that the API server fails, by its own account; one that does not answer is itself one of them."""
    try:
        await client.request("GET", "/readyz", query=[("verbose", "true")], accept="text/plain", timeout_s=_TIMEOUT_S)
    except kube_errors.ApiError as err:
        if err.code in (401, 403, 404):
            raise
        named = [f"{name}: {why}" for name, why in _LINE.findall(err.status.message)]
        return named or [f"kube-apiserver answers {err.code}"]
    except errors.Unavailable as err:
        return [f"kube-apiserver does not answer ({err})"]
    return []


async def beats(client: Client, before: Mapping[str, Beat], now_s: float) -> dict[str, Beat]:
    """The leases of the components that elect a leader. Seconds are counted by this head, so that its clock and the
    cluster's need not agree; one that has never had a lease is not expected to."""
    current = {}
    for name in LEADERS:
        try:
            lease = await client.get(LEASES, name, NAMESPACE_SYSTEM)
        except errors.NotFound:
            continue
        version = f"{lease.spec.renew_time} {lease.spec.holder_identity}"
        known = before.get(name)
        current[name] = known if known is not None and known.version == version else Beat(version, now_s)
    return current
