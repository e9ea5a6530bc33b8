"""What is decided about one node: initialise, correct, leave or refuse."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.cloud.scripted import ScriptedProvider, node

from bedplate.api.core import Node, Taint
from bedplate.api.meta import Condition
from bedplate.api.names import ANNOTATION_PROVIDED_NODE_IP, TAINT_UNINITIALIZED
from bedplate.cloud.controllers import node_plan
from bedplate.cloud.controllers.node_plan import Kind
from bedplate.cloud.interface import Address, InstanceMetadata
from bedplate.cloud.routing import Clouds

TAINT = Taint(key=TAINT_UNINITIALIZED, value="true", effect="NoSchedule")
OTHER = Taint(key="mine", effect="NoSchedule")
METADATA = InstanceMetadata("fake://i-1", "small", (Address("InternalIP", "10.0.0.1"),), "z", "r", {"rack": "4"})


@pytest.fixture
async def clouds() -> Clouds:
    return Clouds([ScriptedProvider("fake"), ScriptedProvider("other")])


async def test_one_patch_carries_id_labels_and_the_taint_and_the_version(clouds: Clouds) -> None:
    verdict = node_plan.initialise(node(taints=(OTHER, TAINT), version="7"), METADATA, clouds, "fake")
    assert verdict.kind is Kind.INITIALISE
    assert verdict.patch is not None
    assert verdict.patch["spec"] == {
        "providerID": "fake://i-1",
        "taints": [{"key": "mine", "effect": "NoSchedule"}],
    }
    assert verdict.patch["metadata"]["resourceVersion"] == "7"
    assert len(verdict.patch["metadata"]["labels"]) == 7


async def test_every_taint_of_the_key_goes(clouds: Clouds) -> None:
    both = (TAINT, Taint(key=TAINT_UNINITIALIZED, effect="NoExecute"))
    verdict = node_plan.initialise(node(taints=both), METADATA, clouds, "fake")
    assert verdict.patch is not None
    assert verdict.patch["spec"]["taints"] is None


async def test_a_provider_id_that_is_there_is_never_written_again(clouds: Clouds) -> None:
    verdict = node_plan.initialise(node(taints=(TAINT,), provider_id="fake://kubelet"), METADATA, clouds, "fake")
    assert verdict.patch is not None
    assert "providerID" not in verdict.patch["spec"]


async def test_no_metadata_leaves_the_taint(clouds: Clouds) -> None:
    verdict = node_plan.initialise(node(taints=(TAINT,)), None, clouds, "fake")
    assert (verdict.kind, verdict.patch) == (Kind.LEAVE, None)


async def test_no_provider_id_at_all_is_refused_by_name(clouds: Clouds) -> None:
    verdict = node_plan.initialise(node("n7", taints=(TAINT,)), replace(METADATA, provider_id=""), clouds, "fake")
    assert verdict.kind is Kind.REFUSE
    assert "n7" in verdict.reason
    assert "provider ID" in verdict.reason


async def test_the_nodes_own_provider_id_will_do(clouds: Clouds) -> None:
    known = node(taints=(TAINT,), provider_id="fake://i-1")
    verdict = node_plan.initialise(known, replace(METADATA, provider_id=""), clouds, "fake")
    assert verdict.kind is Kind.INITIALISE


@pytest.mark.parametrize("provider_id", ["other://i-1", "aws://i-1", "i-1"])
async def test_a_provider_may_not_give_an_id_of_another(clouds: Clouds, provider_id: str) -> None:
    given = replace(METADATA, provider_id=provider_id)
    assert node_plan.initialise(node(taints=(TAINT,)), given, clouds, "fake").kind is Kind.REFUSE


@pytest.mark.parametrize("provider_id", ["other://i-1", "aws://i-1", "i-1"])
async def test_a_node_of_another_cloud_is_not_initialised(clouds: Clouds, provider_id: str) -> None:
    theirs = node(taints=(TAINT,), provider_id=provider_id)
    assert node_plan.initialise(theirs, METADATA, clouds, "fake").kind is Kind.REFUSE


async def test_a_node_ip_the_cloud_lacks_keeps_the_taint(clouds: Clouds) -> None:
    bad = node(taints=(TAINT,), annotations={ANNOTATION_PROVIDED_NODE_IP: "10.9.9.9"})
    verdict = node_plan.initialise(bad, METADATA, clouds, "fake")
    assert (verdict.kind, verdict.event_reason) == (Kind.REFUSE, "InvalidNodeIP")


def test_a_refresh_that_finds_all_well_writes_nothing() -> None:
    labels = {
        "beta.kubernetes.io/instance-type": "small",
        "node.kubernetes.io/instance-type": "small",
        "failure-domain.beta.kubernetes.io/zone": "z",
        "topology.kubernetes.io/zone": "z",
        "failure-domain.beta.kubernetes.io/region": "r",
        "topology.kubernetes.io/region": "r",
        "rack": "4",
    }
    well = node(labels=labels, addresses=(("InternalIP", "10.0.0.1"),))
    verdict = node_plan.refresh(well, METADATA, reconciles_labels=True)
    assert (verdict.kind, verdict.patch, verdict.addresses) == (Kind.LEAVE, None, None)


def test_a_refresh_writes_all_labels_in_one_patch_and_only_when_asked() -> None:
    bare = node(addresses=(("InternalIP", "10.0.0.1"),))
    verdict = node_plan.refresh(bare, METADATA, reconciles_labels=True)
    assert verdict.patch is not None
    assert len(verdict.patch["metadata"]["labels"]) == 7
    assert node_plan.refresh(bare, METADATA, reconciles_labels=False).patch is None


def test_a_refresh_leaves_tainted_nodes_and_absent_metadata() -> None:
    assert node_plan.refresh(node(taints=(TAINT,)), METADATA, reconciles_labels=True).kind is Kind.LEAVE
    assert node_plan.refresh(node(), None, reconciles_labels=True).kind is Kind.LEAVE


def changed(one: Node, **fields: Any) -> Node:
    return msgspec.structs.replace(one, **fields)


def test_only_what_matters_is_of_interest() -> None:
    tainted = node(taints=(TAINT,))
    beat = changed(
        tainted,
        metadata=msgspec.structs.replace(tainted.metadata, resource_version="2"),
        status=msgspec.structs.replace(
            tainted.status,
            conditions=(Condition(type="Ready", status="True", last_heartbeat_time=datetime.now(UTC)),),
        ),
    )
    assert node_plan.is_of_interest(None, tainted)
    assert not node_plan.is_of_interest(tainted, beat)
    assert node_plan.is_of_interest(
        tainted, node(taints=(TAINT,), annotations={ANNOTATION_PROVIDED_NODE_IP: "10.0.0.1"})
    )
    assert node_plan.is_of_interest(tainted, node(taints=(TAINT,), provider_id="fake://i-1"))
    assert node_plan.is_of_interest(tainted, node(taints=(TAINT,), uid="another"))
    assert not node_plan.is_of_interest(None, node())
    assert not node_plan.is_of_interest(tainted, None)
    assert not node_plan.is_of_interest(None, node(taints=(TAINT,), deleted=datetime.now(UTC)))


def test_an_initialised_node_is_of_interest_when_its_old_labels_disagree() -> None:
    before = node()
    after = node(labels={"failure-domain.beta.kubernetes.io/zone": "z"})
    assert node_plan.is_of_interest(before, after)
    assert not node_plan.is_of_interest(before, node(labels={"topology.kubernetes.io/zone": "z"}))
