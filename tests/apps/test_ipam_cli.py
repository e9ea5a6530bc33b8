"""`bedplate ipam` as a user types it, against real and embedded API servers."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests import forkserver, servers
from tests.waiting import DEADLINE_S

from bedplate.api.resources import CRDS, NAMESPACES, NODES, PODS
from bedplate.cli.ipam import crds
from bedplate.cli.ipam.holders import NETWORK_STATUS
from bedplate.ipam.pools import CIDRPOOLS, IPPOOLS
from bedplate.kube import Client
from bedplate.kube import errors as kube_errors

STORES = Path(__file__).resolve().parents[1] / "vectors/ipam/stores"


@dataclass(frozen=True)
class World:
    """Pools in a namespace of their own; node names begin with `prefix`."""

    client: Client
    kubeconfig: Path
    namespace: str
    prefix: str

    async def run(self, *words: str) -> tuple[int, str, str]:
        command = [str(servers.bedplate_program()), "ipam", *words]
        command += [] if words[0] == "store" else ["--kubeconfig", str(self.kubeconfig), "-n", self.namespace]
        done = await asyncio.to_thread(forkserver.run, command, capture_output=True, text=True)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout, done.stderr

    async def read(self, *words: str) -> Any:
        code, out, err = await self.run(*words, "-o", "json")
        assert code == 0, err
        return json.loads(out)


async def install_definitions(client: Client) -> None:
    """The servers are shared: the definitions may be there, and stay."""
    for definition in crds.documents():
        try:
            await client.create(CRDS.raw(), definition)
        except kube_errors.AlreadyExists:
            pass
    async with asyncio.timeout(DEADLINE_S):
        for ref in (IPPOOLS, CIDRPOOLS):
            while True:
                try:
                    await client.list(ref, "default")
                    break
                except (kube_errors.NotFound, kube_errors.UnexpectedAnswer):
                    # A real server that does not serve the group yet answers like any web server: page not found.
                    await asyncio.sleep(0.1)


@pytest.fixture
async def world(server: servers.Server, client: Client) -> AsyncIterator[World]:
    await install_definitions(client)
    name = f"ipamcli-{uuid.uuid4().hex[:8]}"
    made = World(client, server.kubeconfig, name, f"{name}-n")
    await client.create(NAMESPACES.raw(), {"metadata": {"name": name}})
    for number in range(3):
        label = {"role": "worker"} if number < 2 else {}
        node = {"metadata": {"name": f"{made.prefix}{number}", "labels": {"ipamcli": name, **label}}}
        await client.create(NODES.raw(), node)
    try:
        yield made
    finally:
        for number in range(3):
            await client.delete(NODES, f"{made.prefix}{number}")
        await client.delete(NAMESPACES, name)


def selector(world: World, *more: dict[str, Any]) -> dict[str, Any]:
    own = {"key": "ipamcli", "operator": "In", "values": [world.namespace]}
    return {"nodeSelectorTerms": [{"matchExpressions": [own, *more]}]}


async def make_pool(world: World, blocks: dict[str, tuple[str, str]], **spec: Any) -> None:
    body = {"metadata": {"name": "rail"}, "spec": {"subnet": "192.168.0.0/24", "perNodeBlockSize": 100, **spec}}
    await world.client.create(IPPOOLS.raw(), body, world.namespace)
    entries = [{"nodeName": node, "startIP": first, "endIP": last} for node, (first, last) in blocks.items()]
    patch = {"status": {"allocations": entries}}
    await world.client.patch(IPPOOLS.raw(), "rail", patch, world.namespace, subresource="status")


async def make_pod(world: World, name: str, node: str, address: str) -> None:
    status = [{"name": f"{world.namespace}/rail", "interface": "net1", "ips": [address]}]
    body = {
        "metadata": {"name": name, "annotations": {NETWORK_STATUS: json.dumps(status)}},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "image": "none"}],
            "automountServiceAccountToken": False,
        },
    }
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                await world.client.create(PODS.raw(), body, world.namespace)
                return
            except kube_errors.Forbidden:
                # The namespace's service account is made by a controller.
                await asyncio.sleep(0.1)


async def test_pools_blocks_and_allocations_are_listed(world: World) -> None:
    first, second = f"{world.prefix}0", f"{world.prefix}1"
    worker = {"key": "role", "operator": "In", "values": ["worker"]}
    await make_pool(
        world,
        {first: ("192.168.0.1", "192.168.0.100"), second: ("192.168.0.101", "192.168.0.200")},
        gateway="192.168.0.1",
        nodeSelector=selector(world, worker),
    )
    await make_pod(world, "web", first, "192.168.0.7")
    (pool,) = await world.read("pools")
    assert (pool["name"], pool["blocks"]["given"], pool["blocks"]["free"]) == ("rail", 2, 0)
    assert pool["addresses"] == {"used": 1, "usable": 199}
    blocks = await world.read("blocks", "rail")
    assert [(one["node"], one["first"], one["used"]) for one in blocks] == [
        (first, "192.168.0.1", 1),
        (second, "192.168.0.101", 0),
    ]
    held = await world.read("allocations", "--pool", "rail")
    assert [(one["address"], one["pod"], one["node"]) for one in held] == [("192.168.0.7", "web", first)]
    code, out, _ = await world.run("pools")
    assert code == 0 and out.splitlines()[0].split()[:3] == ["KIND", "NAME", "NETWORK"]
    code, out, _ = await world.run("map", "rail")
    assert code == 0 and "▁▁" in out and "\x1b" not in out
    await world.client.delete(PODS, "web", world.namespace, grace_period_s=0)


def flat(out: str) -> str:
    """Without the line breaks that people need."""
    return " ".join(out.split())


async def test_why_an_address_a_node_and_a_pool_are_as_they_are(world: World) -> None:
    first, third = f"{world.prefix}0", f"{world.prefix}2"
    worker = {"key": "role", "operator": "In", "values": ["worker"]}
    blocks = {first: ("192.168.0.1", "192.168.0.100")}
    await make_pool(world, blocks, gateway="192.168.0.1", nodeSelector=selector(world, worker))
    code, out, _ = await world.run("explain", "192.168.0.1")
    assert code == 0 and "gateway" in out and first in out
    code, out, _ = await world.run("explain", third)
    assert code == 0 and "role In (worker) fails: the node has no label role" in flat(out)
    code, out, _ = await world.run("explain", f"{world.prefix}1")
    assert code == 1 and "is the controller running?" in flat(out)
    code, out, _ = await world.run("explain", "rail", "-o", "json")
    found = json.loads(out)
    assert code == 1 and (found["kind"], found["state"]) == ("IPPool", "attention")
    body = {"metadata": {"name": "rail"}, "spec": {"cidr": "192.168.0.0/16", "perNodeNetworkPrefix": 24}}
    await world.client.create(CIDRPOOLS.raw(), body, world.namespace)
    code, _, err = await world.run("explain", "rail")
    assert code == 2 and "ippool/rail or cidrpool/rail" in err
    code, out, _ = await world.run("explain", "ippool/rail")
    assert code == 1 and "IPPool rail and CIDRPool rail overlap" in flat(out)


async def test_what_does_not_exist_has_its_own_exit_code_and_a_next_step(world: World) -> None:
    code, _, err = await world.run("explain", "nothing-of-that-name")
    assert code == 4 and "next: " in err
    code, _, err = await world.run("blocks", "nothing")
    assert code == 4 and "there is no pool nothing" in err
    code, out, err = await world.run("pools")
    assert (code, out) == (0, "") and "there are no pools" in err
    assert await world.read("pools") == []


async def test_a_store_can_be_listed_checked_and_brought_up_to_date(world: World, tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.write_bytes((STORES / "03-one.store").read_bytes())
    assert len(await world.read("store", "show", str(path))) == 1
    code, out, _ = await world.run("store", "check", str(path))
    assert code == 0 and "its checksum is correct" in out
    before = path.read_bytes()
    code, out, _ = await world.run("store", "sync", str(path))
    assert code == 0 and "1 reservations" in out
    assert path.read_bytes() == before
    code, _, err = await world.run("store", "show", str(tmp_path / "none"))
    assert code == 4 and "there is no store" in err


async def test_a_server_that_does_not_answer_is_told_with_exit_code_3(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": f"https://127.0.0.1:{servers.free_port()}"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "c"}}
    content = {"clusters": [cluster], "contexts": [context], "current-context": "c", "users": [{"name": "c"}]}
    kubeconfig.write_text(json.dumps(content))
    command = [str(servers.bedplate_program()), "ipam", "pools", "--kubeconfig", str(kubeconfig)]
    done = await asyncio.to_thread(forkserver.run, command, capture_output=True, text=True)
    assert done.returncode == 3 and "Traceback" not in done.stderr


@pytest.mark.parametrize(("words", "wanted"), [("bedplate ipam p", "pools"), ("bedplate ipam store s", "sync")])
async def test_the_shell_completes_the_commands(words: str, wanted: str) -> None:
    environ = os.environ | {
        "_BEDPLATE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    command = [str(servers.bedplate_program())]
    done = await asyncio.to_thread(forkserver.run, command, env=environ, capture_output=True, text=True)
    assert f"plain,{wanted}" in done.stdout.splitlines()
