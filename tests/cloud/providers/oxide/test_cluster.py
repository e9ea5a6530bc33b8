"""The acceptance tests that show in Kubernetes: Services, events and statuses on the real and the embedded server."""

from __future__ import annotations

import asyncio

from tests.cloud.providers.oxide.cluster import NODES, SERVICES, SLICES, cluster
from tests.waiting import until

from bedplate.api.names import LABEL_EXCLUDE_FROM_LOAD_BALANCERS
from bedplate.cloud.providers.oxide import wants
from bedplate.kube import Client
from bedplate.sim.clouds import Conditions


async def test_a_service_gets_changes_and_loses_its_address(client: Client, namespace: str) -> None:
    async with cluster(client, namespace, conditions=Conditions(transition_s=0.3)) as c:
        c.cloud.add_pool("other", "203.0.113.0/24")
        await c.node("n1")
        await c.start()
        await c.create("web")
        await c.served("web")
        await c.annotate("web", {wants.POOL: "other"})

        async def is_changed() -> bool:
            shown = await c.ingress("web")
            return bool(shown) and shown[0][0].startswith("203.0.113.") and len(c.ips("web")) == 1

        await until(is_changed, "the new address is published and the old one gone")
        assert c.ips("web")[0]["name"] == f"prod-{namespace}-web"
        await client.delete(SERVICES, "web", namespace)
        await c.gone("web")
        assert c.ips("web") == []


async def test_the_address_leaves_a_node_that_is_not_ready(client: Client, namespace: str) -> None:
    async with cluster(client, namespace) as c:
        for name in ("n1", "n2"):
            await c.node(name)
        await c.start()
        await c.create("web")
        before = await c.served("web")
        dead = c.holder("web")
        other = {"n1": "n2", "n2": "n1"}[dead]
        await c.ready(dead, False)
        after = await c.served("web", by=other)
        assert after[0] == before[0] and after[1] != before[1]
        await client.patch(
            NODES, f"{namespace}-{other}", {"metadata": {"labels": {LABEL_EXCLUDE_FROM_LOAD_BALANCERS: "true"}}}
        )
        await c.ready(dead, True)
        await c.served("web", by=dead)


async def test_local_traffic_follows_the_endpoints(client: Client, namespace: str) -> None:
    async with cluster(client, namespace) as c:
        for name in ("n1", "n2", "n3"):
            await c.node(name)
        await c.start()
        await c.create("web", externalTrafficPolicy="Local")
        for name in ("n2", "n3"):
            body = {
                "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
                "addressType": "IPv4",
                "endpoints": [
                    {"addresses": ["10.1.1.1"], "nodeName": f"{namespace}-{name}", "conditions": {"ready": True}}
                ],
                "ports": [],
            }
            if name == "n2":
                await client.create(SLICES.raw(), body, namespace)
            else:
                await client.patch(SLICES.raw(), "web-1", {"endpoints": body["endpoints"]}, namespace)
            await c.served("web", by=name)


async def test_a_new_node_does_not_attract_the_address(client: Client, namespace: str) -> None:
    async with cluster(client, namespace) as c:
        await c.node("n5")
        await c.start()
        await c.create("web")
        await c.served("web", by="n5")
        await c.node("n1")

        async def is_known() -> bool:
            return "UpdatedLoadBalancer" in await c.reasons("web")

        await until(is_known, "the Service heard of the node")
        assert c.holder("web") == "n5" and c.cloud.journal.count("floating_ip_detach") == 0


async def test_a_service_whose_ports_clash_everywhere_hears_of_it_and_waits(client: Client, namespace: str) -> None:
    async with cluster(client, namespace) as c:
        await c.node("n1")
        await c.start()
        await c.create("first")
        await c.served("first")
        await c.create("second")

        async def is_told() -> bool:
            return {"PortConflict", "SyncLoadBalancerFailed"} <= set(await c.reasons("second"))

        await until(is_told, "the conflict is told")
        assert c.ips("second") == [] and await c.ingress("second") == []
        await c.node("n2")
        await c.served("second", by="n2")


async def test_a_strangers_address_of_the_same_name_is_told_and_left_alone(client: Client, namespace: str) -> None:
    async with cluster(client, namespace) as c:
        await c.node("n1")
        c.cloud.create_floating_ip(f"prod-{namespace}-web", description="mine")
        before = dict(c.cloud.floating_ip(f"prod-{namespace}-web") or {})
        await c.start()
        await c.create("web")

        async def is_told() -> bool:
            return "FloatingIPNotOwned" in await c.reasons("web")

        await until(is_told, "the stranger is told")
        await client.delete(SERVICES, "web", namespace)
        await c.gone("web")
        assert c.cloud.floating_ip(f"prod-{namespace}-web") == before


async def test_a_manager_killed_during_a_deletion_leaves_nothing(client: Client, namespace: str) -> None:
    async with cluster(client, namespace, conditions=Conditions(latency_s=0.05)) as c:
        await c.node("n1")
        await c.start()
        await c.create("web")
        await c.served("web")
        await client.delete(SERVICES, "web", namespace)

        async def is_detached() -> bool:
            return c.cloud.journal.count("floating_ip_detach") > 0

        await until(is_detached, "the deletion has begun")
        await c.stop()
        await c.start()
        await c.gone("web")
        assert c.ips("web") == []


async def test_the_status_is_published_once(client: Client, namespace: str) -> None:
    async with cluster(client, namespace) as c:
        await c.node("n1", addresses=["172.30.1.1", "fd00::1"])
        await c.start()
        await c.create("web")
        shown = await c.served("web")
        assert [mode for _, mode in shown] == ["Proxy", "VIP", "VIP"]
        before = (await c.service("web")).metadata.resource_version
        for _ in range(2):
            # A new process looks at everything again.
            asked = c.cloud.journal.count("floating_ip_list")
            await c.stop()
            await c.start()

            async def has_looked(asked: int = asked) -> bool:
                return c.cloud.journal.count("floating_ip_list") > asked

            await until(has_looked, "the Service was looked at")
            await asyncio.sleep(0.3)
        assert (await c.service("web")).metadata.resource_version == before


async def test_a_node_without_a_provider_id_or_with_a_foreign_one_blocks_nobody(client: Client, namespace: str) -> None:
    async with cluster(client, namespace) as c:
        await c.node("a0", provider_id="")
        await c.node("a1", provider_id="aws:///zone/i-1")
        await c.node("n9")
        await c.start()
        await c.create("web")
        await c.served("web", by="n9")


async def test_a_hung_call_delays_no_other_service(client: Client, namespace: str) -> None:
    async with cluster(client, namespace) as c:
        c.timeout_s = 600.0
        for number in range(4):
            await c.node(f"n{number}")
        rule = c.cloud.faults.add("timeout", operation="floating_ip_create", times=1)
        await c.start()
        await c.create("hung")

        async def is_hung() -> bool:
            return rule.hits == 1

        await until(is_hung, "the first call hangs")
        for name in ("a", "b", "c"):
            await c.create(name)
        for name in ("a", "b", "c"):
            await c.served(name)
        assert await c.ingress("hung") == []


async def test_a_failed_annotation_change_keeps_the_old_address(client: Client, namespace: str) -> None:
    async with cluster(client, namespace) as c:
        await c.node("n1")
        await c.start()
        await c.create("web")
        before = await c.served("web")
        await c.annotate("web", {wants.ADDRESS: "10.255.0.1"})

        async def is_told() -> bool:
            return "SyncLoadBalancerFailed" in await c.reasons("web")

        await until(is_told, "the failure is told")
        assert await c.ingress("web") == before and c.holder("web") == "n1"
        await c.annotate("web", {wants.ADDRESS: None})
        assert await c.served("web", by="n1") == before


async def test_source_ranges_and_retained_addresses_show(client: Client, namespace: str) -> None:
    async with cluster(client, namespace) as c:
        await c.node("n1")
        await c.start()
        await c.create("web", annotations={wants.RETAIN: "true"}, loadBalancerSourceRanges=["10.0.0.0/8"])
        before = await c.served("web")

        async def is_told() -> bool:
            return "SourceRangesNotEnforced" in await c.reasons("web")

        await until(is_told, "the ranges are told")
        await client.delete(SERVICES, "web", namespace)
        await c.gone("web")
        assert [one["instance_id"] for one in c.ips("web")] == [None]
        await c.create("web", annotations={wants.RETAIN: "true"})
        assert (await c.served("web"))[0] == before[0]
