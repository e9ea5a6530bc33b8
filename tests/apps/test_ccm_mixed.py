"""Two clouds in one manager: nodes go to their own, and the outage of one stays where it is."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests import servers
from tests.apps import managers
from tests.apps.managers import Running, initialised, joined, program, running
from tests.waiting import until

from bedplate.api.resources import EVENTS, NODES
from bedplate.kube import Client
from bedplate.sim.clouds import BmmCloud, OxideCloud


@dataclass
class Site:
    """Two clouds and the words that name both."""

    bmm: BmmCloud
    oxide: OxideCloud
    name: str
    words: list[str]


@pytest.fixture
async def site(server: servers.Server, tmp_path: Path) -> AsyncIterator[Site]:
    name = f"mixed-{uuid.uuid4().hex[:6]}"
    async with BmmCloud() as bmm, OxideCloud() as oxide:
        file = tmp_path / "oxide.yaml"
        file.write_text(
            f"host: {oxide.url}\ntoken: {oxide.token}\nproject: {oxide.project}\nzone: rack\nregion: here\n"
        )
        words = [
            *managers.arguments(server, name, f"ccm-test={name}", cloud_api_timeout="1s"),
            "--cloud-provider=nvidia-bmm,oxide",
            f"--cloud-config=nvidia-bmm={managers.bmm_config(bmm, tmp_path)},oxide={file}",
        ]
        yield Site(bmm, oxide, name, words)


async def test_nodes_go_to_the_cloud_that_has_them(site: Site, client: Client, tmp_path: Path) -> None:
    labels = {"ccm-test": site.name}
    metal, sled = site.bmm.add(f"{site.name}-metal"), site.oxide.add(f"{site.name}-sled")
    known = site.oxide.add(f"{site.name}-known")
    async with (
        joined(client, metal.name, labels=labels),
        joined(client, sled.name, labels=labels),
        joined(client, known.name, provider_id=known.provider_id, labels=labels),
        joined(client, f"{site.name}-foreign", provider_id="aws:///eu/i-1", labels=labels),
        running(program("bedplate"), "ccm", "run", *site.words, folder=tmp_path) as manager,
    ):
        for machine in (metal, sled, known):
            node = await initialised(client, machine.name, manager)
            assert node["spec"]["providerID"] == machine.provider_id
        node = await client.get(NODES.raw(), sled.name)
        assert node["metadata"]["labels"]["topology.kubernetes.io/zone"] == "rack"
        node = await client.get(NODES.raw(), f"{site.name}-foreign")
        assert node["spec"]["taints"] == [managers.TAINT]
        await manager.logged("node.foreign")
        assert await manager.stop() == 0


async def test_a_name_that_two_clouds_have_is_written_by_neither(site: Site, client: Client, tmp_path: Path) -> None:
    name = f"{site.name}-twice"
    site.bmm.add(name)
    site.oxide.add(name)
    async with (
        joined(client, name, labels={"ccm-test": site.name}),
        running(program("bedplate"), "ccm", "run", *site.words, folder=tmp_path) as manager,
    ):
        await manager.logged("node.contested")

        async def is_told() -> bool:
            found = await client.list(EVENTS.raw(), "default", field_selector=f"involvedObject.name={name}")
            return any(event["reason"] == "AmbiguousInstance" for event in found.items)

        await until(is_told, "the event is there", describe=manager.log)
        node = await client.get(NODES.raw(), name)
        assert node["spec"]["taints"] == [managers.TAINT]
        assert "providerID" not in node["spec"]


async def test_one_clouds_outage_does_not_hold_up_the_others_nodes(site: Site, client: Client, tmp_path: Path) -> None:
    labels = {"ccm-test": site.name}
    site.oxide.faults.add("timeout")
    sleds = [site.oxide.add(f"{site.name}-sled-{number}") for number in range(3)]
    metals = [site.bmm.add(f"{site.name}-metal-{number}") for number in range(3)]
    async with (
        contextlib.AsyncExitStack() as stack,
        running(
            program("bedplate"), "ccm", "run", *site.words, "--concurrent-node-syncs=1", folder=tmp_path
        ) as manager,
    ):
        for machine in (*sleds, *metals):
            await stack.enter_async_context(
                joined(client, machine.name, provider_id=machine.provider_id, labels=labels)
            )
        for machine in metals:
            await initialised(client, machine.name, manager)
        for machine in sleds:
            node = await client.get(NODES.raw(), machine.name)
            assert node["spec"]["taints"] == [managers.TAINT]
        await check_health(manager)
        site.oxide.faults.clear()
        for machine in sleds:
            await initialised(client, machine.name, manager)


async def check_health(manager: Running) -> None:
    assert (await manager.get("/healthz"))[0] == 200
    status, text = await manager.get("/readyz?verbose")
    assert status == 500
    assert "[+]cloud-nvidia-bmm ok" in text
    assert "[-]cloud-oxide failed" in text
