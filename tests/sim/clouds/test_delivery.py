"""Every kind of fault, as a real HTTP client sees it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from tests.waiting import until

from bedplate.core.clock import ManualClock
from bedplate.sim.clouds import BmmCloud, OxideCloud, faults


@pytest.fixture
async def cloud() -> AsyncIterator[BmmCloud]:
    async with BmmCloud(machines=5) as running:
        yield running


def test_every_kind_is_tried_here() -> None:
    statuses = set(faults.STATUS_KINDS)
    others = {
        *("timeout", "reset", "generic-404", "slow-body", "truncated-json", "wrong-json", "wrong-content-type"),
        "drop-header",
        *("stale-list", "drop-from-list", "latency"),
    }
    assert set(faults.KINDS) == statuses | others


async def test_timeout_leaves_the_client_waiting(cloud: BmmCloud, call: Any) -> None:
    rule = cloud.faults.add("timeout")
    waiting = asyncio.create_task(call(cloud, "/metadata"))
    await until(lambda: rule.hits)
    done, _ = await asyncio.wait([waiting], timeout=0.2)
    assert not done
    waiting.cancel()
    await until(lambda: cloud.journal.entries)
    assert (cloud.journal.entries[0].status, cloud.journal.entries[0].fault) == (0, "timeout")


async def test_timeout_may_end_with_a_cut(cloud: BmmCloud, call: Any) -> None:
    cloud.faults.add("timeout", fault={"after": "50ms"})
    with pytest.raises(aiohttp.ClientError):
        await call(cloud, "/metadata")


async def test_a_hanging_client_does_not_hold_up_the_end_of_the_cloud(call: Any) -> None:
    async with BmmCloud() as cloud:
        cloud.faults.add("timeout")
        hanging = asyncio.create_task(call(cloud, "/metadata"))
        await until(lambda: cloud.faults.rules[0].hits)
    with pytest.raises(aiohttp.ClientError):
        await hanging


async def test_reset_is_seen_as_one(cloud: BmmCloud, call: Any) -> None:
    cloud.faults.add("reset")
    with pytest.raises(aiohttp.ClientOSError, match="reset"):
        await call(cloud, "/metadata")
    assert cloud.journal.by_status == {0: 1}


@pytest.mark.parametrize("kind", faults.STATUS_KINDS)
async def test_a_status_comes_with_the_apis_own_error_body(cloud: BmmCloud, call: Any, kind: str) -> None:
    cloud.faults.add(int(kind), fault={"message": "as told", "retry_after": "3s"})
    answer = await call(cloud, "/metadata")
    assert (answer.status, answer.headers["Retry-After"]) == (int(kind), "3")
    assert answer.data == {"source": "carbide", "message": "as told", "data": None}
    async with OxideCloud() as oxide:
        oxide.faults.add(kind)
        answer = await call(oxide, "/v1/me")
        assert answer.status == int(kind)
        assert answer.data["message"] and answer.data["request_id"]
        assert ("Retry-After" in answer.headers) == (kind == "429")


@pytest.mark.parametrize(
    ("style", "content_type", "word"),
    [
        ("route", "application/json", "requested path could not be found"),
        ("unnamed", "application/json", "Could not find resource with specified ID"),
        ("html", "text/html", "404 Not Found"),
        ("plain", "text/plain", "page not found"),
    ],
)
async def test_generic_404_says_nothing_of_the_object(
    cloud: BmmCloud, call: Any, style: str, content_type: str, word: str
) -> None:
    cloud.faults.add("generic-404", fault={"style": style})
    answer = await call(cloud, f"/instance/{cloud.all()[0].id}")
    assert (answer.status, answer.headers["Content-Type"]) == (404, content_type)
    assert word in answer.text


@pytest.mark.parametrize("style", ["route", "unnamed"])
async def test_generic_404_of_oxide_has_no_object_not_found(call: Any, style: str) -> None:
    async with OxideCloud(instances=1) as cloud:
        cloud.faults.add("generic-404", fault={"style": style})
        answer = await call(cloud, f"/v1/instances/{cloud.all()[0].id}")
        assert answer.status == 404
        assert answer.data.get("error_code") in (None, "Not Found")


async def test_slow_body_arrives_in_pieces_and_whole(cloud: BmmCloud, call: Any) -> None:
    loop = asyncio.get_running_loop()
    cloud.faults.add("slow-body", fault={"over": "300ms"})
    start = loop.time()
    answer = await call(cloud, "/instance")
    assert loop.time() - start >= 0.25
    assert len(answer.data) == 5
    with pytest.raises(TimeoutError):
        await call(cloud, "/instance", timeout=aiohttp.ClientTimeout(total=0.1))


async def test_truncated_json_is_half_of_the_body(cloud: BmmCloud, session: aiohttp.ClientSession) -> None:
    cloud.faults.add("truncated-json")
    headers = {"Authorization": f"Bearer {cloud.token}"}
    async with session.get(f"{cloud.url}/v2/org/acme/carbide/instance", headers=headers) as answer:
        assert (answer.status, answer.content_type) == (200, "application/json")
        with pytest.raises(json.JSONDecodeError):
            await answer.json()


async def test_wrong_json_is_json_of_another_type(cloud: BmmCloud, call: Any) -> None:
    cloud.faults.add("wrong-json")
    assert isinstance((await call(cloud, "/instance")).data, dict)
    assert isinstance((await call(cloud, "/metadata")).data, list)


async def test_wrong_content_type_has_the_right_body(cloud: BmmCloud, call: Any) -> None:
    cloud.faults.add("wrong-content-type")
    answer = await call(cloud, "/metadata")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html")
    assert json.loads(answer.text)["version"]


async def test_stale_lists_show_what_was_true_then_and_views_what_is(call: Any) -> None:
    time = ManualClock()
    async with BmmCloud(machines=2, time=time) as cloud:
        await time.advance(120)
        gone = cloud.get("bmm-001")
        cloud.remove("bmm-001")
        cloud.faults.add("stale-list", fault={"age": "1m"})
        assert len((await call(cloud, "/instance")).data) == 2
        assert (await call(cloud, f"/instance/{gone.id}")).status == 404
        await time.advance(61)
        assert len((await call(cloud, "/instance")).data) == 1


async def test_drop_from_list_hides_machines_from_lists_only(cloud: BmmCloud, call: Any) -> None:
    rule = cloud.faults.add("drop-from-list", fault={"names": "-00[23]$"})
    seen = [each["name"] for each in (await call(cloud, "/instance")).data]
    assert seen == ["bmm-001", "bmm-004", "bmm-005"]
    assert (await call(cloud, f"/instance/{cloud.get('bmm-002').id}")).status == 200
    cloud.faults.remove(rule)
    cloud.add_machines(95)
    cloud.faults.add("drop-from-list", fault={"share": 0.3})
    first = [each["name"] for each in (await call(cloud, "/instance?pageSize=100")).data]
    again = [each["name"] for each in (await call(cloud, "/instance?pageSize=100")).data]
    assert first == again
    assert 50 < len(first) < 90


async def test_drop_from_list_hides_oxide_instances_and_their_interfaces(call: Any) -> None:
    async with OxideCloud(instances=3) as cloud:
        cloud.faults.add("drop-from-list", fault={"names": "002"})
        assert len((await call(cloud, "/v1/instances?project=bedplate")).data["items"]) == 2
        interfaces = await call(cloud, f"/v1/vpc-subnets/{cloud.subnet_id}/network-interfaces")
        assert len(interfaces.data["items"]) == 2


async def test_latency_delays_and_adds_to_other_faults(cloud: BmmCloud, call: Any) -> None:
    loop = asyncio.get_running_loop()
    cloud.faults.add("latency", fault={"by": "100ms"})
    cloud.faults.add("503")
    start = loop.time()
    assert (await call(cloud, "/metadata")).status == 503
    assert loop.time() - start >= 0.09
    assert cloud.journal.entries[-1].fault == "latency+503"


async def test_conditions_delay_every_answer(cloud: BmmCloud, call: Any) -> None:
    loop = asyncio.get_running_loop()
    cloud.conditions.latency_s = 0.1
    start = loop.time()
    assert (await call(cloud, "/metadata")).status == 200
    assert loop.time() - start >= 0.09


async def test_drop_header_takes_away_the_pagination(cloud: BmmCloud, call: Any) -> None:
    cloud.faults.add("drop-header")
    answer = await call(cloud, "/instance")
    assert (answer.status, len(answer.data), "X-Pagination" in answer.headers) == (200, 5, False)


@pytest.mark.parametrize("kind", ["reset", "timeout", "503"])
async def test_a_fault_may_lose_only_the_answer(call: Any, kind: str) -> None:
    async with OxideCloud() as cloud:
        rule = cloud.faults.add(kind, fault={"done": True})
        body = {"name": "lb", "description": ""}
        path = "/v1/floating-ips?project=bedplate"
        asking = asyncio.create_task(call(cloud, path, method="POST", json=body))
        await until(lambda: rule.hits if kind == "timeout" else asking.done())
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert cloud.floating_ip("lb") is not None
        await until(lambda: cloud.journal.count())
        assert cloud.journal.by_status == {503 if kind == "503" else 0: 1}


async def test_without_done_the_cloud_has_seen_nothing(call: Any) -> None:
    async with OxideCloud() as cloud:
        cloud.faults.add("503")
        await call(cloud, "/v1/floating-ips?project=bedplate", method="POST", json={"name": "lb", "description": ""})
        assert cloud.floating_ip("lb") is None
