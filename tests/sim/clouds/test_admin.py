"""The admin API of the simulated clouds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from bedplate.sim.clouds import BmmCloud, OxideCloud, SimulatedCloud, admin


@pytest.fixture(params=[BmmCloud, OxideCloud])
async def cloud(request: pytest.FixtureRequest) -> AsyncIterator[SimulatedCloud]:
    async with request.param(prefix="m-") as running:
        running.add_machines(2)
        yield running


async def test_a_person_sees_and_drives_machines(cloud: SimulatedCloud, call: Any) -> None:
    names = [each["name"] for each in (await call(cloud, "/__sim/machines")).data]
    assert names == ["m-001", "m-002"]
    added = await call(cloud, "/__sim/machines", method="POST", json={"name": "by-hand"})
    assert (added.status, cloud.get("by-hand").id) == (201, added.data["id"])
    unnamed = await call(cloud, "/__sim/machines", method="POST")
    assert unnamed.data["name"] == "m-004"
    stopped = await call(cloud, "/__sim/machines/by-hand/stop", method="POST")
    assert stopped.data["state"] in ("Error", "stopped") and stopped.data["state"] == cloud.get("by-hand").state
    started = await call(cloud, f"/__sim/machines/{added.data['id']}/start", method="POST")
    assert started.data["state"] in ("Ready", "running")
    for name, action in (("by-hand", "terminate"), ("m-001", "remove")):
        gone = await call(cloud, f"/__sim/machines/{name}/{action}", method="POST")
        assert gone.data["state"] == "gone"
    assert [machine.name for machine in cloud.all()] == ["m-002", "m-004"]
    assert (await call(cloud, "/__sim/machines/ghost/stop", method="POST")).status == 404
    assert (await call(cloud, "/__sim/machines/m-002/explode", method="POST")).status == 404
    assert (await call(cloud, "/__sim/machines", method="POST", data=b"[1]")).status == 400


async def test_requests_are_counted_and_the_admin_api_is_not(cloud: SimulatedCloud, call: Any) -> None:
    path = "/metadata" if cloud.kind == "nvidia-bmm" else "/v1/me"
    await call(cloud, path)
    await call(cloud, path, token="made-up")
    counters = (await call(cloud, "/__sim/counters")).data
    assert (counters["total"], counters["statuses"]) == (2, {"200": 1, "401": 1})
    assert sum(counters["operations"].values()) == 2
    last = (await call(cloud, "/__sim/requests")).data[-1]
    assert (last["method"], last["status"]) == ("GET", 401)
    assert (await call(cloud, "/__sim/counters", method="DELETE")).status == 204
    assert (await call(cloud, "/__sim/counters")).data["total"] == 0


async def test_faults_are_set_over_the_admin_api(cloud: SimulatedCloud, call: Any) -> None:
    path = "/metadata" if cloud.kind == "nvidia-bmm" else "/v1/me"
    script = b"rules:\n- fault: 503\n"
    assert (await call(cloud, "/__sim/faults", method="PUT", data=script)).status == 200
    assert (await call(cloud, path)).status == 503
    added = await call(cloud, "/__sim/faults", method="POST", data=b'{"rules": [{"fault": {"kind": "reset"}}]}')
    assert [rule["fault"]["kind"] for rule in added.data] == ["503", "reset"]
    assert added.data[0]["hits"] == 1
    wrong = await call(cloud, "/__sim/faults", method="PUT", data=b"rules:\n- fault: storm\n- fault: flood\n")
    assert wrong.status == 400
    assert "storm" in wrong.text and "flood" in wrong.text
    assert (await call(cloud, "/__sim/faults", method="DELETE")).status == 204
    assert (await call(cloud, path)).status == 200


async def test_conditions_and_tokens_are_changed_over_the_admin_api(cloud: SimulatedCloud, call: Any) -> None:
    changed = await call(cloud, "/__sim/conditions", method="PATCH", json={"list_lag_s": 5, "rate_limit": [10, 30]})
    assert (changed.data["list_lag_s"], changed.data["rate_limit"]) == (5.0, [10.0, 30])
    assert (cloud.conditions.list_lag_s, cloud.conditions.rate_limit) == (5.0, (10.0, 30))
    for body in ({"weather": "fine"}, {"latency_s": "long"}):
        assert (await call(cloud, "/__sim/conditions", method="PATCH", json=body)).status == 400
    path = "/metadata" if cloud.kind == "nvidia-bmm" else "/v1/me"
    old = cloud.token
    assert (await call(cloud, "/__sim/tokens", method="DELETE")).status == 204
    assert (await call(cloud, path, token=old)).status == 401
    fresh = (await call(cloud, "/__sim/tokens", method="POST")).data["token"]
    assert (await call(cloud, path, token=fresh)).status == 200


async def test_the_front_page_lists_every_route(cloud: SimulatedCloud, call: Any) -> None:
    page = (await call(cloud, "/__sim")).text
    for route in admin.routes(cloud):
        shown = route.template.replace("{ref}", "REF").replace("{action}", "ACTION")
        assert any(line.split()[:2] == [route.method, shown] for line in page.splitlines()), route.template
    assert (await call(cloud, "/__sim/elsewhere")).status == 404
