"""What the doctor says of a node's machine names the remedy, whether the node has a provider ID or not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cloud.providers.nvidia_bmm.world import UNKNOWN, instances_of, node, simulated

from bedplate.cloud import doctor


@pytest.mark.parametrize(
    ("provider_id", "remedy"),
    [("", "--provider-id, or give the node the name of its machine"), (UNKNOWN, "kubectl delete node nobody")],
    ids=["by its name", "by its provider ID"],
)
async def test_a_node_without_a_machine_is_told_the_remedy(tmp_path: Path, provider_id: str, remedy: str) -> None:
    async with simulated(tmp_path, machines=1) as world:
        machine = world.cloud.all()[0]
        asked = node("nobody", provider_id and machine.provider_id.replace(machine.id, provider_id))
        instances = instances_of(world.provider())
        (finding,) = await doctor.examine_nodes(instances, [asked], "at site-1")
        assert (finding.level, finding.check) == ("problem", "instance")
        assert remedy in finding.fix and "bedplate ccm explain node nobody" in finding.fix
        (well,) = await doctor.examine_nodes(instances, [node(machine.name)], "at site-1")
        assert well.level == "ok"


async def test_a_cloud_that_fails_leaves_it_open_whether_a_node_has_a_machine(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=1) as world:
        instances = instances_of(world.provider())
        world.cloud.expire_tokens()
        (finding,) = await doctor.examine_nodes(instances, [node("nobody")], "at site-1")
        assert finding.level == "unknown"
