"""The daemon with the rights that the original's role gives it, and no more; and with those that ours gives."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import yaml
from tests.ipam.controller.worlds import World
from tests.ipam.node.daemons import code_of, daemon
from tests.waiting import wait_until

from bedplate.api import resources
from bedplate.api.resources import SERVICE_ACCOUNTS
from bedplate.kube import errors as kube_errors

ROLES = resources.custom("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False)
BINDINGS = resources.custom("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False)
ORIGINAL = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["nv-ipam.nvidia.com"], "resources": ["ippools", "cidrpools"], "verbs": ["get", "list", "watch"]},
]
MANIFESTS = Path(__file__).parents[3] / "deploy" / "manifests" / "node"
OURS = [MANIFESTS / "clusterrole.yaml", MANIFESTS / "role.yaml"]
SPEC = {"subnet": "192.168.0.0/16", "perNodeBlockSize": 2}
BLOCKS = [
    {"nodeName": "a", "startIP": "192.168.0.1", "endIP": "192.168.0.2"},
    {"nodeName": "b", "startIP": "192.168.0.3", "endIP": "192.168.0.4"},
]


@contextlib.asynccontextmanager
async def account(world: World, rules: list[dict[str, Any]], folder: Path) -> AsyncIterator[Path]:
    """A kubeconfig of a service account that may do this and nothing else."""
    name = f"ipam-node-{world.id}"
    client = world.client
    await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": name}}, world.namespace)
    await client.create(ROLES, {"metadata": {"name": name}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": world.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    await client.create(BINDINGS, {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})
    try:
        made: dict[str, Any] = await client.subresource(
            "POST", SERVICE_ACCOUNTS, name, "token", world.namespace, model=dict, body={"spec": {}}
        )
        content = yaml.safe_load(world.server.kubeconfig.read_text())
        user = content["users"][0]
        user["user"] = {"token": made["status"]["token"]}
        path = folder / "account.kubeconfig"
        path.write_text(yaml.safe_dump(content))
        yield path
    finally:
        for ref in (ROLES, BINDINGS):
            with contextlib.suppress(kube_errors.NotFound):
                await client.delete(ref, name)


async def test_the_originals_rights_are_enough(world: World, tmp_path: Path) -> None:
    await world.pool("IPPool", "p", SPEC)
    await world.damage("IPPool", "p", BLOCKS)

    def play(kubeconfig: Path) -> None:
        flags = ("--cleaner-interval=200ms", "--cleaner-misses=2")
        with daemon(tmp_path, kubeconfig, world.node("a"), world.namespace, *flags) as one:
            one.ready()
            with one.caller() as caller:
                caller.allocate("p", container="c1", requested=("192.168.0.3",))
                wait_until(lambda: "events.refused" in one.tail(), "the refusal is said", describe=one.tail)
                caller.allocate("p", container="c2", requested=("192.168.0.4",))
                caller.allocate("p", container="c3")
                gone = lambda: not caller.is_allocated("p", container="c3")  # noqa: E731
                wait_until(gone, "a dead pod's address is freed", describe=one.tail)
            # Said once; what nobody may write is not tried again.
            assert len(re.findall("events.refused", one.log.read_text())) == 1
            assert one.stop() == 0

    async with account(world, ORIGINAL, tmp_path) as kubeconfig:
        await asyncio.to_thread(play, kubeconfig)
    assert not await world.events("p")


async def test_with_our_role_events_are_written(world: World, tmp_path: Path) -> None:
    await world.pool("IPPool", "p", SPEC)
    await world.damage("IPPool", "p", BLOCKS)
    await world.pool("IPPool", "wrong", {**SPEC, "gateway": "10.0.0.1"})
    await world.damage("IPPool", "wrong", BLOCKS)

    def play(kubeconfig: Path) -> None:
        with daemon(tmp_path, kubeconfig, world.node("a"), world.namespace, "--cleaner=off") as one:
            one.ready()
            with one.caller() as caller:
                caller.allocate("p", container="c1")
                caller.allocate("p", container="c2")
                for number in range(3):
                    assert code_of(lambda n=number: caller.allocate("p", container=f"late-{n}")) == "RESOURCE_EXHAUSTED"
            assert one.stop() == 0

    async with account(
        world, [rule for file in OURS for rule in yaml.safe_load(file.read_text())["rules"]], tmp_path
    ) as kubeconfig:
        await asyncio.to_thread(play, kubeconfig)
    full = await world.told("p", "NoFreeAddresses", world.node("a"))
    assert full["source"]["component"] == "ipam-node"
    assert len(await world.events("p", "NoFreeAddresses")) == 1
    await world.told("wrong", "PoolInvalidOnNode", "gateway")


async def test_without_any_rights_it_says_why_it_gives_nothing(world: World, tmp_path: Path) -> None:
    def play(kubeconfig: Path) -> None:
        with daemon(tmp_path, kubeconfig, world.node("a"), world.namespace) as one, one.caller() as caller:
            wait_until(lambda: "reflector.list_failed" in one.tail(), "the refusal is heard", describe=one.tail)
            assert code_of(lambda: caller.allocate("p", timeout=2)) == "UNAVAILABLE"
            wait_until(lambda: "forbidden" in one.tail().lower(), "it is said", describe=one.tail)
            assert one.probe("/readyz")[0] in (0, 500)
            assert one.stop() == 0

    async with account(world, [], tmp_path) as kubeconfig:
        await asyncio.to_thread(play, kubeconfig)
