"""Explanations say what the controllers would do and why, in the words of their own plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from tests.cloud import scripted
from tests.cloud.controllers.balancers import ScriptedBalancers
from tests.cloud.scripted import ScriptedProvider, node

from bedplate.api import core, discovery, names
from bedplate.cloud import taints
from bedplate.cloud.controllers import lifecycle_plan, service_plan
from bedplate.cloud.explain_objects import Explanation, Finding, State, explain_node, explain_service
from bedplate.cloud.interface import Target
from bedplate.cloud.routing import Clouds
from bedplate.core import clock, errors
from bedplate.core.clock import ManualClock

TAINT = core.Taint(key=names.TAINT_UNINITIALIZED, value="true", effect="NoSchedule")
SIX = {
    names.LABEL_INSTANCE_TYPE: "small",
    names.LABEL_INSTANCE_TYPE_BETA: "small",
    names.LABEL_ZONE: "zone-a",
    names.LABEL_ZONE_BETA: "zone-a",
    names.LABEL_REGION: "region-1",
    names.LABEL_REGION_BETA: "region-1",
}


async def explained(
    one: core.Node, *clouds: ScriptedProvider, others: tuple[core.Node, ...] = (), blocked: str = "", **rules: Any
) -> Explanation:
    return await explain_node(
        one,
        (one, *others),
        Clouds(clouds),
        rules=lifecycle_plan.Rules(**rules),
        reconciles_labels=True,
        time=ManualClock(),
        blocked=blocked,
    )


def finding(explanation: Explanation, topic: str) -> Finding:
    return next(one for one in explanation.findings if one.topic == topic)


@pytest.fixture
def cloud() -> ScriptedProvider:
    made = ScriptedProvider("fake")
    made.add("m1", "n1")
    return made


async def test_a_good_node_is_all_well(cloud: ScriptedProvider) -> None:
    addresses = (("InternalIP", "10.0.0.1"),)
    found = await explained(node(provider_id="fake://m1", ready="True", labels=SIX, addresses=addresses), cloud)
    assert found.state == State.GOOD
    assert finding(found, "cloud").answer == "fake"
    assert finding(found, "cloud").why == "its provider ID fake://m1 says so; it knows the machine"
    assert finding(found, "initialised").answer == "yes"
    assert finding(found, "lifecycle").why == "it is ready: its cloud is not queried"


async def test_a_tainted_node_is_told_what_initialises_it(cloud: ScriptedProvider) -> None:
    found = finding(await explained(node(ready="True", taints=(TAINT,)), cloud), "initialised")
    assert (found.answer, found.state) == ("no", State.BAD)
    assert "fake knows it as fake://m1" in found.why


async def test_a_node_ip_that_the_cloud_does_not_have_is_named(cloud: ScriptedProvider) -> None:
    annotations = {names.ANNOTATION_PROVIDED_NODE_IP: "10.9.9.9"}
    found = await explained(node(ready="True", taints=(TAINT,), annotations=annotations), cloud)
    assert "10.9.9.9" in finding(found, "initialised").why


@pytest.mark.parametrize("fault", sorted(scripted.FAULTS))
async def test_a_cloud_that_cannot_be_asked_leaves_everything_unknown(cloud: ScriptedProvider, fault: str) -> None:
    make: Callable[[], Exception] = scripted.FAULTS[fault]
    cloud.fault = lambda operation, node: make()
    found = await explained(node(provider_id="fake://m1", taints=(TAINT,)), cloud)
    assert found.state == State.UNKNOWN
    assert finding(found, "lifecycle").answer == "kept"


@pytest.mark.parametrize(
    ("provider_id", "remedy"),
    [("", "--provider-id, or give the node the name"), ("fake://gone", "kubectl delete node")],
)
async def test_a_node_without_a_machine_is_told_the_remedy(
    cloud: ScriptedProvider, provider_id: str, remedy: str
) -> None:
    found = finding(await explained(node("lost", provider_id=provider_id, taints=(TAINT,)), cloud), "initialised")
    assert remedy in found.why


async def test_a_waiting_node_of_another_organisation_is_told_the_remedy(cloud: ScriptedProvider) -> None:
    cloud.foreign["fake://m1"] = "its provider ID is of organisation x"
    found = finding(await explained(node(provider_id="fake://m1", taints=(TAINT,)), cloud), "cloud")
    assert found.state == State.BAD
    assert "--provider-id" in found.why


async def test_an_absent_machine_would_be_deleted_and_what_is_missing_is_said(cloud: ScriptedProvider) -> None:
    found = finding(await explained(node(provider_id="fake://gone"), cloud), "lifecycle")
    assert (found.answer, found.state) == ("would be deleted", State.BAD)
    assert "confirmations" in found.why


async def test_the_brake_is_seen_when_too_many_are_absent(cloud: ScriptedProvider) -> None:
    others = tuple(node(f"other-{number}", provider_id=f"fake://gone-{number}") for number in range(3))
    found = finding(await explained(node(provider_id="fake://gone"), cloud, others=others), "lifecycle")
    assert found.answer == "not deleted: brake"
    assert "4 of the 4 managed nodes" in found.why


@pytest.mark.parametrize(("after_s", "answer"), [(750.0, "opens in 12m30s"), (-5.0, "closed"), (None, "closed")])
async def test_the_brake_counts_down_to_what_the_manager_has_announced(
    cloud: ScriptedProvider, after_s: float | None, answer: str
) -> None:
    others = (node("other", provider_id="fake://gone-too"),)
    told = ""
    if after_s is not None:
        told = f"it opens by itself at {clock.rfc3339(ManualClock().now() + timedelta(seconds=after_s))}, in a while"
    found = finding(await explained(node(provider_id="fake://gone"), cloud, others=others, blocked=told), "brake")
    assert found.answer == answer
    assert "opens by itself" in found.why


async def test_the_brake_of_an_empty_site_stays_closed_whatever_was_announced() -> None:
    others = (node("other", provider_id="fake://gone-too"),)
    told = f"it opens by itself at {clock.rfc3339(ManualClock().now() + timedelta(seconds=60))}"
    empty = ScriptedProvider("fake")
    found = finding(await explained(node(provider_id="fake://gone"), empty, others=others, blocked=told), "brake")
    assert found.answer == "stays closed"
    assert "no machine at all" in found.why


async def test_a_young_node_is_given_time(cloud: ScriptedProvider) -> None:
    young = node(provider_id="fake://gone", created=ManualClock().now() - timedelta(seconds=5))
    assert "it joined 5 s ago" in finding(await explained(young, cloud), "lifecycle").why


async def test_a_machine_that_is_off_is_tainted(cloud: ScriptedProvider) -> None:
    cloud.machines["m1"].is_off = True
    found = finding(await explained(node(provider_id="fake://m1"), cloud), "lifecycle")
    assert found.answer == "is tainted"
    tainted = node(provider_id="fake://m1", taints=(taints.SHUTDOWN,))
    assert finding(await explained(tainted, cloud), "lifecycle").answer == "kept"


async def test_a_foreign_node_is_nobodys_here(cloud: ScriptedProvider) -> None:
    cloud.load_balancers = ScriptedBalancers()
    found = await explained(node(provider_id="aws://i-1"), cloud)
    assert [one.topic for one in found.findings] == ["cloud", "target of fake"]
    assert finding(found, "target of fake").answer == "no"
    assert found.state == State.NOTICE
    assert cloud.calls == []


async def test_a_name_in_two_clouds_is_ambiguous(cloud: ScriptedProvider) -> None:
    other = ScriptedProvider("other")
    other.add("m9", "n1")
    found = await explained(node(taints=(TAINT,)), cloud, other)
    assert finding(found, "cloud").answer == "ambiguous"
    assert finding(found, "initialised").state == State.UNKNOWN


async def test_a_node_is_a_target_unless_something_excludes_it(cloud: ScriptedProvider) -> None:
    cloud.load_balancers = ScriptedBalancers(needs_ready_nodes=True)
    good = await explained(node(provider_id="fake://m1", ready="True"), cloud)
    assert finding(good, "target of fake").answer == "yes"
    unready = await explained(node(provider_id="fake://m1"), cloud)
    assert finding(unready, "target of fake").answer == "yes, not ready"
    labels = {names.LABEL_EXCLUDE_FROM_LOAD_BALANCERS: ""}
    excluded = await explained(node(provider_id="fake://m1", labels=labels), cloud)
    assert finding(excluded, "target of fake").answer == "no"


# Services


def service(
    type_: str = "LoadBalancer", *, finalizers: tuple[str, ...] = (), ip: str = "", **spec: Any
) -> core.Service:
    ingress = [{"ip": ip}] if ip else []
    return msgspec.convert(
        {
            "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "finalizers": list(finalizers)},
            "spec": {"type": type_, **spec},
            "status": {"loadBalancer": {"ingress": ingress}},
        },
        core.Service,
    )


async def service_explained(
    cloud: ScriptedProvider, one: core.Service, *nodes: core.Node, slices: tuple[discovery.EndpointSlice, ...] = ()
) -> Explanation:
    ownership = service_plan.Ownership(("fake",) if cloud.load_balancers is not None else ())
    return await explain_service(one, nodes, slices, Clouds([cloud]), ownership=ownership, cluster="k")


async def test_a_service_that_is_served_is_all_well(cloud: ScriptedProvider) -> None:
    balancers = cloud.load_balancers = ScriptedBalancers()
    good = node(provider_id="fake://m1", ready="True")
    status = await balancers.ensure("k", service(), [Target(good)])
    assert status is not None
    served = service(finalizers=(service_plan.FINALIZER,), ip=status.ingress[0].ip)
    found = await service_explained(cloud, served, good)
    assert found.state == State.GOOD
    assert finding(found, "load balancer of").answer == "fake"
    assert finding(found, "in the cloud").answer == "present"
    assert finding(found, "target n1").answer == "yes"


async def test_a_service_without_its_load_balancer_says_what_is_missing(cloud: ScriptedProvider) -> None:
    cloud.load_balancers = ScriptedBalancers()
    found = await service_explained(cloud, service())
    assert found.state == State.BAD
    assert finding(found, "finalizer").answer == "none"
    assert finding(found, "in the cloud").answer == "absent"
    assert finding(found, "next step").answer == "ensure"
    assert finding(found, "targets").answer == "none"


async def test_a_service_of_another_class_or_type_is_not_ours(cloud: ScriptedProvider) -> None:
    cloud.load_balancers = ScriptedBalancers()
    found = await service_explained(cloud, service(loadBalancerClass="example.com/other"))
    assert (finding(found, "load balancer of").answer, found.state) == ("nobody here", State.NOTICE)
    found = await service_explained(cloud, service("ClusterIP"))
    assert "its type is ClusterIP" in finding(found, "load balancer of").why


async def test_a_service_left_over_is_to_be_deleted(cloud: ScriptedProvider) -> None:
    cloud.load_balancers = ScriptedBalancers()
    found = await service_explained(cloud, service("ClusterIP", finalizers=(service_plan.FINALIZER,)))
    assert finding(found, "next step").answer == "delete"
    assert found.state == State.BAD


async def test_local_traffic_names_the_nodes_without_endpoints(cloud: ScriptedProvider) -> None:
    cloud.load_balancers = ScriptedBalancers()
    slices = msgspec.convert(
        {"metadata": {"name": "s"}, "endpoints": [{"addresses": ["10.0.0.1"], "nodeName": "n1"}]},
        discovery.EndpointSlice,
    )
    nodes = (node("n1", provider_id="fake://m1", ready="True"), node("n2", provider_id="fake://m2", ready="True"))
    found = await service_explained(cloud, service(externalTrafficPolicy="Local"), *nodes, slices=(slices,))
    assert finding(found, "target n1").answer == "yes"
    assert finding(found, "target n2").answer == "no endpoint"


class PlacedBalancers(ScriptedBalancers):
    """Load balancers that sit on one node; `taken` says which nodes are in use by others."""

    taken: Mapping[str, str] = MappingProxyType({})

    async def obstacles(self, cluster: str, service: core.Service, targets: Sequence[Target]) -> Mapping[str, str]:
        if "fault" in self.taken:
            raise errors.Unavailable("503")
        assert {target.node.name for target in targets} == {"n1", "n2"}
        return self.taken


@pytest.mark.parametrize(
    ("taken", "room", "state"),
    [
        ({}, None, None),
        ({"n2": "port 80/TCP is taken there by shop/other"}, "one node", State.NOTICE),
        (dict.fromkeys(("n1", "n2"), "port 80/TCP is taken there by shop/other"), "none", State.BAD),
    ],
)
async def test_ports_that_other_services_take_are_told(
    cloud: ScriptedProvider, taken: dict[str, str], room: str | None, state: str | None
) -> None:
    balancers = cloud.load_balancers = PlacedBalancers()
    balancers.taken = taken
    nodes = (node("n1", provider_id="fake://m1", ready="True"), node("n2", provider_id="fake://m2", ready="True"))
    found = await service_explained(cloud, service(), *nodes)
    assert [(one.answer, one.state) for one in found.findings if one.topic == "room"] == (
        [(room, state)] if room is not None else []
    )
    for name, why in taken.items():
        assert finding(found, f"target {name}").answer == "taken" and why in finding(found, f"target {name}").why


async def test_ports_that_cannot_be_asked_for_are_unknown(cloud: ScriptedProvider) -> None:
    balancers = cloud.load_balancers = PlacedBalancers()
    balancers.taken = {"fault": ""}
    found = await service_explained(cloud, service(), node("n1", provider_id="fake://m1", ready="True"))
    assert finding(found, "ports").state == State.UNKNOWN
