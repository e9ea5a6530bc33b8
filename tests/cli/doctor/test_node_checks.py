"""What the doctor reads off node objects: kubelet flags, provider IDs, addresses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
from tests.cloud.scripted import ScriptedProvider

from bedplate.api import core, meta, names
from bedplate.cli.doctor.node_checks import check_nodes
from bedplate.cloud.doctor import Finding
from bedplate.cloud.routing import Clouds

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
TAINT = core.Taint(key=names.TAINT_UNINITIALIZED, value="true", effect="NoSchedule")


def node(provider_id: str = "", *, age_s: float = 3600, taints: tuple[core.Taint, ...] = (), **more: str) -> core.Node:
    addresses = (core.NodeAddress(type="InternalIP", address="10.0.0.1"),) if more.pop("ip", "") else ()
    metadata = meta.ObjectMeta(name="n1", annotations=more, creation_timestamp=NOW - timedelta(seconds=age_s))
    return core.Node(
        metadata=metadata,
        spec=core.NodeSpec(provider_id=provider_id, taints=taints),
        status=core.NodeStatus(addresses=addresses),
    )


def look(one: core.Node) -> list[Finding]:
    return [finding for finding in check_nodes([one], Clouds([ScriptedProvider()]), NOW) if finding.level != "ok"]


SCHEME = ScriptedProvider().schemes[0]


def test_an_initialised_node_with_an_address_is_well() -> None:
    assert look(node(f"{SCHEME}://1", ip="yes")) == []


def test_a_node_that_was_never_tainted_shows_a_kubelet_without_external_provider() -> None:
    (finding,) = look(node())
    assert finding.check == "kubelet"
    assert "--cloud-provider=external" in finding.message and "kubectl delete node n1" in finding.fix


def test_a_node_that_waits_too_long_is_told_and_a_young_one_is_only_noted() -> None:
    (finding,) = look(node(taints=(TAINT,)))
    assert finding.fix == "bedplate ccm explain node n1"
    (young,) = look(node(taints=(TAINT,), age_s=30))
    assert (young.level, young.message) == ("note", "joined 30 s ago and is not initialised yet")


def test_nodes_that_wait_are_not_counted_among_the_initialised() -> None:
    well = msgspec.structs.replace(node(f"{SCHEME}://1", ip="yes"), metadata=meta.ObjectMeta(name="n2"))
    findings = check_nodes([node(taints=(TAINT,), age_s=30), well], Clouds([ScriptedProvider()]), NOW)
    texts = [finding.message for finding in findings if finding.level == "ok"]
    assert [text.partition(",")[0] for text in texts] == ["1 of 2 are initialised"]


def test_a_node_of_another_cloud_is_a_note_not_a_problem() -> None:
    (finding,) = look(node("aws:///eu/i-1"))
    assert finding.level == "note"


def test_an_initialised_node_without_internal_address_or_with_a_bad_node_ip_is_told() -> None:
    assert "has no InternalIP" in look(node(f"{SCHEME}://1"))[0].message
    bad = node(f"{SCHEME}://1", ip="yes", **{names.ANNOTATION_PROVIDED_NODE_IP: "10.0.0.1, 10.0.0.2"})
    (finding,) = look(bad)
    assert "--node-ip" in finding.message
