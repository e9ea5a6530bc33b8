"""The provider against a simulated BMM, every call checked against the vendor's document on the way."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.cloud.providers.nvidia_bmm.world import UNKNOWN, instances_of, node, simulated

from bedplate.api import names
from bedplate.cloud.errors import AmbiguousInstance, CloudError, InstanceNotFound, RetryError
from bedplate.cloud.http import errors as http_errors
from bedplate.cloud.interface import Address
from bedplate.core.clock import ManualClock

# Pagination


async def test_250_instances_are_read_in_three_pages(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=250) as world:
        instances = instances_of(world.provider())
        machines = world.cloud.all()
        for machine in machines:
            found = await instances.metadata(node(machine.name, machine.provider_id))
            assert found is not None and found.provider_id == machine.provider_id
        assert world.cloud.journal.count("get-all-instance") == 3
        assert world.cloud.journal.count() <= 250 / 100 + 10


@pytest.mark.parametrize("has_ids", [True, False])
async def test_a_refresh_of_all_nodes_stays_within_its_calls(tmp_path: Path, has_ids: bool) -> None:
    async with simulated(tmp_path, machines=1000, sites=1) as world:
        time = ManualClock()
        instances = instances_of(world.provider(time=time))
        machines = world.cloud.all()
        gate = asyncio.Semaphore(16)

        async def refresh(machine: Any) -> None:
            async with gate:
                found = await instances.metadata(node(machine.name, machine.provider_id if has_ids else ""))
                assert found is not None and found.provider_id == machine.provider_id

        for _ in range(3):
            world.cloud.journal.reset()
            await asyncio.gather(*(refresh(machine) for machine in machines))
            assert world.cloud.journal.count() <= 1000 / 100 + 10
            await time.advance(300)


# Lookup by name


async def test_one_instance_of_the_nodes_name_gives_the_node_its_provider_id(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=3) as world:
        machine = world.cloud.all()[1]
        found = await instances_of(world.provider()).metadata(node(machine.name))
        assert found is not None and found.provider_id == machine.provider_id
        assert found.addresses == (Address("InternalIP", machine.addresses[0]), Address("Hostname", machine.name))


async def test_no_instance_of_the_nodes_name_is_not_ours_and_never_absence(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=3) as world:
        instances = instances_of(world.provider())
        with pytest.raises(InstanceNotFound, match="node has no provider ID"):
            await instances.metadata(node("stranger"))
        for ask in (instances.exists, instances.is_shutdown):
            with pytest.raises(CloudError, match="node has no provider ID") as caught:
                await ask(node("stranger"))
            assert not isinstance(caught.value, InstanceNotFound)


async def test_several_instances_of_one_name_are_ambiguous(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=8) as world:
        name = world.cloud.all()[0].name
        other = world.cloud.add(name)
        instances = instances_of(world.provider())
        for _ in range(2):
            with pytest.raises(AmbiguousInstance, match=other.id):
                await instances.metadata(node(name, internal_ips=other.addresses))
            for machine in world.cloud.all()[1:8]:
                await instances.metadata(node(machine.name))
        assert world.cloud.journal.count("get-all-instance") >= 3, "the second time it is found in the list of all"


async def test_an_instance_of_another_tenant_or_site_is_no_hit(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=1, sites=2) as world:
        other_site = list(world.cloud.sites)[1].key
        world.cloud.add("elsewhere", site_id=other_site)
        instances = instances_of(world.provider(NVIDIA_BMM_TENANT_ID=UNKNOWN))
        with pytest.raises(InstanceNotFound):
            await instances.metadata(node(world.cloud.all()[0].name))
        instances = instances_of(world.provider())
        with pytest.raises(InstanceNotFound):
            await instances.metadata(node("elsewhere"))


async def test_a_node_that_no_name_gives_is_found_by_its_address(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=3) as world:
        machine = world.cloud.add("some-other-name", addresses=["10.9.8.7", "fd00::7"])
        instances = instances_of(world.provider())
        for found in (
            await instances.metadata(node("worker-1", annotation="10.9.8.7")),
            await instances.metadata(node("worker-1", annotation="10.9.8.7,fd00::7")),
            await instances.metadata(node("worker-1", internal_ips=["10.9.8.7"])),
        ):
            assert found is not None and found.provider_id == machine.provider_id
        twin = world.cloud.add("twin", addresses=["10.9.8.7"])
        with pytest.raises(AmbiguousInstance, match=twin.id):
            await instances.metadata(node("worker-1", annotation="10.9.8.7"))


async def test_how_names_are_matched_can_be_chosen(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=3) as world:
        machine = world.cloud.all()[0]
        by_ip = instances_of(world.provider(NVIDIA_BMM_NODE_NAME_MATCH="ip"))
        with pytest.raises(InstanceNotFound):
            await by_ip.metadata(node(machine.name))
        found = await by_ip.metadata(node("worker", internal_ips=machine.addresses))
        assert found is not None and found.provider_id == machine.provider_id
        none = instances_of(world.provider(NVIDIA_BMM_NODE_NAME_MATCH="none"))
        world.cloud.journal.reset()
        assert await none.metadata(node(machine.name, internal_ips=machine.addresses)) is None
        with pytest.raises(CloudError):
            await none.exists(node(machine.name))
        assert world.cloud.journal.count() == 0


async def test_a_namesake_that_is_gone_does_not_make_the_node_absent(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=3) as world:
        machine = world.cloud.all()[0]
        instances = instances_of(world.provider())
        assert await instances.exists(node(machine.name))
        world.cloud.remove(machine.id)
        with pytest.raises(CloudError) as caught:
            await instances.exists(node(machine.name), fresh=True)
        assert not isinstance(caught.value, InstanceNotFound)


async def test_was_absent_speaks_of_complete_lists_and_searches(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=10) as world:
        instances = instances_of(world.provider())
        assert not instances.was_absent("stranger", 600)
        for machine in world.cloud.all():
            await instances.metadata(node(machine.name, machine.provider_id))
        assert instances.was_absent("stranger", 600)
        assert not instances.was_absent(world.cloud.all()[9].name, 600)


# Several sites


async def test_zone_and_region_are_those_of_the_instances_own_site(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=1, sites=2) as world:
        here, there = (row.key for row in world.cloud.sites)
        far = world.cloud.add("far", site_id=there)
        instances = instances_of(world.provider())
        found = await instances.metadata(node("far", far.provider_id))
        assert found is not None
        assert found.zone == f"nvidia-bmm-zone-{there}" and found.region == f"nvidia-bmm-region-{there.split('-')[0]}"
        near = world.cloud.all()[0]
        found = await instances.metadata(node(near.name, near.provider_id))
        assert found is not None and found.zone == f"nvidia-bmm-zone-{here}"
        # The site in a provider ID may be a name, or wrong: the instance knows better.
        found = await instances.metadata(node("far", f"nvidia-bmm://{world.cloud.org}/some-tenant/site-2/{far.id}"))
        assert found is not None and found.zone == f"nvidia-bmm-zone-{there}"


async def test_mappings_overrides_and_locations(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=6, sites=2) as world:
        there = list(world.cloud.sites)[1].key
        far = world.cloud.add("far", site_id=there)
        near = world.cloud.all()[0]
        mapped = instances_of(world.provider(NVIDIA_BMM_ZONE_MAPPING=f"{there}=zone-b", NVIDIA_BMM_ZONE="zone-a"))
        found = [await mapped.metadata(node(one.name, one.provider_id)) for one in (far, near)]
        assert [one.zone for one in found if one] == ["zone-b", "zone-a"]
        located = instances_of(world.provider(NVIDIA_BMM_REGION_SOURCE="location"))
        found = [await located.metadata(node(one.name, one.provider_id)) for one in (far, near, far, near)]
        assert [one.region for one in found if one] == ["usa-oregon-portland", "usa-california-santa-clara"] * 2
        assert world.cloud.journal.count("get-site") == 2, "a site is asked for once"


async def test_nodes_on_other_sites_are_read_with_the_same_list(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=150, sites=2) as world:
        there = list(world.cloud.sites)[1].key
        for number in range(150):
            world.cloud.add(f"far-{number}", site_id=there)
        nodes = [node(machine.name, machine.provider_id) for machine in world.cloud.all()]
        stray = node("stray", f"nvidia-bmm://{world.cloud.org}/t/{UNKNOWN}/{UNKNOWN}")
        world.nodes.replace([*nodes, stray], "1")
        instances = instances_of(world.provider())
        for each in nodes:
            assert await instances.metadata(each) is not None
        assert world.cloud.journal.count() <= 300 / 100 + 10


# Metadata


async def test_an_existing_provider_id_is_kept_as_it_is(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=1) as world:
        machine = world.cloud.all()[0]
        instances = instances_of(world.provider())
        for form in (
            f"nvidia-bmm://{world.cloud.org}/a-name/site-1/{machine.id}",
            f"nvidia-bmm://{world.cloud.org}/site-1/{machine.id.upper()}",
            f"nvidia-carbide://{world.cloud.org}/t/s/{machine.id}",
        ):
            found = await instances.metadata(node("n", form))
            assert found is not None and found.provider_id == form


async def test_the_type_is_the_types_name_its_id_or_the_originals_constant(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=7) as world:
        first, second, *_ = world.cloud.all()
        unreadable = "11111111-1111-4111-8111-111111111111"
        world.cloud.update(second.id, instanceTypeId=unreadable)
        instances = instances_of(world.provider())
        types = {}
        for machine in world.cloud.all():
            found = await instances.metadata(node(machine.name, machine.provider_id))
            assert found is not None
            types[machine.id] = found.instance_type
        assert types[first.id] == "site-1.h100x8"
        assert types[second.id] == unreadable
        assert world.cloud.journal.count("get-instance-type") == 2, "each type is asked for once"
        legacy = instances_of(world.provider(NVIDIA_BMM_INSTANCE_TYPE_SOURCE="legacy"))
        found = await legacy.metadata(node(first.name, first.provider_id))
        assert found is not None and found.instance_type == "nvidia-bmm-instance"


async def test_an_instance_without_a_type_has_the_originals_constant(tmp_path: Path) -> None:
    # The document has no such instance; servers that place a given machine have.
    async with simulated(tmp_path, machines=1, is_clean=False) as world:
        machine = world.cloud.update(world.cloud.all()[0].id, instanceTypeId=None)
        found = await instances_of(world.provider()).metadata(node(machine.name, machine.provider_id))
        assert found is not None and found.instance_type == "nvidia-bmm-instance"


async def test_a_type_that_cannot_be_read_now_is_waited_for(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=1) as world:
        machine = world.cloud.all()[0]
        instances = instances_of(world.provider())
        outage = world.cloud.faults.add("503", operation="get-instance-type")
        with pytest.raises(http_errors.Unavailable):
            await instances.metadata(node(machine.name, machine.provider_id))
        world.cloud.faults.remove(outage)
        found = await instances.metadata(node(machine.name, machine.provider_id))
        assert found is not None and found.instance_type == "site-1.h100x8"


async def test_without_addresses_a_new_node_waits_and_an_old_one_keeps_its_own(tmp_path: Path) -> None:
    async with simulated(tmp_path) as world:
        machine = world.cloud.add("bare", interfaces=[{"ipAddresses": []}])
        instances = instances_of(world.provider())
        with pytest.raises(RetryError, match="no addresses yet"):
            await instances.metadata(node("bare", machine.provider_id))
        found = await instances.metadata(node("bare", machine.provider_id, is_uninitialised=False))
        assert found is not None and found.addresses == ()
        found = await instances.metadata(node("bare", machine.provider_id, annotation="10.1.2.3"))
        assert found is not None
        assert found.addresses == (Address("InternalIP", "10.1.2.3"), Address("Hostname", "bare"))


async def test_labels_are_those_asked_for(tmp_path: Path) -> None:
    async with simulated(tmp_path) as world:
        machine = world.cloud.add("gpu", labels={"env": "staging"}, nvlink_domain=UNKNOWN)
        plain = await instances_of(world.provider()).metadata(node("gpu", machine.provider_id))
        assert plain is not None and plain.labels == {} and world.cloud.journal.count("get-machine") == 0
        asked = "tenant-labels,vpc,machine-id,nvlink-domain,vendor,product-name"
        found = await instances_of(
            world.provider(NVIDIA_BMM_LABELS_INCLUDE=asked, NVIDIA_BMM_LABELS_PREFIX="gpu.example.com/")
        ).metadata(node("gpu", machine.provider_id))
        assert found is not None
        assert {key.removeprefix("gpu.example.com/") for key in found.labels} == {
            "env",
            "vpc",
            "machine-id",
            "nvlink-domain",
            "vendor",
            "product-name",
        }
        assert found.labels["gpu.example.com/nvlink-domain"] == UNKNOWN
        for key, value in found.labels.items():
            assert names.label_key_problems(key) + names.label_value_problems(value) == []


async def test_a_listing_counts_what_is_there_and_names_the_nodes_among_it(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=3) as world:
        machines = world.cloud.all()
        asked = [
            node("a", machines[0].provider_id),
            node(machines[1].name),
            node("gone", machines[0].provider_id.replace(machines[0].id, UNKNOWN)),
            node("bad", "nvidia-bmm://x"),
        ]
        found = await instances_of(world.provider()).listing(asked)
        assert found.nodes == frozenset({"a", machines[1].name})
        assert found.machines == 3


@pytest.mark.parametrize("status", ["Terminated", "Terminating", "Error"])
async def test_a_site_whose_machines_are_all_off_shows_none(tmp_path: Path, status: str) -> None:
    """Else it would open the brake on deletions as a proof of a good site."""
    async with simulated(tmp_path, machines=2) as world:
        for machine in world.cloud.all():
            world.cloud.set_status(machine.name, status)
        assert (await instances_of(world.provider()).listing([])).machines == 0


# Terminated


async def watched(instances: Any, time: ManualClock, asked: Any, seconds: float) -> None:
    """A look every minute for that long, all of which find the machine."""
    for _ in range(int(seconds // 60)):
        assert await instances.exists(asked, fresh=True)
        await time.advance(60)


async def test_an_instance_that_stays_terminated_for_an_hour_is_gone(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=3) as world:
        time, machine = ManualClock(), world.cloud.all()[0]
        instances = instances_of(world.provider(time=time))
        asked = node(machine.name, machine.provider_id)
        world.cloud.set_status(machine.name, "Terminated")
        assert await instances.is_shutdown(asked)
        await watched(instances, time, asked, 3600)
        for fresh in (False, True):
            with pytest.raises(InstanceNotFound, match="listed as Terminated for more than 1h"):
                await instances.exists(asked, fresh=fresh)
        assert machine.name not in (await instances.listing([asked])).nodes, "the proof of the brake agrees"
        world.cloud.set_status(machine.name, "Ready")
        assert await instances.exists(asked, fresh=True)


@pytest.mark.parametrize("between", ["Ready", "Error", "Terminating"])
async def test_another_status_in_between_starts_the_hour_again(tmp_path: Path, between: str) -> None:
    async with simulated(tmp_path, machines=3) as world:
        time, machine = ManualClock(), world.cloud.all()[0]
        instances = instances_of(world.provider(time=time))
        asked = node(machine.name, machine.provider_id)
        for status in ("Terminated", between, "Terminated"):
            world.cloud.set_status(machine.name, status)
            await watched(instances, time, asked, 1800)
        await watched(instances, time, asked, 1700)


async def test_a_terminated_instance_that_nobody_looked_at_is_given_its_hour(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=3) as world:
        time, machine = ManualClock(), world.cloud.all()[0]
        instances = instances_of(world.provider(time=time))
        asked = node(machine.name, machine.provider_id)
        world.cloud.set_status(machine.name, "Terminated")
        assert await instances.exists(asked)
        await time.advance(4000)
        await watched(instances, time, asked, 3500)


async def test_a_terminated_instance_stays_for_ever_where_the_flag_says_so(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=3) as world:
        time, machine = ManualClock(), world.cloud.all()[0]
        instances = instances_of(world.provider(time=time, terminated_grace_s=0.0))
        world.cloud.set_status(machine.name, "Terminated")
        await watched(instances, time, node(machine.name, machine.provider_id), 7200)
