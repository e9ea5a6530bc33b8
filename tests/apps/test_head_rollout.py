"""A roll-out and a head that is killed in the middle of it, as processes: what was held back stays held back."""

from __future__ import annotations

from pathlib import Path

from tests.apps import headprograms
from tests.waiting import until

from bedplate.api.headapi import Edit
from bedplate.client import HeadClient

NODES = [f"node{number:03}" for number in range(1, 9)]


async def apply(client: HeadClient, *names: str) -> None:
    """Nodes become what the head says, and tell it."""
    for name in names:
        wanted = await client.desired(name)
        assert wanted is not None
        await client.report(name, applied=wanted.state.revision, digest=wanted.etag)


async def test_a_head_that_is_killed_again_and_again_releases_every_batch_once_and_in_order(tmp_path: Path) -> None:
    data = headprograms.init(tmp_path / "data", "--nodes", str(len(NODES)))
    with headprograms.served(data) as daemon:
        async with daemon.client() as client:
            await apply(client, *NODES)
            category = await client.get("category", "default")
            values = {**category.values, "install_mode": "FULL"}
            edit = Edit(mode="category", key="default", base=category.revision, object={"values": values})
            await client.commit([edit], batch="2", settle_s=0)
            revision = (await client.rollout()).revision
        daemon.kill()
    for released in (2, 4, 6, 8):
        with headprograms.served(data) as daemon:
            async with daemon.client() as client:

                async def is_there(client: HeadClient = client, released: int = released) -> bool:
                    return (await client.rollout()).released == released

                await until(is_there, f"{released} nodes have it")
                states = {state.node: state for state in await client.nodes(NODES)}
                assert [name for name in NODES if states[name].is_held] == NODES[released:]
                for name in NODES:
                    wanted = await client.desired(name)
                    assert wanted is not None
                    is_new = wanted.state.settings.get("install_mode") == "FULL"
                    assert is_new == (name in NODES[:released]), name
                if released < 8:
                    await apply(client, *NODES[:released])
                    # Whether it is written down that the next batch has it, or not, is chance.
            daemon.kill()
    with headprograms.served(data) as daemon:
        async with daemon.client() as client:
            await apply(client, *NODES)

            async def is_done(client: HeadClient = client) -> bool:
                return (await client.rollout()).state == "done"

            await until(is_done, "all have it")
            assert (await client.progress(revision)).nodes == []
            told = [notice.text for notice in await client.notices() if "Roll-out" in notice.text]
            assert sum("begins" in text for text in told) == 1 and sum("is done" in text for text in told) == 1
