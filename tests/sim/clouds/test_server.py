"""What all simulated clouds share beside faults: TLS, ports, bugs of their own."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bedplate.core.clock import SystemClock
from bedplate.serving import certificates
from bedplate.sim.clouds import BmmCloud, OxideCloud


async def test_a_cloud_serves_tls_and_resets_it(tmp_path: Path, session: aiohttp.ClientSession) -> None:
    cert, key = certificates.self_signed(tmp_path, "cloud", ["127.0.0.1"], SystemClock())
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    client = ssl.create_default_context(cafile=str(cert))
    async with OxideCloud(tls=server) as cloud:
        assert cloud.url.startswith("https://")
        headers = {"Authorization": f"Bearer {cloud.token}"}
        async with session.get(f"{cloud.url}/v1/me", headers=headers, ssl=client) as answer:
            assert answer.status == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await session.get(f"{cloud.url}/v1/me", headers=headers)
        cloud.faults.add("reset")
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"{cloud.url}/v1/me", headers=headers, ssl=client)


async def test_two_clouds_live_side_by_side(call: Any) -> None:
    async with BmmCloud(machines=1) as one, BmmCloud(machines=2) as two:
        assert one.url != two.url
        assert len((await call(one, "/instance")).data) == 1
        assert len((await call(two, "/instance")).data) == 2
        assert (one.journal.count(), two.journal.count()) == (1, 1)


async def test_a_bug_in_a_handler_is_an_error_of_the_server(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with BmmCloud(machines=1) as cloud:
        monkeypatch.setattr(cloud, "sites", None)
        answer = await call(cloud, "/tenant/current")
        assert (answer.status, answer.data["source"]) == (500, "carbide")


async def test_5000_instances_are_walked_in_pages_of_one_list(call: Any) -> None:
    async with OxideCloud(instances=5000) as cloud:
        seen: set[str] = set()
        token = ""
        for _ in range(6):
            page = (await call(cloud, f"/v1/instances?project=bedplate&limit=1000&page_token={token}")).data
            seen |= {each["id"] for each in page["items"]}
            token = page["next_page"]
        assert (len(seen), token) == (5000, None)
        assert len(cloud.instances._selections) == 1, "the list was sorted once, not for every page"


async def test_a_closed_cloud_refuses_connections_and_comes_back_as_it_was(call: Any) -> None:
    async with BmmCloud(machines=1) as cloud:
        url, machine = cloud.url, cloud.all()[0]
        await call(cloud, f"/instance/{machine.id}")
        await cloud.close()
        # The first may find its kept connection cut instead.
        with pytest.raises(aiohttp.ClientConnectionError):
            await call(cloud, f"/instance/{machine.id}")
        with pytest.raises(aiohttp.ClientConnectorError):
            await call(cloud, f"/instance/{machine.id}")
        await cloud.open()
        assert cloud.url == url
        assert (await call(cloud, f"/instance/{machine.id}")).status == 200


async def test_a_machine_may_have_no_address_yet(call: Any) -> None:
    async with BmmCloud() as bmm, OxideCloud() as oxide:
        machine = bmm.add("new", addresses=[])
        data = (await call(bmm, f"/instance/{machine.id}")).data
        assert [each["ipAddresses"] for each in data["interfaces"]] == [[]]
        machine = oxide.add("new", addresses=[])
        assert (await call(oxide, f"/v1/network-interfaces?instance={machine.id}")).data["items"] == []
