"""A candidate for a Lease, and the client that it renews it with."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from bedplate.core.clock import ManualClock
from bedplate.kube.config import ClientConfig
from bedplate.program.assembly import Leadership, Lease
from bedplate.program.clients import Clients
from bedplate.runtime.leaderelection import Timing


async def test_renewing_the_lease_waits_no_longer_than_the_leader_may() -> None:
    leadership, time, registry = Leadership(), ManualClock(), CollectorRegistry()
    lease = Lease("name", "namespace", "component", Timing(lease_s=12.0, renew_s=8.0, retry_s=2.0))
    async with Clients(ClientConfig("https://10.0.0.1:6443"), leadership.guard, False, time, registry) as clients:
        await leadership.prepare(lease, clients, time, registry)
        assert leadership.elector is not None
        assert leadership.elector._client.config.timeout_s == 8.0
