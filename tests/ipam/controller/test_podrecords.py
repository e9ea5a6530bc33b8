"""Which pods may be using the block of a node that lost it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from bedplate.ipam.controller.podrecords import SINGLE_LOOKUPS, PodRecord, PodRecords, uses_of

BLOCK, PREFIX = "10.0.0.1-10.0.0.16", "10.1.0.0/24"


def pod(
    node: str, *, phase: str = "Running", host: bool = False, ips: tuple[str, ...] = (), net: Any = None
) -> PodRecord:
    annotations = {"k8s.v1.cni.cncf.io/network-status": net if isinstance(net, str) else json.dumps(net or [])}
    document = {
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {"nodeName": node, "hostNetwork": host},
        "status": {"phase": phase, "podIPs": [{"ip": ip} for ip in ips]},
    }
    return msgspec.convert(document, PodRecord)


class Server:
    """Answers lists of pods and remembers what was asked."""

    def __init__(self, *pods: PodRecord) -> None:
        self.pods = pods
        self.asked: list[str] = []

    async def list(self, ref: Any, *, field_selector: str = "") -> Any:
        self.asked.append(field_selector)
        node = field_selector.removeprefix("spec.nodeName=")
        items = [one for one in self.pods if not field_selector or one.spec.node_name == node]
        return type("Page", (), {"items": items})


@pytest.mark.parametrize(
    ("one", "counts"),
    [
        (pod("a"), True),
        (pod("a", phase="Pending"), True),
        (pod("a", phase="Succeeded"), False),
        (pod("a", phase="Failed"), False),
        (pod("a", host=True), False),
    ],
)
async def test_pods_that_may_hold_addresses(one: PodRecord, counts: bool) -> None:
    client: Any = Server(one)
    found = await PodRecords(client).of({"a"})
    assert bool(found["a"]) is counts


async def test_few_nodes_are_asked_for_one_by_one_and_many_at_once() -> None:
    client: Any = Server(pod("n1"), pod("n2"), pod("other"))
    found = await PodRecords(client).of(["n1", "n2"])
    assert client.asked == ["spec.nodeName=n1", "spec.nodeName=n2"] and len(found["n1"]) == 1
    client.asked.clear()
    many = [f"n{number}" for number in range(SINGLE_LOOKUPS + 1)]
    found = await PodRecords(client).of(many)
    assert client.asked == [""] and len(found["n1"]) == 1 and "other" not in found


def test_any_pod_of_a_node_that_is_gone_counts() -> None:
    used = uses_of([("a", BLOCK), ("b", PREFIX)], {"a": [pod("a")], "b": []}, lambda _: False)
    assert used == {("a", BLOCK)}


@pytest.mark.parametrize(
    ("one", "block", "is_used"),
    [
        (pod("a", ips=("10.0.0.16",)), BLOCK, True),
        (pod("a", ips=("10.0.0.17",)), BLOCK, False),
        (pod("a", ips=("10.1.0.255", "fd00::1")), PREFIX, True),
        (pod("a", net=[{"name": "x", "ips": ["10.0.0.3"]}]), BLOCK, True),
        (pod("a", net=[{"name": "x"}]), BLOCK, False),
        (pod("a", net="no json"), BLOCK, False),
        (pod("a", ips=("nonsense", "::a00:5")), BLOCK, False),
    ],
)
def test_of_a_node_that_exists_only_pods_with_addresses_of_the_block_count(
    one: PodRecord, block: str, is_used: bool
) -> None:
    assert bool(uses_of([("a", block)], {"a": [one]}, lambda _: True)) is is_used
