"""Floating IPs whose Service is gone: counted, told, deleted only on request and after a second look."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from tests.cloud.providers.oxide.world import CLUSTER, World, world

from bedplate.cloud.providers.oxide import provider, wants


async def leave_one_behind(w: World) -> None:
    """A Service whose finalizer was removed by hand; and several floating IPs that are not orphans."""
    one, target = w.provider(), w.node("n1")
    gone = w.service("gone")
    await one.load_balancers.ensure(CLUSTER, gone, [target])
    w.services.remove(gone, "2")
    await one.load_balancers.ensure(CLUSTER, w.service("alive", ports=((81, "TCP"),)), [target])
    kept = w.service("kept", ports=((82, "TCP"),), annotations={wants.RETAIN: "true"})
    await one.load_balancers.ensure(CLUSTER, kept, [target])
    await one.load_balancers.delete(CLUSTER, kept)
    w.services.remove(kept, "2")
    w.cloud.create_floating_ip("theirs", description="theirs")
    other = w.provider(cluster_id=lambda: "another-cluster")
    await other.load_balancers.ensure("other", w.service("web", ports=((83, "TCP"),)), [target])


def orphans(registry: CollectorRegistry) -> float | None:
    return registry.get_sample_value("ccm_oxide_orphaned_floating_ips")


@pytest.mark.parametrize("deletes", [False, True])
async def test_orphans_are_counted_and_deleted_only_on_request(tmp_path: Path, deletes: bool) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"loadBalancer: {{deleteOrphans: {str(deletes).lower()}}}\n")
    async with world() as w:
        await leave_one_behind(w)
        count = len(w.ips())
        registry = CollectorRegistry()
        one = w.provider(config=file, registry=registry)
        for expected in (count, count - 1 if deletes else count):
            await one._orphans.scan()
            assert orphans(registry) == 1
            assert len(w.ips()) == expected
        await one._orphans.scan()
        assert orphans(registry) == (0 if deletes else 1)


async def test_a_service_that_comes_back_between_two_scans_keeps_its_address(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("loadBalancer: {deleteOrphans: true}\n")
    async with world() as w:
        service = w.service("web")
        one = w.provider(config=file)
        await one.load_balancers.ensure(CLUSTER, service, [w.node("n1")])
        w.services.remove(service, "2")
        await one._orphans.scan()
        w.services.put(service, "3")
        await one._orphans.scan()
        w.services.remove(service, "4")
        await one._orphans.scan()
        assert len(w.ips()) == 1


async def test_nothing_is_judged_before_the_services_are_known() -> None:
    async with world() as w:
        await leave_one_behind(w)
        w.services.synced.clear()
        assert await w.provider()._orphans.scan() == []


async def test_the_scan_runs_with_the_provider_and_ends_with_it() -> None:
    async with world() as w:
        one: provider.Oxide = w.provider()
        await one.start()
        assert one._scan is not None and not one._scan.done()
        await one.close()
        assert one._scan is None
