"""Keeps the rules of aggregated ClusterRoles equal to the sum of the roles their selectors find.

In: ClusterRoles. Out: updates of those with an `aggregationRule`.
"""

from __future__ import annotations

import asyncio

from bedplate.apiserver import services
from bedplate.apiserver.access import rbac, subjects
from bedplate.apiserver.controllers.loop import Loop

__all__ = ["run"]


async def run(parts: services.Services) -> None:
    """Run until cancelled."""
    client = parts.client.acting_as(subjects.LOOPBACK, "clusterrole-aggregation-controller")

    async def reconcile(_: str) -> None:
        roles = client.list(rbac.GROUP, "clusterroles")
        for role in roles:
            rules = rbac.aggregate(role, roles)
            if rules is not None and rules != (role.get("rules") or []):
                await client.update(rbac.GROUP, "clusterroles", role | {"rules": rules})

    loop: Loop[str] = Loop("roles", client, reconcile)
    async with asyncio.TaskGroup() as tasks:
        # One key for all: roles change seldom, and an aggregated role may depend on any other.
        tasks.create_task(loop.follow(rbac.GROUP, "clusterroles", lambda _: ("all",)))
        tasks.create_task(loop.work())
