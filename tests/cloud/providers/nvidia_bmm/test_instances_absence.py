"""What counts as absence, in every row of the table in `verdict`; an error is never absence, however long it lasts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from tests.cloud.http.leaping import LeapingClock
from tests.cloud.providers.nvidia_bmm.world import UNKNOWN, instances_of, node, provider_id, simulated

from bedplate.cloud.errors import CloudError, InstanceNotFound
from bedplate.cloud.http import errors as http_errors
from bedplate.core import errors


async def test_an_answer_with_the_asked_id_exists_in_any_status(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=1) as world:
        machine = world.cloud.all()[0]
        instances = instances_of(world.provider())
        for status in ("Pending", "Ready", "Terminating", "Error", "Terminated"):
            world.cloud.set_status(machine.id, status)
            assert await instances.exists(node(machine.name, machine.provider_id), fresh=True)
            is_off = status in ("Terminating", "Error", "Terminated")
            assert await instances.is_shutdown(node(machine.name, machine.provider_id)) is is_off
        assert await instances.exists(node(machine.name, provider_id(world, machine.id.upper())), fresh=True)


async def test_exists_and_is_shutdown_of_one_pass_share_one_call(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=1) as world:
        machine = world.cloud.all()[0]
        instances = instances_of(world.provider())
        ours = node(machine.name, machine.provider_id)
        assert await instances.exists(ours) and not await instances.is_shutdown(ours)
        assert world.cloud.journal.count() == 1


async def test_a_404_that_names_the_instance_is_absence(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=1) as world:
        instances = instances_of(world.provider())
        gone = node("gone", provider_id(world, UNKNOWN))
        for fresh in (False, True):
            with pytest.raises(InstanceNotFound, match=UNKNOWN):
                await instances.exists(gone, fresh=fresh)
        assert not await instances.is_shutdown(gone)
        with pytest.raises(InstanceNotFound):
            await instances.metadata(gone)
        assert world.cloud.journal.count("get-all-instance") == 0


async def test_a_404_that_names_nothing_needs_a_complete_list_without_the_instance(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=150) as world:
        instances = instances_of(world.provider())
        world.cloud.faults.add("generic-404", operation="get-instance", fault={"style": "unnamed"})
        with pytest.raises(InstanceNotFound):
            await instances.exists(node("gone", provider_id(world, UNKNOWN)), fresh=True)
        assert world.cloud.journal.count("get-all-instance") == 2, "all pages"
        machine = world.cloud.all()[-1]
        with pytest.raises(CloudError, match="lists instance") as caught:
            await instances.exists(node(machine.name, machine.provider_id), fresh=True)
        assert not isinstance(caught.value, InstanceNotFound)


@pytest.mark.parametrize(
    "kind", ["401", "403", "429", "500", "503", "reset", "truncated-json", "wrong-json", "wrong-content-type"]
)
async def test_a_404_that_names_nothing_is_no_absence_when_the_list_fails(tmp_path: Path, kind: str) -> None:
    async with simulated(tmp_path, machines=150) as world:
        instances = instances_of(world.provider())
        world.cloud.faults.add("generic-404", operation="get-instance", fault={"style": "unnamed"})
        world.cloud.faults.add(kind, operation="get-all-instance", every=2)
        world.cloud.faults.add(kind, operation="get-all-instance", path=".*")
        with pytest.raises(CloudError) as caught:
            await instances.exists(node("gone", provider_id(world, UNKNOWN)), fresh=True)
        assert not isinstance(caught.value, InstanceNotFound)


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        ("generic-404", {"style": "route"}, http_errors.NotFound),
        ("generic-404", {"style": "html"}, http_errors.NotFound),
        ("generic-404", {"style": "plain"}, http_errors.NotFound),
        ("401", {}, http_errors.Unauthorized),
        ("403", {}, http_errors.Forbidden),
        ("408", {}, http_errors.Unavailable),
        ("409", {}, http_errors.Conflict),
        ("429", {}, http_errors.RateLimited),
        ("429", {"retry_after": "50s"}, http_errors.RateLimited),
        ("500", {}, http_errors.Unavailable),
        ("502", {}, http_errors.Unavailable),
        ("503", {}, http_errors.Unavailable),
        ("504", {}, http_errors.Unavailable),
        ("reset", {}, http_errors.Transport),
        ("truncated-json", {}, http_errors.ApiError),
        ("wrong-json", {}, http_errors.Protocol),
        ("wrong-content-type", {}, http_errors.Protocol),
    ],
)
async def test_every_other_answer_is_an_error_for_gone_and_living_alike(
    tmp_path: Path, kind: str, options: dict[str, str], expected: type[CloudError]
) -> None:
    async with simulated(tmp_path, machines=1) as world:
        machine = world.cloud.all()[0]
        world.cloud.faults.add(kind, fault=options)
        for ours in (node(machine.name, machine.provider_id), node("gone", provider_id(world, UNKNOWN))):
            instances = instances_of(world.provider())
            for ask in (instances.exists, partial(instances.exists, fresh=True), instances.is_shutdown):
                with pytest.raises(http_errors.ApiError) as caught:
                    await ask(ours)
                # A 404 whose body is spoilt stays a 404, but one that says nothing.
                assert isinstance(caught.value, expected) or (ours.name == "gone" and caught.value.status == 404)


@pytest.mark.parametrize("kind", ["timeout", "slow-body"])
async def test_an_answer_that_does_not_come_in_time_is_an_error(tmp_path: Path, kind: str) -> None:
    async with simulated(tmp_path, machines=1) as world:
        world.cloud.faults.add(kind)
        instances = instances_of(world.provider(timeout_s=0.6))
        with pytest.raises(http_errors.Transport):
            await instances.exists(node("gone", provider_id(world, UNKNOWN)), fresh=True)


async def test_an_endpoint_where_nobody_listens_is_an_error(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=1) as world:
        instances = instances_of(world.provider(NVIDIA_BMM_ENDPOINT="http://127.0.0.1:1"))
        with pytest.raises(http_errors.Transport):
            await instances.exists(node("gone", provider_id(world, UNKNOWN)), fresh=True)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"NVIDIA_BMM_API_NAME": "forge"}, http_errors.NotFound),
        ({"NVIDIA_BMM_API_VERSION": "v1"}, http_errors.NotFound),
        ({"NVIDIA_BMM_TOKEN": "made-up"}, http_errors.Unauthorized),
    ],
)
async def test_a_wrong_configuration_is_an_error_and_never_absence(
    tmp_path: Path, changes: dict[str, str], expected: type[CloudError]
) -> None:
    async with simulated(tmp_path, machines=1, is_clean=False) as world:
        instances = instances_of(world.provider(**changes))
        with pytest.raises(expected) as caught:
            await instances.exists(node("gone", provider_id(world, UNKNOWN)), fresh=True)
        if expected is http_errors.NotFound:
            assert isinstance(caught.value, CloudError) and "apiName" in caught.value.hint


async def test_an_instance_of_another_tenant_and_an_org_without_one_are_errors(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=1) as world:
        stranger = world.cloud.add("stranger", tenant_id=UNKNOWN)
        instances = instances_of(world.provider())
        with pytest.raises(http_errors.Forbidden):
            await instances.exists(node("stranger", stranger.provider_id), fresh=True)
        world.cloud.has_tenant = False
        with pytest.raises(http_errors.Forbidden):
            await instances.exists(node("gone", provider_id(world, UNKNOWN)), fresh=True)


async def test_an_id_of_another_organisation_is_foreign_and_asked_of_nobody(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=1) as world:
        provider = world.provider()
        theirs = f"nvidia-bmm://other-org/t/s/{UNKNOWN}"
        assert "other-org" in provider.is_foreign(theirs)
        assert provider.is_foreign(provider_id(world, UNKNOWN)) == "" == provider.is_foreign("nvidia-bmm://nonsense")
        with pytest.raises(errors.Invalid):
            await instances_of(provider).exists(node("theirs", theirs))
        with pytest.raises(errors.Invalid):
            await instances_of(provider).exists(node("broken", "nvidia-bmm://nonsense"))
        assert world.cloud.journal.count() == 0


# An error is never absence: wrong lists, and outages that last


async def test_machines_that_a_list_drops_or_has_not_yet_are_there_all_the_same(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=20) as world:
        world.cloud.faults.add("drop-from-list", fault={"share": 0.5})
        time = LeapingClock()
        instances = instances_of(world.provider(time=time))
        for _ in range(2):
            for machine in world.cloud.all():
                assert await instances.exists(node(machine.name, machine.provider_id))
            time.leap(40)
        assert world.cloud.journal.count("get-all-instance") == 2


async def test_a_list_that_still_holds_a_gone_machine_does_not_keep_it_alive_when_asked_afresh(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=20) as world:
        instances = instances_of(world.provider())
        first = world.cloud.all()[0]
        world.cloud.faults.add("stale-list", fault={"age": "1h"})
        for machine in world.cloud.all()[1:]:
            await instances.exists(node(machine.name, machine.provider_id))
        world.cloud.remove(first.id)
        with pytest.raises(InstanceNotFound):
            await instances.exists(node(first.name, first.provider_id), fresh=True)


@pytest.mark.parametrize("kind", ["503", "429", "401", "reset", "generic-404", "wrong-json"])
async def test_an_outage_of_an_hour_makes_nothing_absent_and_is_over_when_it_is_over(tmp_path: Path, kind: str) -> None:
    async with simulated(tmp_path, machines=6) as world:
        time = LeapingClock()
        instances = instances_of(world.provider(time=time))
        nodes = [node(machine.name, machine.provider_id) for machine in world.cloud.all()]
        world.cloud.faults.add(kind)
        until = time.monotonic() + 3600
        while time.monotonic() < until:
            for each in nodes:
                with pytest.raises(CloudError) as caught:
                    await instances.exists(each, fresh=bool(len(time.slept) % 2))
                assert not isinstance(caught.value, InstanceNotFound)
            time.leap(120)
        world.cloud.faults.clear()
        time.leap(60)
        for each in nodes:
            assert await instances.exists(each)


async def test_a_site_that_is_no_uuid_is_no_filter(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=20) as world:
        instances = instances_of(world.provider(NVIDIA_BMM_SITE_ID="site-123"))
        for machine in world.cloud.all():
            assert await instances.exists(node(machine.name, machine.provider_id))
        assert world.cloud.journal.count() == 5
