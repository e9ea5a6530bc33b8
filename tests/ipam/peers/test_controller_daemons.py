"""A status of either controller, read by the other's daemon: pods get addresses of their node's block."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import grpc
import pytest
from tests import programs
from tests.ipam.controller.worlds import World, world_on
from tests.ipam.node.daemons import daemon
from tests.ipam.peers.controllers import running_original
from tests.waiting import wait_until

pytestmark = pytest.mark.real
FLAT = {"subnet": "10.90.0.0/16", "perNodeBlockSize": 8, "gateway": "10.90.0.9"}
ROUTED = {"cidr": "fd90::/48", "perNodeNetworkPrefix": 64, "gatewayIndex": 1}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with world_on(programs.server("real")) as made:
        yield made


@pytest.mark.parametrize("status_is_ours", [True, False], ids=["ours-to-original", "original-to-ours"])
async def test_the_others_daemon_serves_the_status(world: World, tmp_path: Path, status_is_ours: bool) -> None:
    program = programs.original("ipam-node") if status_is_ours else None
    programs.original("ipam-controller")
    async with contextlib.AsyncExitStack() as stack:
        if status_is_ours:
            await stack.enter_async_context(world.controller())
        else:
            await stack.enter_async_context(running_original(world, tmp_path))
        await world.add("a", "b")
        await world.pool("IPPool", "flat", FLAT)
        await world.pool("CIDRPool", "routed", ROUTED)
        await world.settles("IPPool", "flat", {"a": "10.90.0.1-10.90.0.8", "b": "10.90.0.9-10.90.0.16"})
        await world.settles("CIDRPool", "routed", {"a": "fd90::/64", "b": "fd90:0:0:1::/64"})
        found = await asyncio.to_thread(addresses, world, tmp_path, program)
    # The block of b begins with the gateway, which no pod gets.
    assert found[1] == [f"10.90.0.{last}/16" for last in range(10, 17)]
    assert found[2] == [f"fd90:0:0:1::{last}/64" for last in range(2, 9)]


def addresses(world: World, folder: Path, program: Path | None) -> dict[int, list[str]]:
    """Seven addresses of each kind of pool from a daemon on node b."""
    where = (world.server.kubeconfig, world.node("b"), world.namespace)
    with daemon(folder, *where, program=program) as one, one.caller() as caller:

        def allocate(kind: int, number: int) -> str:
            try:
                return caller.address("flat" if kind == 1 else "routed", container=f"c{number}", kind=kind)
            except grpc.RpcError as err:
                # It has not heard of the pool yet.
                assert err.code() is grpc.StatusCode.NOT_FOUND, err
                return ""

        return {
            kind: [wait_until(partial(allocate, kind, number), "an address", describe=one.tail) for number in range(7)]
            for kind in (1, 2)
        }
