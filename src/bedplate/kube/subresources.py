"""Subresources with a kind of their own: scale, eviction, binding, service account tokens.

In: a client and names. Out: their answers. `status` is not handled here: use `patch(…,
subresource="status")`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bedplate.api import auth, meta
from bedplate.api.resources import PODS, SERVICE_ACCOUNTS, ResourceRef
from bedplate.kube.client import Client
from bedplate.kube.options import DeleteOptions, PatchType, WriteOptions

__all__ = ["Scale", "ScaleSpec", "ScaleStatus", "bind_pod", "evict", "get_scale", "request_token", "set_scale"]


class ScaleSpec(meta.Model, frozen=True):
    """How many are wanted."""

    replicas: int = 0


class ScaleStatus(meta.Model, frozen=True):
    """How many there are, and the selector that finds them."""

    replicas: int = 0
    selector: str = ""


class Scale(meta.Object, frozen=True):
    """autoscaling/v1 Scale."""

    spec: ScaleSpec = ScaleSpec()
    status: ScaleStatus = ScaleStatus()


async def get_scale(client: Client, ref: ResourceRef[Any], name: str, namespace: str) -> Scale:
    """The replicas of a workload."""
    return await client.subresource("GET", ref, name, "scale", namespace, model=Scale)


async def set_scale(
    client: Client,
    ref: ResourceRef[Any],
    name: str,
    namespace: str,
    replicas: int,
    *,
    field_manager: str = "",
) -> Scale:
    """Ask for that many replicas."""
    return await client.subresource(
        "PATCH",
        ref,
        name,
        "scale",
        namespace,
        model=Scale,
        body={"spec": {"replicas": replicas}},
        content_type=PatchType.MERGE.value,
        options=WriteOptions(field_manager=field_manager),
    )


async def evict(client: Client, name: str, namespace: str, *, uid: str = "", grace_period_s: int | None = None) -> None:
    """Delete a pod if its disruption budgets allow it; raises `TooManyRequests` when they do not."""
    options = DeleteOptions(uid=uid, grace_period_s=grace_period_s).body()
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": options,
    }
    await client.subresource("POST", PODS, name, "eviction", namespace, model=meta.Status, body=body)


async def bind_pod(client: Client, name: str, namespace: str, node: str, *, uid: str = "") -> None:
    """Place a pod on a node, as a scheduler does."""
    identity = {"name": name, "namespace": namespace, **({"uid": uid} if uid else {})}
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": identity,
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await client.subresource("POST", PODS, name, "binding", namespace, model=meta.Status, body=body)


async def request_token(
    client: Client,
    service_account: str,
    namespace: str,
    *,
    audiences: Sequence[str] = (),
    lifetime_s: int | None = None,
) -> auth.TokenRequestStatus:
    """A fresh token of a service account."""
    spec: dict[str, Any] = {"audiences": list(audiences)}
    if lifetime_s is not None:
        spec["expirationSeconds"] = lifetime_s
    answer = await client.subresource(
        "POST",
        SERVICE_ACCOUNTS,
        service_account,
        "token",
        namespace,
        model=auth.TokenRequest,
        body={"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec},
    )
    return answer.status
