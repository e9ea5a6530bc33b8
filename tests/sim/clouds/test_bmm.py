"""The simulated BMM: its operations, pages, refusals and the life of its machines."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.sim.clouds import BmmCloud, Change, Conditions


@pytest.fixture
def time() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def cloud(time: ManualClock) -> AsyncIterator[BmmCloud]:
    async with BmmCloud(machines=3, time=time) as running:
        yield running


async def test_an_instance_is_shown_with_site_tenant_type_and_addresses(cloud: BmmCloud, call: Any) -> None:
    machine = cloud.add("node-1", addresses=["10.0.0.5", "fd00::5"])
    answer = await call(cloud, f"/instance/{machine.id.upper()}")
    assert answer.status == 200
    assert answer.data["id"] == machine.id
    assert (answer.data["name"], answer.data["status"]) == ("node-1", "Ready")
    assert (answer.data["siteId"], answer.data["tenantId"]) == (cloud.site_id, cloud.tenant_id)
    assert answer.data["interfaces"][0]["ipAddresses"] == ["10.0.0.5", "fd00::5"]
    assert machine.provider_id == f"nvidia-bmm://acme/{cloud.tenant_id}/{cloud.site_id}/{machine.id}"
    kind = await call(cloud, f"/instance/type/{answer.data['instanceTypeId']}")
    assert kind.data["name"] == "site-1.h100x8"
    below = await call(cloud, f"/machine/{machine.machine_id}")
    assert below.data["instanceId"] == machine.id


async def test_pages_cover_250_instances_once_and_say_how_many_there_are(call: Any) -> None:
    async with BmmCloud(machines=250) as cloud:
        names: list[str] = []
        for number in (1, 2, 3):
            answer = await call(cloud, f"/instance?pageSize=100&pageNumber={number}&orderBy=CREATED_ASC")
            page = json.loads(answer.headers["X-Pagination"])
            assert page == {"pageNumber": number, "pageSize": 100, "total": 250, "orderBy": "CREATED_ASC"}
            names += [each["name"] for each in answer.data]
        assert names == [machine.name for machine in cloud.all()]
        assert len((await call(cloud, "/instance")).data) == 20
        assert cloud.journal.count("get-all-instance") == 4


@pytest.mark.parametrize(
    "query", ["pageSize=101", "pageSize=0", "pageNumber=0", "pageSize=many", "orderBy=ID_ASC", "orderBy=NAME"]
)
async def test_a_page_that_cannot_be_is_refused(cloud: BmmCloud, call: Any, query: str) -> None:
    assert (await call(cloud, f"/instance?{query}")).status == 400


async def test_lists_are_filtered_by_every_documented_field(cloud: BmmCloud, call: Any) -> None:
    other = cloud.add_site("site-2")
    machine = cloud.add("Node-X", addresses=["10.7.7.7"], site_id=other, labels={"rack": "R42"}, status="Error")
    row = cloud.instances.get(machine.id)
    assert row is not None
    for query in (
        f"siteId={other}",
        f"instanceTypeId={row.data['instanceTypeId']}",
        f"machineId={machine.machine_id}",
        "name=Node-X",
        "status=Error",
        "ipAddress=10.7.7.7&ipAddress=10.8.8.8",
        "query=r42",
    ):
        found = (await call(cloud, f"/instance?{query}")).data
        assert [each["id"] for each in found] == [machine.id], query
    assert (await call(cloud, "/instance?name=node-x")).data == []
    both = await call(cloud, f"/instance?siteId={other}&siteId={cloud.site_id}&vpcId={cloud.vpc_id}")
    assert len(both.data) == 4
    backwards = await call(cloud, "/instance?orderBy=NAME_DESC")
    assert [each["name"] for each in backwards.data] == ["bmm-003", "bmm-002", "bmm-001", "Node-X"]


async def test_what_is_not_there_is_named_in_the_refusal(cloud: BmmCloud, call: Any) -> None:
    missing = cloud.new_id()
    for path, message in (
        (f"/instance/{missing}", "Could not find Instance with specified ID"),
        (f"/site/{missing}", "Could not find Site with specified ID"),
        (f"/machine/{missing}", "Could not find Machine with specified ID"),
        (f"/instance/type/{missing}", "Could not find InstanceType with specified ID"),
        ("/chassis", "The requested path could not be found"),
    ):
        answer = await call(cloud, path)
        assert (answer.status, answer.data) == (404, {"source": "carbide", "message": message, "data": None})


async def test_strangers_are_turned_away(cloud: BmmCloud, session: aiohttp.ClientSession, call: Any) -> None:
    theirs = cloud.add("theirs", tenant_id=cloud.new_id())
    assert (await call(cloud, f"/instance/{theirs.id}")).status == 403
    assert "theirs" not in [each["name"] for each in (await call(cloud, "/instance")).data]
    assert (await call(cloud, "/tenant/current", token=cloud.new_token(roles=[]))).status == 403
    assert (await call(cloud, "/metadata", token=cloud.new_token(roles=[]))).status == 200
    headers = {"Authorization": f"Bearer {cloud.token}"}
    async with session.get(f"{cloud.url}/v2/org/other/carbide/instance", headers=headers) as answer:
        assert (answer.status, "org: other" in await answer.text()) == (403, True)
    cloud.has_tenant = False
    assert (await call(cloud, "/instance")).status == 403


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (None, "missing authorization header"),
        ("Basic abc", "header format"),
        ("Bearer made-up", "Invalid authorization token"),
    ],
)
async def test_a_request_without_a_good_token_is_a_401(
    cloud: BmmCloud, session: aiohttp.ClientSession, header: str | None, message: str
) -> None:
    headers = {"Authorization": header} if header else {}
    async with session.get(f"{cloud.url}/v2/org/acme/carbide/metadata", headers=headers) as answer:
        assert answer.status == 401
        assert message in (await answer.json())["message"]


async def test_a_token_is_good_for_its_life_and_says_so_itself(time: ManualClock, call: Any) -> None:
    async with BmmCloud(time=time, conditions=Conditions(token_life_s=300)) as cloud:
        claims = json.loads(base64.urlsafe_b64decode(cloud.token.split(".")[1] + "=="))
        assert claims["exp"] - claims["iat"] == 300
        await time.advance(299)
        assert (await call(cloud, "/metadata")).status == 200
        await time.advance(1)
        expired = await call(cloud, "/metadata")
        assert (expired.status, expired.data["message"]) == (401, "Authorization token in request has expired")
        cloud.new_token()
        assert (await call(cloud, "/metadata")).status == 200


@pytest.mark.parametrize("is_basic", [True, False], ids=["basic", "form"])
async def test_client_credentials_are_exchanged_for_a_token(session: aiohttp.ClientSession, is_basic: bool) -> None:
    async with BmmCloud(conditions=Conditions(token_life_s=60)) as cloud:
        form = {"grant_type": "client_credentials", "scope": "api"}
        text = base64.b64encode(f"{cloud.client_id}:{cloud.client_secret}".encode()).decode()
        basic = {"Authorization": f"Basic {text}"} if is_basic else {}
        form |= {} if is_basic else {"client_id": cloud.client_id, "client_secret": cloud.client_secret}
        async with session.post(cloud.token_url, data=form, headers=basic) as answer:
            issued = await answer.json()
        assert (issued["token_type"], issued["expires_in"]) == ("Bearer", 60)
        headers = {"Authorization": f"Bearer {issued['access_token']}"}
        async with session.get(f"{cloud.url}/v2/org/acme/carbide/tenant/current", headers=headers) as answer:
            assert answer.status == 200
        wrong = {"grant_type": "client_credentials", "client_id": cloud.client_id, "client_secret": "guess"}
        async with session.post(cloud.token_url, data=wrong) as answer:
            assert answer.status == 401


async def test_beyond_the_rate_limit_comes_429_with_retry_after(cloud: BmmCloud, time: ManualClock, call: Any) -> None:
    cloud.conditions.rate_limit = (10, 30)
    statuses = [(await call(cloud, "/metadata")).status for _ in range(31)]
    assert statuses == [200] * 30 + [429]
    assert (await call(cloud, "/metadata")).headers["Retry-After"] == "1"
    await time.advance(1)
    assert [(await call(cloud, "/metadata")).status for _ in range(11)] == [200] * 10 + [429]


async def test_lists_lag_behind_views(cloud: BmmCloud, time: ManualClock, call: Any) -> None:
    await time.advance(100)
    cloud.conditions.list_lag_s = 30
    added, gone = cloud.add("new"), cloud.get("bmm-002")
    cloud.remove("bmm-002")
    cloud.stop("bmm-001")
    assert (await call(cloud, f"/instance/{added.id}")).status == 200
    assert (await call(cloud, f"/instance/{gone.id}")).status == 404
    seen = {each["name"]: each["status"] for each in (await call(cloud, "/instance")).data}
    assert seen == {"bmm-001": "Ready", "bmm-002": "Ready", "bmm-003": "Ready"}
    await time.advance(30)
    seen = {each["name"]: each["status"] for each in (await call(cloud, "/instance")).data}
    assert seen == {"bmm-001": "Error", "bmm-003": "Ready", "new": "Ready"}


async def test_a_machine_stops_starts_terminates_and_is_gone(cloud: BmmCloud, time: ManualClock, call: Any) -> None:
    cloud.conditions.transition_s = 10
    changes: list[Change] = []
    cloud.listeners.append(changes.append)
    machine = cloud.get("bmm-001")

    async def status() -> str | int:
        answer = await call(cloud, f"/instance/{machine.id}")
        return str(answer.data["status"]) if answer.status == 200 else int(answer.status)

    cloud.stop("bmm-001")
    assert await status() == "Error"
    cloud.start(machine.id)
    assert await status() == "Rebooting"
    await time.advance(10)
    assert await status() == "Ready"
    assert (await call(cloud, f"/instance/{machine.id}", method="DELETE")).status == 202
    assert await status() == "Terminating"
    await time.advance(10)
    assert await status() == 404
    told = [(change.what, change.machine.state) for change in changes]
    assert told == [
        ("changed", "Error"),
        ("changed", "Rebooting"),
        ("changed", "Ready"),
        ("changed", "Terminating"),
        ("removed", "Terminating"),
    ]
    with pytest.raises(errors.NotFound, match="bmm-001"):
        cloud.get("bmm-001")


async def test_names_need_not_be_unique(cloud: BmmCloud, call: Any) -> None:
    first, second = cloud.add("twin"), cloud.add("twin")
    found = (await call(cloud, "/instance?name=twin")).data
    assert {each["id"] for each in found} == {first.id, second.id}


async def test_the_same_seed_gives_the_same_identifiers() -> None:
    one, two, other = BmmCloud(machines=2, seed=5), BmmCloud(machines=2, seed=5), BmmCloud(machines=2, seed=6)
    assert [each.id for each in one.all()] == [each.id for each in two.all()]
    assert one.all()[0].id != other.all()[0].id


async def test_an_unknown_status_is_refused_in_process(cloud: BmmCloud) -> None:
    with pytest.raises(errors.Invalid, match="Sleeping"):
        cloud.set_status("bmm-001", "Sleeping")
