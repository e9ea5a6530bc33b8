"""The controller on an API server: the seed's example, nodes that come and go, damage by others, invalid specs."""

from __future__ import annotations

from tests.ipam.controller.worlds import KINDS, World
from tests.waiting import until

from bedplate.ipam.controller.assembly import Assembly

POOL1 = {"subnet": "192.168.0.0/16", "perNodeBlockSize": 24, "gateway": "192.168.0.1"}
SEED = {
    "host-a": "192.168.0.1-192.168.0.24",
    "host-b": "192.168.0.25-192.168.0.48",
    "host-c": "192.168.0.49-192.168.0.72",
    "k8s-master": "192.168.0.73-192.168.0.96",
}
CIDR1 = {"cidr": "192.168.0.0/16", "perNodeNetworkPrefix": 24, "gatewayIndex": 1}


def passes(controller: Assembly) -> int:
    return sum(one.passes for one in controller.controllers)


async def test_the_seeds_four_nodes_get_the_seeds_blocks(world: World) -> None:
    await world.add("k8s-master", "host-c", "host-a", "host-b")
    async with world.controller():
        await world.pool("IPPool", "pool1", POOL1)
        await world.settles("IPPool", "pool1", SEED)
        found = await world.get("IPPool", "pool1")
    assert [set(one) for one in found["status"]["allocations"]] == [{"nodeName", "startIP", "endIP"}] * 4
    assert found["spec"]["subnet"] == "192.168.0.0/16", "a status write must leave the spec alone"


async def test_a_removed_nodes_block_is_the_next_nodes_and_entries_are_sorted(world: World) -> None:
    await world.add("host-a", "host-b", "host-c", "k8s-master")
    async with world.controller():
        await world.pool("IPPool", "pool1", POOL1)
        await world.settles("IPPool", "pool1", SEED)
        await world.remove("host-b")
        await world.settles("IPPool", "pool1", {name: block for name, block in SEED.items() if name != "host-b"})
        await world.add("aaa")
        wanted = {"aaa": SEED["host-b"], **{name: block for name, block in SEED.items() if name != "host-b"}}
        await world.settles("IPPool", "pool1", wanted)
        assert [one["nodeName"] for one in await world.allocations("IPPool", "pool1")] == sorted(wanted)


async def test_a_node_joins_and_leaves_a_pool_by_its_labels(world: World) -> None:
    selector = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]}
    await world.add("a", "b")
    async with world.controller():
        await world.pool("IPPool", "gpus", {**POOL1, "nodeSelector": selector})
        await world.pool("CIDRPool", "gpus", {**CIDR1, "nodeSelector": selector})
        await world.relabel("b", {"gpu": "yes"})
        await world.settles("IPPool", "gpus", {"b": "192.168.0.1-192.168.0.24"})
        await world.settles("CIDRPool", "gpus", {"b": "192.168.0.0/24"})
        await world.relabel("a", {"gpu": "yes"})
        await world.settles("CIDRPool", "gpus", {"a": "192.168.1.0/24", "b": "192.168.0.0/24"})
        await world.settles("IPPool", "gpus", {"a": "192.168.0.25-192.168.0.48", "b": "192.168.0.1-192.168.0.24"})
        await world.relabel("b", {})
        await world.settles("IPPool", "gpus", {"a": "192.168.0.25-192.168.0.48"})
        await world.settles("CIDRPool", "gpus", {"a": "192.168.1.0/24"})


async def test_static_and_reserved_prefixes_and_their_gateways(world: World) -> None:
    statics = [{"prefix": "192.168.1.0/24"}]
    statics.append({"nodeName": "n33", "prefix": "192.168.33.0/24", "gateway": "192.168.33.10"})
    await world.add("n1", "n2", "n33")
    async with world.controller():
        await world.pool("CIDRPool", "routed", {**CIDR1, "staticAllocations": statics})
        wanted = [
            {"nodeName": "n1", "gateway": "192.168.0.1", "prefix": "192.168.0.0/24"},
            {"nodeName": "n2", "gateway": "192.168.2.1", "prefix": "192.168.2.0/24"},
            {"nodeName": "n33", "gateway": "192.168.33.10", "prefix": "192.168.33.0/24"},
        ]
        await world.settles("CIDRPool", "routed", wanted)


async def test_damage_by_others_is_repaired_and_whole_entries_stay(world: World) -> None:
    await world.add("a", "b", "c")
    async with world.controller():
        await world.pool("IPPool", "pool1", POOL1)
        good = {"a": SEED["host-a"], "b": SEED["host-b"], "c": SEED["host-c"]}
        await world.settles("IPPool", "pool1", good)
        await world.damage("IPPool", "pool1", [])
        await world.settles("IPPool", "pool1", good)
        swapped = [
            {"nodeName": "a", "startIP": "192.168.0.49", "endIP": "192.168.0.72"},
            {"nodeName": "b", "startIP": "192.168.0.26", "endIP": "192.168.0.49"},
            {"nodeName": "ghost", "startIP": "192.168.0.25", "endIP": "192.168.0.48"},
        ]
        await world.damage("IPPool", "pool1", swapped)
        await world.settles("IPPool", "pool1", {"a": SEED["host-c"], "b": SEED["host-a"], "c": SEED["host-b"]})


async def test_a_node_without_a_block_is_told_once_and_served_when_one_is_free(world: World) -> None:
    await world.add("a", "b", "c", "d")
    async with world.controller() as controller:
        await world.pool("IPPool", "small", {"subnet": "192.168.0.0/24", "perNodeBlockSize": 64})
        three = {"a": "192.168.0.1-192.168.0.64", "b": "192.168.0.65-192.168.0.128", "c": "192.168.0.129-192.168.0.192"}
        await world.settles("IPPool", "small", three)
        event = await world.told("small", "NoFreeRanges", world.node("d"))
        assert event["type"] == "Warning" and event["source"]["component"] == "IPPoolController"
        assert event["involvedObject"]["kind"] == "IPPool"
        # More passes over the same pool say nothing new.
        before = passes(controller)
        for size in range(3):
            await world.damage("IPPool", "small", [])
            await until(lambda size=size: _more(controller, before + size), f"pass {size}")
            await world.settles("IPPool", "small", three)
        assert [one.get("count") for one in await world.events("small", "NoFreeRanges")] == [1]
        await world.remove("a")
        await world.settles("IPPool", "small", {"b": three["b"], "c": three["c"], "d": three["a"]})


async def _more(controller: Assembly, count: int) -> bool:
    return passes(controller) > count


async def test_no_free_prefixes_has_its_own_reason_and_component(world: World) -> None:
    await world.add("a", "b", "c")
    async with world.controller():
        await world.pool("CIDRPool", "small", {"cidr": "10.5.0.0/30", "perNodeNetworkPrefix": 31})
        await world.settles("CIDRPool", "small", {"a": "10.5.0.0/31", "b": "10.5.0.2/31"})
        event = await world.told("small", "NoFreePrefixes", world.node("c"))
        assert event["source"]["component"] == "CIDRPoolController" and event["involvedObject"]["kind"] == "CIDRPool"


async def test_same_names_two_families_and_no_gateway_live_side_by_side(world: World) -> None:
    await world.add("a", "b")
    async with world.controller():
        await world.pool("IPPool", "net", {"subnet": "10.1.0.0/24", "perNodeBlockSize": 10})
        await world.pool("IPPool", "net6", {"subnet": "fd52:2eb5:44::/48", "perNodeBlockSize": 500})
        await world.pool("CIDRPool", "net", {"cidr": "192.168.100.0/24", "perNodeNetworkPrefix": 31})
        await world.pool("CIDRPool", "net6", {"cidr": "fd00:1::/32", "perNodeNetworkPrefix": 64, "gatewayIndex": 1})
        await world.settles("IPPool", "net", {"a": "10.1.0.1-10.1.0.10", "b": "10.1.0.11-10.1.0.20"})
        blocks = {"a": "fd52:2eb5:44::1-fd52:2eb5:44::1f4", "b": "fd52:2eb5:44::1f5-fd52:2eb5:44::3e8"}
        await world.settles("IPPool", "net6", blocks)
        bare = [
            {"nodeName": "a", "prefix": "192.168.100.0/31"},
            {"nodeName": "b", "prefix": "192.168.100.2/31"},
        ]
        await world.settles("CIDRPool", "net", bare)
        routed = [
            {"nodeName": "a", "gateway": "fd00:1::1", "prefix": "fd00:1::/64"},
            {"nodeName": "b", "gateway": "fd00:1:0:1::1", "prefix": "fd00:1:0:1::/64"},
        ]
        await world.settles("CIDRPool", "net6", routed)


async def test_many_pools_each_get_their_own_blocks(world: World) -> None:
    await world.add("a", "b", "c")
    async with world.controller():
        for number in range(30):
            await world.pool("IPPool", f"p{number}", {"subnet": f"10.{number}.0.0/16", "perNodeBlockSize": 100})
            await world.pool(
                "CIDRPool", f"p{number}", {"cidr": f"10.{number + 100}.0.0/16", "perNodeNetworkPrefix": 24}
            )
        await world.add("d")
        for number in range(30):
            net = f"10.{number}.0"
            blocks = {"a": f"{net}.1-{net}.100", "b": f"{net}.101-{net}.200", "c": f"{net}.201-10.{number}.1.44"}
            await world.settles("IPPool", f"p{number}", {**blocks, "d": f"10.{number}.1.45-10.{number}.1.144"})
            prefixes = {name: f"10.{number + 100}.{at}.0/24" for at, name in enumerate("abcd")}
            await world.settles("CIDRPool", f"p{number}", prefixes)


async def test_pools_of_other_namespaces_are_left_alone(world: World) -> None:
    await world.add("a")
    other = {"metadata": {"name": f"other-{world.id}", "namespace": "default"}, "spec": world.spec(POOL1)}
    await world.client.create(KINDS["IPPool"], other)
    try:
        async with world.controller():
            await world.pool("IPPool", "mine", POOL1)
            await world.settles("IPPool", "mine", {"a": SEED["host-a"]})
            found = await world.client.get(KINDS["IPPool"], f"other-{world.id}", "default")
            assert not found.get("status")
    finally:
        await world.client.delete(KINDS["IPPool"], f"other-{world.id}", "default")


async def test_overlapping_pools_are_told_on_the_one_that_was_seen_last(world: World) -> None:
    await world.add("a")
    async with world.controller():
        await world.pool("IPPool", "one", {"subnet": "10.9.0.0/16", "perNodeBlockSize": 8})
        await world.settles("IPPool", "one", {"a": "10.9.0.1-10.9.0.8"})
        await world.pool("CIDRPool", "two", {"cidr": "10.9.4.0/22", "perNodeNetworkPrefix": 24})
        event = await world.told("two", "OverlappingPools", "IPPool one")
        assert event["type"] == "Warning"
        await world.settles("CIDRPool", "two", {"a": "10.9.4.0/24"})
