"""Controllers inside the API server: they keep the world as consistent as its users expect, and nothing more."""

from __future__ import annotations

from bedplate.apiserver import services
from bedplate.apiserver.access import tokens
from bedplate.apiserver.controllers import (
    access,
    deployments,
    disruption,
    endpoints,
    garbage,
    namespaces,
    replicasets,
)
from bedplate.core.tasks import TaskGroup

__all__ = ["run"]


async def run(parts: services.Services, signer: tokens.Signer, ca_pem: str) -> None:
    """Run all of them until cancelled."""
    async with TaskGroup() as tasks:
        tasks.create_task(access.run(parts, signer, ca_pem))
        tasks.create_task(access.run_aggregation(parts))
        tasks.create_task(garbage.run_expiry(parts))
        for each in (namespaces, garbage, endpoints, replicasets, deployments, disruption):
            tasks.create_task(each.run(parts))
