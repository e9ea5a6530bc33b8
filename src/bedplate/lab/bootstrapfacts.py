"""What a fresh cluster contains, reduced to facts for the embedded API server.

In: the objects a real API server makes by itself on its first start. Out: the same without what differs from cluster to
cluster (uids, times, versions), in a fixed order, so that equal clusters give equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["PATHS", "collect", "reduced"]

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
PATHS = (
    "/api/v1/namespaces",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    f"{_RBAC}/clusterroles",
    f"{_RBAC}/clusterrolebindings",
    f"{_RBAC}/roles",
    f"{_RBAC}/rolebindings",
)
_OWN_METADATA = ("name", "namespace", "labels", "annotations")


def collect(get: Callable[[str], dict[str, Any]]) -> list[dict[str, Any]]:
    """Read every path through `get` and reduce what it holds."""
    objects: list[dict[str, Any]] = []
    for path in PATHS:
        answer = get(path)
        kind = answer["kind"].removesuffix("List")
        items = sorted(
            answer["items"], key=lambda item: (item["metadata"].get("namespace", ""), item["metadata"]["name"])
        )
        objects += [reduced(item | {"apiVersion": answer["apiVersion"], "kind": kind}) for item in items]
    return objects


def reduced(obj: dict[str, Any]) -> dict[str, Any]:
    """An object without what the server owns; aggregated roles keep no rules, since a controller fills them in."""
    left = {key: value for key, value in obj.items() if key not in ("metadata", "status", "spec")}
    left["metadata"] = {key: value for key, value in obj["metadata"].items() if key in _OWN_METADATA}
    if left.get("aggregationRule"):
        left["rules"] = []
    return left
