"""The daemon as a program, against API servers: what it gives, when it is ready, how it ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.ipam.controller.worlds import World
from tests.ipam.node.daemons import code_of, daemon

BLOCK = {"nodeName": "a", "startIP": "192.168.0.1", "endIP": "192.168.0.4"}
SPEC = {"subnet": "192.168.0.0/16", "perNodeBlockSize": 4, "gateway": "192.168.0.1"}


async def test_gives_the_addresses_of_its_block_in_turn(world: World, tmp_path: Path) -> None:
    await world.pool("IPPool", "p", SPEC)
    await world.damage("IPPool", "p", [BLOCK])

    def play() -> None:
        with daemon(tmp_path, world.server.kubeconfig, world.node("a"), world.namespace) as one:
            one.ready()
            with one.caller() as caller:
                given = caller.allocate("p")[0]
                assert (given.ip, given.gateway, given.pool, given.pool_type) == (
                    "192.168.0.2/16",
                    "192.168.0.1",
                    "p",
                    1,
                )
                assert caller.address("p", container="c2") == "192.168.0.3/16"
                assert caller.address("p", container="c3") == "192.168.0.4/16"
                assert code_of(lambda: caller.allocate("p", container="c4")) == "RESOURCE_EXHAUSTED"
                assert code_of(lambda: caller.allocate("p")) == "ALREADY_EXISTS"
                assert caller.is_allocated("p")
                caller.deallocate("p")
                assert not caller.is_allocated("p")
                assert caller.address("p", container="c4") == "192.168.0.2/16"
            assert one.stop() == 0
            assert not one.socket.exists()

    await asyncio.to_thread(play)
