"""The old interface behind the new one: what is asked by which name, and what failures mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.cloud.scripted import ScriptedProvider, node

from bedplate.cloud.errors import CloudError, InstanceNotFound, NotImplementedByCloud
from bedplate.cloud.interface import Address, Zone
from bedplate.cloud.legacy import AdaptedInstances
from bedplate.cloud.routing import Clouds


class Old:
    """The old interface, with answers by method; an exception is raised."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = {
            "node_addresses": (Address("InternalIP", "10.0.0.2"),),
            "node_addresses_by_provider_id": (Address("InternalIP", "10.0.0.1"),),
            "instance_id": "i-1",
            "instance_type": "by-name",
            "instance_type_by_provider_id": "by-id",
            "exists_by_provider_id": True,
            "is_shutdown_by_provider_id": True,
            "zone_by_node_name": Zone("zone-by-name", "r"),
            "zone_by_provider_id": Zone("zone-by-id", "r"),
            **answers,
        }
        self.calls: list[tuple[str, str]] = []

    def __getattr__(self, method: str) -> Callable[[str], Any]:
        async def call(argument: str) -> Any:
            self.calls.append((method, argument))
            answer = self.answers[method]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


def adapted(old: Old) -> AdaptedInstances:
    return AdaptedInstances("fake", old)


def methods(calls: Sequence[tuple[str, str]]) -> list[str]:
    return [method for method, _ in calls]


async def test_by_provider_id_first_and_by_name_not_at_all_when_that_works() -> None:
    old = Old()
    found = await adapted(old).metadata(node(provider_id="fake://i-7"))
    assert found is not None
    assert (found.provider_id, found.instance_type, found.zone, found.region) == (
        "fake://i-7",
        "by-id",
        "zone-by-id",
        "r",
    )
    assert found.addresses == (Address("InternalIP", "10.0.0.1"),)
    assert {argument for _, argument in old.calls} == {"fake://i-7"}


async def test_a_missing_provider_id_is_made_of_the_instances_id() -> None:
    old = Old()
    found = await adapted(old).metadata(node("n1"))
    assert found is not None
    assert found.provider_id == "fake://i-1"
    assert old.calls[0] == ("instance_id", "n1")


async def test_each_question_falls_back_to_the_name_on_its_own() -> None:
    old = Old(instance_type_by_provider_id=CloudError("not now"))
    found = await adapted(old).metadata(node("n1", provider_id="fake://i-1"))
    assert found is not None
    assert (found.instance_type, found.zone) == ("by-name", "zone-by-id")
    assert ("instance_type", "n1") in old.calls
    assert "node_addresses" not in methods(old.calls)


async def test_both_failures_are_told_in_one_error() -> None:
    old = Old(node_addresses_by_provider_id=InstanceNotFound("no such id"), node_addresses=CloudError("no such host"))
    with pytest.raises(CloudError, match=r"no such id.*no such host"):
        await adapted(old).metadata(node("n1", provider_id="fake://i-1"))


async def test_absent_by_both_is_absent() -> None:
    old = Old(node_addresses_by_provider_id=InstanceNotFound("one"), node_addresses=InstanceNotFound("two"))
    with pytest.raises(InstanceNotFound, match=r"one.*two"):
        await adapted(old).metadata(node("n1", provider_id="fake://i-1"))


async def test_a_provider_without_zones_gives_none() -> None:
    missing = NotImplementedByCloud("no zones")
    old = Old(zone_by_provider_id=missing, zone_by_node_name=missing)
    found = await adapted(old).metadata(node("n1", provider_id="fake://i-1"))
    assert found is not None
    assert (found.zone, found.region) == ("", "")


async def test_existence_is_asked_by_id_and_a_name_without_instance_is_absent() -> None:
    assert await adapted(Old()).exists(node("n1", provider_id="fake://i-1"))
    assert not await adapted(Old(exists_by_provider_id=False)).exists(node("n1"))
    with pytest.raises(InstanceNotFound):
        await adapted(Old(instance_id=InstanceNotFound("none"))).exists(node("n1"))
    with pytest.raises(CloudError):
        await adapted(Old(instance_id=CloudError("later"))).exists(node("n1"))


async def test_a_provider_that_cannot_tell_shutdown_says_no() -> None:
    assert await adapted(Old()).is_shutdown(node("n1", provider_id="fake://i-1"))
    old = Old(is_shutdown_by_provider_id=NotImplementedByCloud("no"))
    assert not await adapted(old).is_shutdown(node("n1", provider_id="fake://i-1"))


async def test_the_new_interface_suppresses_the_old_one() -> None:
    both = ScriptedProvider()
    both.legacy = Old()  # type: ignore[assignment]
    assert Clouds([both]).instances(both) is both.instances
    both.instances = None
    found = Clouds([both]).instances(both)
    assert isinstance(found, AdaptedInstances)
    assert found.was_absent("n1", 600) is False


async def test_the_old_interface_cannot_list() -> None:
    with pytest.raises(NotImplementedByCloud):
        await adapted(Old()).listing([])
