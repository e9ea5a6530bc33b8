"""The first tree: what it holds, that it is valid, and what it refuses."""

from __future__ import annotations

import pytest
from tests.head.committing import commit

from bedplate.core import errors
from bedplate.head import site
from bedplate.head.entities.nodes import PhysicalNode
from bedplate.head.resolve import inherited
from bedplate.head.service import Head


async def test_the_first_tree_is_one_valid_revision(head: Head) -> None:
    made = await commit(head, site.first_tree(), "admin")
    assert made is not None and made.number == 1
    devices = head.tree.mode("device")
    assert sorted(devices) == ["basecm10", *(f"node00{number}" for number in range(1, 7))]
    assert devices["basecm10"].type == "HeadNode" and devices["basecm10"].values["ip"] == "10.141.255.254"
    assert devices["node002"].values == {"category": "default", "ip": "10.141.0.2", "network": "internalnet"}
    assert head.tree.get(("softwareimage", "default-image")).values["path"] == "/cm/images/default-image"
    assert head.tree.get(("network", "internalnet")).values["base_address"] == "10.141.0.0"
    assert {"kube-default-pod", "kube-default-service"} < set(head.tree.mode("network"))
    assert head.tree.get(("user", "admin")).values["role"] == "admin"


async def test_its_nodes_inherit_the_image_of_the_category(head: Head) -> None:
    await commit(head, site.first_tree(nodes=1), "admin")
    image, source = inherited(head.tree, head.tree.get(("device", "node001")), PhysicalNode.software_image)
    assert image == "default-image" and source is not None and "default" in str(source)


async def test_names_stay_sortable_and_addresses_unique_with_a_thousand_nodes(head: Head) -> None:
    await commit(head, site.first_tree("head01", 1000), "admin")
    names = sorted(key for key, obj in head.tree.mode("device").items() if obj.type == "PhysicalNode")
    assert names[0] == "node0001" and names[-1] == "node1000"
    assert len({obj.values["ip"] for obj in head.tree.mode("device").values()}) == 1001


@pytest.mark.parametrize(("name", "nodes"), [("node001", 3), ("no spaces", 1), ("", 1), ("head", -1), ("head", 10_001)])
def test_what_cannot_be_is_refused(name: str, nodes: int) -> None:
    with pytest.raises(errors.Invalid):
        site.first_tree(name, nodes)


def test_no_nodes_are_a_site_too() -> None:
    assert [edit.key for edit in site.first_tree("head", 0) if edit.mode == "device"] == ["head"]
