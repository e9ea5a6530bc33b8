"""The simulated clouds keep to the vendors' documents, in every operation they have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from tests.contract import documents
from tests.contract.proxy import ValidatingProxy

from bedplate.sim.clouds import BmmCloud, OxideCloud, SimulatedCloud


class Caller:
    """A client of one cloud, through the proxy."""

    def __init__(self, cloud: SimulatedCloud, proxy: ValidatingProxy, session: aiohttp.ClientSession) -> None:
        self.cloud, self.proxy, self._session = cloud, proxy, session

    async def call(self, method: str, path: str, status: int = 200, **kwargs: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.cloud.token}"}
        async with self._session.request(method, self.proxy.url + path, headers=headers, **kwargs) as answer:
            text = await answer.text()
            assert answer.status == status, text
            return await answer.json() if text else None


@pytest.fixture(params=["document", "facts"])
def contract_source(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def bmm(contract_source: str) -> AsyncIterator[tuple[Caller, BmmCloud]]:
    contract = documents.load("nvidia-bmm", contract_source)
    async with (
        BmmCloud(machines=7, sites=2) as cloud,
        ValidatingProxy(cloud.url, contract) as proxy,
        aiohttp.ClientSession() as session,
    ):
        yield Caller(cloud, proxy, session), cloud
        proxy.assert_clean()


@pytest.fixture
async def oxide(contract_source: str) -> AsyncIterator[tuple[Caller, OxideCloud]]:
    contract = documents.load("oxide", contract_source)
    async with (
        OxideCloud(instances=5, has_v6_pool=True) as cloud,
        ValidatingProxy(cloud.url, contract) as proxy,
        aiohttp.ClientSession() as session,
    ):
        yield Caller(cloud, proxy, session), cloud
        proxy.assert_clean()


async def test_every_operation_of_the_simulated_bmm_is_as_documented(bmm: tuple[Caller, BmmCloud]) -> None:
    caller, cloud = bmm
    base = f"/v2/org/{cloud.org}/carbide"
    cloud.add("gpu", nvlink_domain=cloud.new_id(), labels={"rack": "r1"}, addresses=["10.9.0.1", "fd00::9"])
    machine = cloud.get("gpu")
    type_id = (await caller.call("GET", f"{base}/instance/{machine.id}"))["instanceTypeId"]
    for path in (
        f"/instance?siteId={cloud.site_id}&status=Ready&status=Error&pageSize=3&pageNumber=2&orderBy=NAME_DESC",
        "/instance?name=gpu&ipAddress=10.9.0.1&ipAddress=fd00::9&query=r1",
        f"/instance/type?siteId={cloud.site_id}&tenantId={cloud.tenant_id}",
        f"/instance/type/{type_id}",
        "/site",
        f"/site/{cloud.site_id}",
        "/tenant/current",
        f"/machine/{machine.machine_id}",
        "/metadata",
        "/user/current",
    ):
        await caller.call("GET", base + path)
    await caller.call("DELETE", f"{base}/instance/{machine.id}", 202)
    await caller.call("GET", f"{base}/instance/{machine.id}", 404)
    cloud.set_status("bmm-001", "Terminated")
    await caller.call("GET", f"{base}/instance/{cloud.get('bmm-001').id}")
    assert set(caller.proxy.seen) == {route.operation for route in cloud.routes()} - {"token"}


async def test_every_refusal_of_the_simulated_bmm_is_a_known_one(bmm: tuple[Caller, BmmCloud]) -> None:
    caller, cloud = bmm
    base = f"/v2/org/{cloud.org}/carbide"
    await caller.call("GET", f"{base}/instance?status=Lost", 400)
    await caller.call("GET", f"{base}/instance?siteId={cloud.new_id()}", 404)
    await caller.call("GET", "/v2/org/other/carbide/tenant/current", 403)
    stranger = cloud.add("stranger", tenant_id=cloud.new_id())
    await caller.call("GET", f"{base}/instance/{stranger.id}", 403)
    cloud.conditions.rate_limit = (0.001, 1)
    await caller.call("GET", f"{base}/metadata")
    await caller.call("GET", f"{base}/metadata", 429)
    cloud.conditions.rate_limit = None
    cloud.expire_tokens()
    await caller.call("GET", f"{base}/metadata", 401)


async def test_every_operation_of_the_simulated_oxide_is_as_documented(oxide: tuple[Caller, OxideCloud]) -> None:
    caller, cloud = oxide
    machine = cloud.add(
        "dual",
        interfaces=[{"addresses": ["172.30.9.1", "fd00::1"]}, {"addresses": ["fd00::2"]}],
        snat=True,
    )
    for path in (
        "/v1/me",
        "/v1/projects",
        f"/v1/projects/{cloud.project}",
        f"/v1/instances?project={cloud.project}&limit=2&sort_by=name_descending",
        f"/v1/instances/{machine.id}",
        f"/v1/instances/dual?project={cloud.project}",
        f"/v1/network-interfaces?instance={machine.id}",
        f"/v1/vpcs?project={cloud.project}",
        f"/v1/vpc-subnets?project={cloud.project}&vpc=default",
        f"/v1/vpc-subnets/{cloud.subnet_id}/network-interfaces?sort_by=id_ascending",
        "/v1/ip-pools?ip_version=v6",
        f"/v1/ip-pools/{cloud.pool_id}",
        "/v1/ping",
    ):
        await caller.call("GET", path)
    body = {"name": "lb-1", "description": "d", "address_allocator": {"type": "auto"}}
    await caller.call("POST", f"/v1/floating-ips?project={cloud.project}", 400, json=body)
    body["address_allocator"] = {"type": "auto", "pool_selector": {"type": "auto", "ip_version": "v4"}}
    made = await caller.call("POST", f"/v1/floating-ips?project={cloud.project}", 201, json=body)
    floating = f"/v1/floating-ips/{made['id']}"
    await caller.call("GET", f"/v1/floating-ips/lb-1?project={cloud.project}")
    await caller.call("GET", f"/v1/floating-ips?project={cloud.project}")
    await caller.call("PUT", floating, json={"name": "lb-2", "description": None})
    await caller.call("POST", f"{floating}/attach", 202, json={"kind": "instance", "parent": machine.id})
    kinds = await caller.call("GET", f"/v1/instances/{machine.id}/external-ips")
    assert sorted(each["kind"] for each in kinds["items"]) == ["ephemeral", "floating", "snat"]
    await caller.call("DELETE", floating, 400)
    await caller.call("POST", f"{floating}/detach", 202)
    await caller.call("DELETE", floating, 204)
    await caller.call("DELETE", floating, 404)
    for verb in ("reboot", "stop", "start", "stop"):
        await caller.call("POST", f"/v1/instances/{machine.id}/{verb}", 202)
    await caller.call("DELETE", f"/v1/instances/{machine.id}", 204)
    assert set(caller.proxy.seen) == {route.operation for route in cloud.routes()}


async def test_pages_of_the_simulated_oxide_are_walked_as_documented(oxide: tuple[Caller, OxideCloud]) -> None:
    caller, cloud = oxide
    names: list[str] = []
    query = {"project": cloud.project, "limit": "2"}
    for _ in range(3):
        page = await caller.call("GET", "/v1/instances", params=query)
        names += [each["name"] for each in page["items"]]
        query["page_token"] = page["next_page"]
    page = await caller.call("GET", "/v1/instances", params=query)
    assert page == {"items": [], "next_page": None}
    assert names == [machine.name for machine in cloud.all()]
