"""Blocks of nodes that went away while pods of theirs are still recorded, and what the role must allow for it."""

from __future__ import annotations

import contextlib
import io
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.apps.test_ccm_rights import account
from tests.ipam.controller.worlds import World
from tests.waiting import until

from bedplate.api.resources import PODS, SERVICE_ACCOUNTS
from bedplate.ipam.quarantine import ANNOTATION
from bedplate.kube import errors as kube_errors

POOL = {"subnet": "10.70.0.0/24", "perNodeBlockSize": 16}
A, B, C = "10.70.0.1-10.70.0.16", "10.70.0.17-10.70.0.32", "10.70.0.33-10.70.0.48"
GROUP = "nv-ipam.nvidia.com"
ORIGINALS_ROLE = {
    ("", "nodes"): "get list watch patch update",
    ("", "configmaps"): "get list watch delete",
    (GROUP, "ippools"): "get list watch create",
    (GROUP, "cidrpools"): "get list watch create",
    (GROUP, "ippools/status"): "get update patch",
    (GROUP, "cidrpools/status"): "get update patch",
    ("coordination.k8s.io", "leases"): "*",
    ("", "events"): "create patch",
}


@contextlib.asynccontextmanager
async def pod(world: World, node: str, *addresses: str, **spec: Any) -> AsyncIterator[str]:
    """A pod that the API server still has, on a node that may be gone."""
    name = f"pod-{uuid.uuid4().hex[:6]}"
    containers = [{"name": "c", "image": "none"}]
    status = [{"name": "net", "interface": "net1", "ips": list(addresses)}]
    annotations = {"k8s.v1.cni.cncf.io/network-status": json.dumps(status)}
    body = {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"nodeName": world.node(node), "containers": containers, **spec},
    }
    await _with_account(world)
    await world.client.create(PODS.raw(), body, world.namespace)
    try:
        yield name
    finally:
        await gone(world, name)


async def _with_account(world: World) -> None:
    with contextlib.suppress(kube_errors.AlreadyExists):
        await world.client.create(SERVICE_ACCOUNTS.raw(), {"metadata": {"name": "default"}}, world.namespace)


async def gone(world: World, name: str) -> None:
    with contextlib.suppress(kube_errors.NotFound):
        await world.client.delete(PODS, name, world.namespace, grace_period_s=0)


async def held(world: World) -> dict[str, str]:
    """Block to node, as the pool's annotation says."""
    found = await world.get("IPPool", "p")
    text = (found["metadata"].get("annotations") or {}).get(ANNOTATION, "{}")
    return {block: world.local(one["node"]) for block, one in json.loads(text).items()}


async def holds(world: World, wanted: dict[str, str]) -> None:
    async def is_so() -> bool:
        return await held(world) == wanted

    await until(is_so, f"held back: {wanted}")


async def start(world: World) -> None:
    await world.add("a", "b")
    await world.pool("IPPool", "p", POOL)
    await world.settles("IPPool", "p", {"a": A, "b": B})


async def test_a_block_is_held_while_a_pod_of_its_deleted_node_is_recorded(world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr("bedplate.ipam.controller.holding.LOOK_AGAIN_S", 0.5)
    async with world.controller() as controller:
        await start(world)
        async with pod(world, "a") as name:
            await world.remove("a")
            await holds(world, {A: "a"})
            await world.add("c")
            await world.settles("IPPool", "p", {"b": B, "c": C})
            shown = controller.registry.get_sample_value(
                "bedplate_ipam_pool_blocks_quarantined", {"kind": "ippool", "pool": "p"}
            )
            assert shown == 1
            await gone(world, name)
            await holds(world, {})
        await world.add("d")
        await world.settles("IPPool", "p", {"b": B, "c": C, "d": A})


async def test_a_node_that_comes_back_gets_its_block_and_a_restart_forgets_nothing(world: World) -> None:
    async with contextlib.AsyncExitStack() as stack:
        first = contextlib.AsyncExitStack()
        await first.enter_async_context(world.controller())
        await start(world)
        await stack.enter_async_context(pod(world, "a"))
        await world.remove("a")
        await holds(world, {A: "a"})
        await first.aclose()
        await stack.enter_async_context(world.controller())
        await world.add("c")
        await world.settles("IPPool", "p", {"b": B, "c": C})
        await world.add("a")
        await world.settles("IPPool", "p", {"a": A, "b": B, "c": C})
        await holds(world, {})


async def test_host_network_pods_and_no_pods_hold_nothing(world: World) -> None:
    async with world.controller():
        await start(world)
        async with pod(world, "a", hostNetwork=True):
            await world.remove("a")
            await world.add("c")
            await world.settles("IPPool", "p", {"b": B, "c": A})
            assert await held(world) == {}


async def test_a_relabelled_nodes_block_is_held_only_for_pods_with_its_addresses(world: World) -> None:
    selector = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "out", "operator": "DoesNotExist"}]}]}
    async with world.controller():
        await world.add("a", "b")
        await world.pool("IPPool", "p", {**POOL, "nodeSelector": selector})
        await world.settles("IPPool", "p", {"a": A, "b": B})
        async with pod(world, "a", "10.70.0.5"), pod(world, "b", "10.99.0.5"):
            await world.relabel("a", {"out": "1"})
            await holds(world, {A: "a"})
            await world.relabel("b", {"out": "1"})
            await world.settles("IPPool", "p", {})
            await world.add("c")
            await world.settles("IPPool", "p", {"c": B})


async def test_only_held_blocks_left_is_told_as_such(world: World) -> None:
    async with world.controller():
        await world.add("a", "b")
        await world.pool("IPPool", "p", {"subnet": "10.70.0.0/27", "perNodeBlockSize": 15})
        one, two = "10.70.0.1-10.70.0.15", "10.70.0.16-10.70.0.30"
        await world.settles("IPPool", "p", {"a": one, "b": two})
        async with pod(world, "a"):
            await world.remove("a")
            await holds(world, {one: "a"})
            await world.add("c")
            event = await world.told("p", "NoFreeRanges", world.node("c"))
            assert "held back" in event["message"]


async def test_always_holds_and_lets_go_in_time_and_off_never_does(world: World) -> None:
    async with world.controller(quarantine="always", quarantine_duration="3s"):
        await start(world)
        await world.remove("a")
        await holds(world, {A: "a"})
        await holds(world, {})
        await world.add("c")
        await world.settles("IPPool", "p", {"b": B, "c": A})
    async with world.controller(quarantine="off"), pod(world, "c"):
        await world.remove("c")
        await world.add("d")
        await world.settles("IPPool", "p", {"b": B, "d": A})


async def test_with_the_originals_role_it_works_without_and_says_so(
    world: World, tmp_path: Path, logs: io.StringIO
) -> None:
    async with (
        account(world.server, world.client, ORIGINALS_ROLE, tmp_path) as kubeconfig,
        world.controller(kubeconfig=str(kubeconfig), leader_elect="true"),
    ):
        await start(world)
        async with pod(world, "a"):
            await world.remove("a")
            await world.add("c")
            await world.settles("IPPool", "p", {"b": B, "c": A})
        await world.pool("IPPool", "bad", {**POOL, "perNodeBlockSize": 10**6})
        await world.told("bad", "InvalidSpec")
    assert logs.getvalue().count("quarantine.denied") == 1


async def test_without_the_right_to_patch_it_is_held_in_memory(world: World, tmp_path: Path) -> None:
    rules = {**ORIGINALS_ROLE, ("", "pods"): "list"}
    async with (
        account(world.server, world.client, rules, tmp_path) as kubeconfig,
        world.controller(kubeconfig=str(kubeconfig)),
    ):
        await start(world)
        async with pod(world, "a"):
            await world.remove("a")
            await world.settles("IPPool", "p", {"b": B})
            await world.add("c")
            await world.settles("IPPool", "p", {"b": B, "c": C})
            assert await held(world) == {}
