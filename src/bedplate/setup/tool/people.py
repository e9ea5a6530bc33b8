"""From the flags of the user management to its request.

In: the flags. Out: what `bedplate.setup.people` prints, and its exit code. The clusters are those of the head, each
with the kubeconfig of an administrator, or the one of --cluster-kubeconfig.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from bedplate.core import errors
from bedplate.setup import people
from bedplate.setup.people.request import Action, Cluster, Request
from bedplate.setup.tool import heads

__all__ = ["perform", "request"]


def perform(action: str, values: Mapping[str, Any]) -> int:
    """Carry out an action of the user management. Not in a running loop."""
    return people.perform(request(action, values, asyncio.run(_clusters(values))), sys.stdout)


def request(action: str, values: Mapping[str, Any], clusters: tuple[Cluster, ...]) -> Request:
    """The request that the flags mean."""
    if values["allow_all_uids"] and values["no_allow_all_uids"]:
        raise errors.Invalid("--allow-all-uids and --no-allow-all-uids are mutually exclusive")
    value = values[action.replace("-", "_")]
    is_file = action in ("backup-permissions", "restore-permissions")
    return Request(
        action=Action(f"--{action}"),
        clusters=clusters,
        cluster=values["cluster"] or "",
        user=value if isinstance(value, str) and not is_file else "",
        is_interactive=action == "add-user" and value in (True, ""),
        file=value if is_file else None,
        namespace=values["namespace"],
        add_to_namespace=values["add_to_namespace"],
        remove_from_namespace=values["remove_from_namespace"],
        role=values["role"],
        runas_uid=values["runas_uid"],
        runas_gids=values["runas_gids"],
        user_paths=values["user_paths"],
        allow_all_uids=True if values["allow_all_uids"] else False if values["no_allow_all_uids"] else None,
        operators=values["operators"],
        force=values["force"],
        as_json=values["json"],
        ca_certificate=values["ca_cert"],
        ca_key=values["ca_key"],
        days=values["certificate_days"],
        timeout_s=values["timeout"] or 60.0,
        verbose=values["verbose"],
    )


async def _clusters(values: Mapping[str, Any]) -> tuple[Cluster, ...]:
    file = values["cluster_kubeconfig"]
    if file is not None:
        return (Cluster(values["cluster"] or "", file),)
    from bedplate.setup.kubernetes.kubeconfig import path_of

    async with heads.reach(values) as reached:
        names = sorted(reached.backend.tree.mode("kubernetes"))
        return tuple([Cluster(name, await path_of(reached.backend, name, reached.data)) for name in names])
