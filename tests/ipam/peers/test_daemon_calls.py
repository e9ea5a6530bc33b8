"""The same calls to our daemon and to the original's, beside each other: the same answers, the same codes.

Afterwards the two programs' stores are compared. Calls whose answers are meant to differ are not made here: no
overlapping exclusions, no DEL without a pod, and `--static-ip-check=off`.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests import programs
from tests.ipam.controller.worlds import World, world_on
from tests.ipam.node.daemons import SERVICE, Caller, NodeDaemon, daemon, parameters
from tests.waiting import wait_until

from bedplate.ipam.node.pb import nvidia_ipam_pb2 as pb

pytestmark = pytest.mark.real

NODE = "a"
IPPOOLS: dict[str, tuple[dict[str, Any], list[dict[str, str]]]] = {
    "plain": (
        {"subnet": "10.40.0.0/24", "perNodeBlockSize": 6},
        [
            {"nodeName": NODE, "startIP": "10.40.0.7", "endIP": "10.40.0.12"},
            {"nodeName": "b", "startIP": "10.40.0.1", "endIP": "10.40.0.6"},
        ],
    ),
    "routed": (
        {
            "subnet": "10.41.0.0/16",
            "perNodeBlockSize": 8,
            "gateway": "10.41.0.3",
            "defaultGateway": True,
            "routes": [{"dst": "10.9.0.0/16"}, {"dst": "10.8.3.3/16"}, {"dst": "10.9.0.0/16"}],
            "exclusions": [{"startIP": "10.41.0.6", "endIP": "10.41.0.6"}],
            "perNodeExclusions": [{"startIndex": 0, "endIndex": 1}],
        },
        [{"nodeName": NODE, "startIP": "10.41.0.1", "endIP": "10.41.0.8"}],
    ),
    "six": (
        {"subnet": "fd40::/64", "perNodeBlockSize": 5, "gateway": "fd40::1", "routes": [{"dst": "fd41::/48"}]},
        [{"nodeName": NODE, "startIP": "fd40::1", "endIP": "fd40::5"}],
    ),
    "elsewhere": (
        {"subnet": "10.42.0.0/24", "perNodeBlockSize": 6},
        [{"nodeName": "b", "startIP": "10.42.0.1", "endIP": "10.42.0.6"}],
    ),
    "bad": (
        {"subnet": "10.43.0.0/24", "perNodeBlockSize": 6},
        [{"nodeName": NODE, "startIP": "x", "endIP": "10.43.0.6"}],
    ),
}
CIDRPOOLS: dict[str, tuple[dict[str, Any], list[dict[str, str]]]] = {
    "plain": (
        {
            "cidr": "172.24.0.0/16",
            "perNodeNetworkPrefix": 29,
            "gatewayIndex": 1,
            "perNodeExclusions": [{"startIndex": 4, "endIndex": 4}],
        },
        [{"nodeName": NODE, "prefix": "172.24.5.8/29", "gateway": "172.24.5.9"}],
    ),
    "pair": ({"cidr": "fd50::/120", "perNodeNetworkPrefix": 127}, [{"nodeName": NODE, "prefix": "fd50::4/127"}]),
}
NAMES = ["plain", "routed", "six", "pair", "elsewhere", "bad", "missing"]
ADDRESSES = [
    *("10.40.0.0", "10.40.0.7", "10.40.0.12", "10.40.0.99", "10.40.0.255", "10.41.0.2", "10.41.0.3", "10.41.9.9"),
    *(
        "fd40::1",
        "fd40::3",
        "fd40:0::4",
        "::ffff:10.40.0.8",
        "172.24.5.8",
        "172.24.5.10",
        "172.24.5.15",
        "fd50::5",
        "8.8.8.8",
    ),
    *("nonsense", "10.40.0.8/24", ""),
]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with world_on(programs.server("real")) as made:
        yield made


async def make_pools(world: World) -> None:
    for kind, pools in (("IPPool", IPPOOLS), ("CIDRPool", CIDRPOOLS)):
        for name, (spec, allocations) in pools.items():
            await world.pool(kind, name, spec)
            await world.damage(kind, name, allocations)


def any_call(rng: random.Random) -> tuple[str, pb.IPAMParameters]:
    """A call as a plugin could make it, and sometimes as it could not."""
    method = rng.choices(["Allocate", "Deallocate", "IsAllocated"], [6, 5, 2])[0]
    pools = rng.choices(NAMES, [6, 6, 4, 3, 1, 1, 1], k=rng.choices([1, 2], [4, 1])[0])
    made = parameters(
        *pools,
        container=f"c{rng.randrange(12)}",
        interface=rng.choice(["net1", "net2"]),
        kind=rng.choices([1, 2, 0, 9], [5, 3, 1, 1])[0],
        device=rng.choice(["", "0000:d8:00.1"]),
        requested=tuple(rng.sample(ADDRESSES, rng.choices([0, 1, 2], [6, 2, 1])[0])),
        gateway=rng.random() < 0.08,
        index=rng.choice([-1, 0, 1, 3, 5, 7, 200, 2**31 - 1]) if rng.random() < 0.12 else None,
    )
    if method == "Deallocate":
        # What a DEL carries beside its interface does not matter to ours.
        made.ClearField("requested_ips")
    return method, made


def answer(caller: Caller, method: str, made: pb.IPAMParameters) -> tuple[str, bytes]:
    request = getattr(pb, f"{method}Request")(parameters=made)
    try:
        return "OK", caller.raw(SERVICE + method, request.SerializeToString())
    except grpc.RpcError as err:
        return str(err.code().name), b""


def contents(store: Path) -> dict[str, Any]:
    """A store without what is of the moment; records that hold nothing and never gave anything are none."""
    pools = json.loads(store.read_bytes())["pools"]
    for pool in pools.values():
        for entry in pool["entries"].values():
            entry["metadata"]["create_time"] = ""
    return {key: pool for key, pool in pools.items() if pool["entries"] or pool["last_reserved_ip"]}


def both_know(one: NodeDaemon, other: Caller) -> None:
    one.ready()
    wanted = [("plain", 1), ("routed", 1), ("six", 1), ("plain", 2), ("pair", 2)]
    for name, kind in wanted:
        made = parameters(name, container="probe", kind=kind)
        wait_until(lambda made=made: answer(other, "Allocate", made)[0] == "OK", f"the original knows {name}")
        with one.caller() as caller:
            assert answer(caller, "Allocate", made)[0] == "OK"
            for each in (caller, other):
                answer(each, "Deallocate", made)


def play(ours: NodeDaemon, theirs: NodeDaemon, seed: int, count: int) -> None:
    rng = random.Random(seed)
    with ours.caller() as mine, theirs.caller() as other:
        both_know(ours, other)
        for number in range(count):
            method, made = any_call(rng)
            here, there = answer(mine, method, made), answer(other, method, made)
            assert here == there, f"seed {seed}, call {number}: {method}\n{made}\nours {here}\ntheirs {there}"


@pytest.mark.parametrize("seed", [1, 2, 3, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(10, 40))])
async def test_equal_calls_have_equal_answers(world: World, tmp_path: Path, seed: int) -> None:
    original = programs.original("ipam-node")
    await make_pools(world)
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    where = (world.server.kubeconfig, world.node(NODE), world.namespace)

    def run() -> None:
        with (
            daemon(tmp_path / "ours", *where, "--cleaner=off", "--static-ip-check=off") as ours,
            daemon(tmp_path / "theirs", *where, program=original) as theirs,
        ):
            play(ours, theirs, seed, 400)
            assert ours.stop() == theirs.stop() == 0
            assert contents(ours.store) == contents(theirs.store)

    await asyncio.to_thread(run)
