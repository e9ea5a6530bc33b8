"""Controllers inside the API server: they keep the world as consistent as its users expect, and nothing more."""

from __future__ import annotations

import asyncio

from bedplate.apiserver import services
from bedplate.apiserver.access import tokens
from bedplate.apiserver.controllers import (
    accounts,
    deployments,
    disruption,
    endpoints,
    expiry,
    garbage,
    namespaces,
    replicasets,
    roles,
)

__all__ = ["run"]


async def run(parts: services.Services, signer: tokens.Signer, ca_pem: str) -> None:
    """Run all of them until cancelled."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(accounts.run(parts, signer, ca_pem))
        for each in (namespaces, garbage, roles, endpoints, replicasets, deployments, disruption, expiry):
            tasks.create_task(each.run(parts))
