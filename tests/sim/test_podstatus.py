"""What a simulated kubelet says about a pod."""

import ipaddress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.api import core
from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.sim import podstatus
from bedplate.sim.podstatus import Addresses

NOW = ManualClock().now()


def pod(owner: str = "", **spec: Any) -> core.Pod:
    owners = [{"apiVersion": "batch/v1", "kind": owner, "name": "o", "uid": "u"}] if owner else []
    body = {"metadata": {"name": "p", "ownerReferences": owners}, "spec": {"containers": [{"name": "c"}]} | spec}
    return msgspec.convert(body, core.Pod)


def test_a_pod_runs_and_is_ready() -> None:
    status = podstatus.started(pod(), "10.0.0.1", "10.1.0.2", NOW)
    assert (status["phase"], status["podIP"], status["hostIP"]) == ("Running", "10.1.0.2", "10.0.0.1")
    assert {one["status"] for one in status["conditions"]} == {"True"}
    assert status["containerStatuses"][0]["ready"] and "running" in status["containerStatuses"][0]["state"]
    assert "initContainerStatuses" not in status


def test_a_pod_of_a_job_has_done_its_work() -> None:
    status = podstatus.started(pod("Job"), "10.0.0.1", "10.1.0.2", NOW)
    assert status["phase"] == "Succeeded"
    assert {one["type"] for one in status["conditions"] if one["status"] == "False"} == {"Ready", "ContainersReady"}
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


def test_init_containers_have_ended_and_sidecars_run() -> None:
    given = pod(initContainers=[{"name": "first"}, {"name": "proxy", "restartPolicy": "Always"}])
    first, proxy = podstatus.started(given, "10.0.0.1", "10.1.0.2", NOW)["initContainerStatuses"]
    assert "terminated" in first["state"] and "running" in proxy["state"]
    assert first["ready"] and proxy["ready"]


RANGE = ipaddress.ip_network("10.1.2.0/24")


def test_a_pod_keeps_its_address_and_others_get_others() -> None:
    addresses = Addresses()
    assert addresses.take("a", RANGE) == "10.1.2.2"
    assert addresses.take("b", RANGE) == "10.1.2.3"
    assert addresses.take("a", RANGE) == "10.1.2.2"


def test_addresses_of_an_earlier_run_are_not_given_again() -> None:
    addresses = Addresses()
    addresses.learn("old", "10.1.2.2")
    assert addresses.take("new", RANGE) == "10.1.2.3"
    assert addresses.take("old", RANGE) == "10.1.2.2"


def test_a_freed_address_is_given_again() -> None:
    addresses = Addresses()
    addresses.take("a", RANGE)
    addresses.free("a")
    addresses.free("a")
    assert addresses.take("b", RANGE) == "10.1.2.2"


def test_a_pod_of_the_same_name_on_another_machine_moves_to_its_range() -> None:
    addresses = Addresses()
    addresses.take("a", RANGE)
    assert addresses.take("a", ipaddress.ip_network("10.9.0.0/24")) == "10.9.0.2"
    assert addresses.take("b", RANGE) == "10.1.2.2"


def test_a_full_range_is_an_error_not_a_neighbours_address() -> None:
    addresses = Addresses()
    tiny = ipaddress.ip_network("10.0.0.0/30")
    addresses.take("a", tiny)
    with pytest.raises(errors.Unavailable, match="no address in"):
        addresses.take("b", tiny)


@given(st.lists(st.tuples(st.sampled_from(["take", "free"]), st.integers(0, 20)), max_size=80))
def test_no_two_pods_ever_share_an_address(steps: list[tuple[str, int]]) -> None:
    addresses, held = Addresses(), dict[str, str]()
    for action, number in steps:
        key = str(number)
        if action == "take":
            held[key] = addresses.take(key, RANGE)
        else:
            addresses.free(key)
            held.pop(key, None)
        assert len(set(held.values())) == len(held)
