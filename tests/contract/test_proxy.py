"""The validating proxy has teeth, and is otherwise not noticed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from tests.contract import documents
from tests.contract.contract import Contract
from tests.contract.proxy import ValidatingProxy
from tests.waiting import until

from bedplate.sim.clouds import BmmCloud, OxideCloud

Change = Callable[[dict[str, Any]], None]


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        # aiohttp would silently repeat a request whose connection was reset.
        opened._retry_connection = False
        yield opened


@pytest.fixture(params=["document", "facts"])
def contract(request: pytest.FixtureRequest) -> Contract:
    return documents.load("nvidia-bmm", request.param)


async def ask(session: aiohttp.ClientSession, cloud: BmmCloud | OxideCloud, url: str, **kwargs: Any) -> int:
    headers = {"Authorization": f"Bearer {cloud.token}"}
    async with session.request(kwargs.pop("method", "GET"), url, headers=headers, **kwargs) as answer:
        await answer.read()
        return answer.status


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda data: data.update(status="Sleeping"), "Sleeping"),
        (lambda data: data.update(siteId="here"), "uuid"),
        (lambda data: data.update(name=7), "7 is not of type"),
        (lambda data: data.update(rackId="r1"), "rackId"),
        (lambda data: data["interfaces"][0].update(ipAddresses="10.0.0.1"), "ipAddresses"),
    ],
    ids=["enum", "format", "type", "undocumented-field", "nested"],
)
async def test_a_wrong_field_in_an_answer_is_caught(
    session: aiohttp.ClientSession, contract: Contract, change: Change, problem: str
) -> None:
    async with BmmCloud(machines=1) as cloud, ValidatingProxy(cloud.url, contract) as proxy:
        row = next(iter(cloud.instances))
        data = json.loads(row.encoded)
        change(data)
        cloud.instances.put(row.key, data)
        assert await ask(session, cloud, f"{proxy.url}/v2/org/acme/carbide/instance/{row.key}") == 200
        assert len(proxy.violations) == 1
        assert problem in str(proxy.violations[0])
        assert proxy.violations[0].side == "answer"


async def test_a_missing_field_in_an_answer_is_caught(session: aiohttp.ClientSession) -> None:
    async with OxideCloud(instances=1) as cloud, ValidatingProxy(cloud.url, "oxide") as proxy:
        row = next(iter(cloud.instances))
        cloud.instances.put(row.key, {key: value for key, value in row.data.items() if key != "hostname"})
        await ask(session, cloud, f"{proxy.url}/v1/instances/{row.key}")
        assert ["hostname" in str(each) for each in proxy.violations] == [True]


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/instance?rack=7", "'rack' is not documented"),
        ("/instance?pageSize=101", "pageSize"),
        ("/instance?pageSize=ten", "pageSize"),
        ("/instance?orderBy=ID_ASC", "orderBy"),
        ("/instance?pageNumber=1&pageNumber=2", "more than once"),
        ("/instance/type", "'siteId' is required"),
        ("/instance/not-a-uuid", "instanceId"),
        ("/chassis", "no such path"),
    ],
)
async def test_an_undocumented_request_is_caught(
    session: aiohttp.ClientSession, contract: Contract, path: str, problem: str
) -> None:
    async with BmmCloud(machines=1) as cloud, ValidatingProxy(cloud.url, contract) as proxy:
        await ask(session, cloud, f"{proxy.url}/v2/org/acme/carbide{path}")
        assert [problem in str(each) for each in proxy.violations] == [True]


async def test_a_request_without_a_token_is_caught(session: aiohttp.ClientSession) -> None:
    async with BmmCloud() as cloud, ValidatingProxy(cloud.url, "nvidia-bmm") as proxy:
        async with session.get(f"{proxy.url}/v2/org/acme/carbide/metadata") as answer:
            assert answer.status == 401
        assert [each.problem for each in proxy.violations] == ["no bearer token"]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"name": "lb"}, "description"),
        ({"name": "9lb", "description": ""}, "9lb"),
        ({"name": "lb", "description": "", "address_allocator": {"type": "any"}}, "address_allocator"),
        ({"name": "lb", "description": "", "tags": {}}, "tags"),
    ],
    ids=["missing", "pattern", "variant", "undocumented"],
)
async def test_a_wrong_request_body_is_caught(
    session: aiohttp.ClientSession, body: dict[str, Any], problem: str
) -> None:
    async with OxideCloud() as cloud, ValidatingProxy(cloud.url, "oxide") as proxy:
        await ask(session, cloud, f"{proxy.url}/v1/floating-ips?project=bedplate", method="POST", json=body)
        assert proxy.violations
        assert all(problem in each.problem and each.side == "request" for each in proxy.violations)


async def test_a_status_that_nobody_knows_is_caught(session: aiohttp.ClientSession) -> None:
    contract = documents.load("nvidia-bmm")
    strict = Contract(
        "strict", list(contract.operations.values()), contract.objects, replace(contract.undocumented, answers={})
    )
    async with BmmCloud() as cloud, ValidatingProxy(cloud.url, strict) as proxy:
        assert await ask(session, cloud, f"{proxy.url}/v2/org/acme/carbide/instance/{cloud.new_id()}") == 404
        assert ["status 404" in each.problem for each in proxy.violations] == [True]


async def test_a_missing_pagination_header_is_caught(contract: Contract) -> None:
    operation = contract.operations["get-all-instance"]
    problems = contract.check_answer(operation, 200, {"Content-Type": "application/json"}, b"[]")
    assert problems == ["header X-Pagination is missing"]


async def test_faults_pass_through_the_proxy_as_they_are(session: aiohttp.ClientSession) -> None:
    async with BmmCloud(machines=3) as cloud, ValidatingProxy(cloud.url, "nvidia-bmm") as proxy:
        url = f"{proxy.url}/v2/org/acme/carbide/instance"
        headers = {"Authorization": f"Bearer {cloud.token}"}
        cloud.faults.add("truncated-json", nth=1)
        cloud.faults.add("reset", nth=1)
        async with session.get(url, headers=headers) as answer:
            text = await answer.text()
        with pytest.raises(ValueError, match="column"):
            json.loads(text)
        with pytest.raises(aiohttp.ClientError):
            await ask(session, cloud, url)
        cloud.faults.clear()
        rule = cloud.faults.add("timeout")
        waiting = asyncio.create_task(ask(session, cloud, url))
        await until(lambda: rule.hits)
        waiting.cancel()
        proxy.assert_clean()
        assert proxy.seen["get-all-instance"] == 3
