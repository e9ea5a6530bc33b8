"""Simulated nodes against a real and an embedded API server: a controller cannot tell them from kubelets."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

from tests.waiting import DEADLINE_S, until

from bedplate.api import names, resources
from bedplate.kube import Client
from bedplate.sim import fleet as fleets
from bedplate.sim import machines


@contextlib.asynccontextmanager
async def running(client: Client, count: int, **options: Any) -> AsyncIterator[fleets.Fleet]:
    fleet = fleets.assemble(client, count, **options)
    task = asyncio.create_task(fleet.manager.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            await fleet.kubelets.registered.wait()
        yield fleet
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for name in fleet.kubelets.machines:
            await client.delete(resources.NODES, name)


async def test_nodes_register_become_ready_and_renew_their_leases(client: Client) -> None:
    async with running(client, 20, prefix="beat-", heartbeat_s=0.5) as fleet:
        await until(lambda: sum(node.is_ready for node in fleet.nodes) >= 20)
        node = await client.get(resources.NODES, "beat-001")
        assert {"type": "Hostname", "address": "beat-001"} in [
            {"type": one.type, "address": one.address} for one in node.status.addresses
        ]
        first = await client.get(resources.LEASES, "beat-001", machines.LEASE_NAMESPACE)
        assert first.spec.holder_identity == "beat-001"

        async with asyncio.timeout(DEADLINE_S):
            while True:
                now = await client.get(resources.LEASES, "beat-001", machines.LEASE_NAMESPACE)
                if now.spec.renew_time != first.spec.renew_time:
                    break
                await asyncio.sleep(0.1)


async def test_uninitialised_nodes_carry_the_cloud_providers_taint_and_no_address(client: Client) -> None:
    async with running(client, 2, prefix="raw-", shape=machines.Shape(is_uninitialized=True)):
        node = await client.get(resources.NODES, "raw-001")
        assert [
            (one.key, one.value, one.effect) for one in node.spec.taints if one.key == names.TAINT_UNINITIALIZED
        ] == [(names.TAINT_UNINITIALIZED, "true", "NoSchedule")]
        assert {one.type for one in node.status.addresses} == {"Hostname"}
        assert node.spec.provider_id == ""


async def service_account(client: Client) -> None:
    """Wait until pods may be created."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            with contextlib.suppress(Exception):
                await client.get(resources.SERVICE_ACCOUNTS, "default", "default")
                break
            await asyncio.sleep(0.1)


async def test_a_pod_that_fits_nowhere_says_so_in_its_status_and_an_event(client: Client) -> None:
    async with running(client, 2, prefix="full-") as fleet:
        await service_account(client)
        wish = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "5000"}}}
        spec = {"containers": [wish], "tolerations": [{"operator": "Exists"}]}
        await client.create(resources.PODS.raw(), {"metadata": {"name": "big"}, "spec": spec}, "default")

        def reason() -> str:
            pod = fleet.pods.get("default/big")
            return pod.status.conditions[0].message if pod is not None and pod.status.conditions else ""

        # Other tests may have left nodes on the server, so both of ours refuse, and perhaps more.
        await until(
            lambda: (found := re.search(r"(\d+) Insufficient cpu", reason())) is not None and int(found[1]) >= 2
        )
        async with asyncio.timeout(DEADLINE_S):
            while True:
                found = await client.list(resources.EVENTS.raw(), "default")
                if any(one["reason"] == "FailedScheduling" for one in found.items):
                    break
                await asyncio.sleep(0.1)
        await client.delete(resources.PODS, "big", "default", grace_period_s=0)


async def test_a_pod_is_scheduled_runs_gets_an_address_and_goes_when_deleted(client: Client) -> None:
    async with running(client, 3, prefix="run-") as fleet:
        # Other tests may have left nodes on the server that nobody simulates any more: the pod must land on ours.
        spec = {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {"kubernetes.io/hostname": "run-002"}}
        body = {"metadata": {"name": "p"}, "spec": spec}
        await service_account(client)
        await client.create(resources.PODS.raw(), body, "default")
        await until(lambda: (pod := fleet.pods.get("default/p")) is not None and pod.status.phase == "Running")
        pod = await client.get(resources.PODS, "p", "default")
        assert pod.spec.node_name == "run-002"
        assert pod.status.pod_ip
        assert all(one.is_true for one in pod.status.conditions)
        await client.delete(resources.PODS, "p", "default")
        await until(lambda: "default/p" not in fleet.pods)


async def test_a_failed_machine_is_not_ready_and_a_healed_one_is(client: Client) -> None:
    async with running(client, 2, prefix="ill-") as fleet:
        await fleet.kubelets.fail("ill-001")
        await until(lambda: (node := fleet.nodes.get("ill-001")) is not None and not node.is_ready)
        other = fleet.nodes.get("ill-002")
        assert other is not None and other.is_ready
        await fleet.kubelets.heal("ill-001")
        await until(lambda: (node := fleet.nodes.get("ill-001")) is not None and node.is_ready)


async def test_a_second_start_takes_over_the_nodes_of_the_first(client: Client) -> None:
    async with running(client, 2, prefix="again-"):
        before = (await client.get(resources.NODES, "again-001")).metadata.uid
        fleet = fleets.assemble(client, 2, prefix="again-")
        task = asyncio.create_task(fleet.manager.run())
        await until(fleet.kubelets.registered.is_set)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (await client.get(resources.NODES, "again-001")).metadata.uid == before
