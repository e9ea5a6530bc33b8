"""The simulated Oxide: instances, addresses, pages, refusals, and the life of floating IPs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.sim.clouds import OxideCloud
from bedplate.sim.clouds.oxide import payloads

PROJECT = "project=bedplate"


@pytest.fixture
def time() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def cloud(time: ManualClock) -> AsyncIterator[OxideCloud]:
    async with OxideCloud(instances=3, time=time) as running:
        yield running


class FloatingIp:
    """One floating IP, driven over the API."""

    def __init__(self, cloud: OxideCloud, call: Any, identifier: str) -> None:
        self._cloud, self._call, self.path = cloud, call, f"/v1/floating-ips/{identifier}"

    async def attach(self, ref: str) -> Any:
        body = {"kind": "instance", "parent": self._cloud.get(ref).id}
        return await self._call(self._cloud, f"{self.path}/attach", method="POST", json=body)

    async def detach(self) -> Any:
        return await self._call(self._cloud, f"{self.path}/detach", method="POST")

    async def delete(self) -> Any:
        return await self._call(self._cloud, self.path, method="DELETE")

    async def holder(self) -> str | None:
        answer = await self._call(self._cloud, self.path)
        found: str | None = answer.data["instance_id"]
        return found


async def create(cloud: OxideCloud, call: Any, name: str = "lb", **allocator: Any) -> Any:
    body = {"name": name, "description": ""} | ({"address_allocator": allocator} if allocator else {})
    return await call(cloud, f"/v1/floating-ips?{PROJECT}", method="POST", json=body)


@pytest.fixture
async def floating(cloud: OxideCloud, call: Any) -> FloatingIp:
    return FloatingIp(cloud, call, (await create(cloud, call)).data["id"])


async def test_an_instance_is_found_by_id_or_by_name_in_its_project(cloud: OxideCloud, call: Any) -> None:
    machine = cloud.add("node-1", ncpus=8, memory_gib=32, hostname="node-1.lan")
    by_id = await call(cloud, f"/v1/instances/{machine.id}")
    by_name = await call(cloud, f"/v1/instances/node-1?{PROJECT}")
    assert by_id.data == by_name.data
    assert (by_id.data["hostname"], by_id.data["ncpus"], by_id.data["memory"]) == ("node-1.lan", 8, 32 << 30)
    assert machine.provider_id == f"oxide://{machine.id}"
    assert (await call(cloud, f"/v1/instances/{machine.id}?{PROJECT}")).status == 400
    assert (await call(cloud, "/v1/instances/node-1")).status == 400
    assert (await call(cloud, "/v1/instances")).status == 400


async def test_what_is_not_there_is_object_not_found_and_an_unknown_route_is_not(cloud: OxideCloud, call: Any) -> None:
    for path in (
        f"/v1/instances/{cloud.new_id()}",
        f"/v1/instances/ghost?{PROJECT}",
        "/v1/instances/ghost?project=ghosts",
        "/v1/projects/ghosts",
        "/v1/ip-pools/ghosts",
        f"/v1/floating-ips/{cloud.new_id()}",
        f"/v1/network-interfaces?instance={cloud.new_id()}",
        f"/v1/vpc-subnets/{cloud.new_id()}/network-interfaces",
    ):
        answer = await call(cloud, path)
        assert (answer.status, answer.data["error_code"]) == (404, "ObjectNotFound"), path
        assert answer.data["request_id"] == answer.headers["x-request-id"]
    unknown = await call(cloud, "/v1/ghosts")
    assert (unknown.status, unknown.data.get("error_code")) == (404, None)
    assert (await call(cloud, "/v1/me", method="POST")).status == 405


async def test_interfaces_are_listed_by_instance_and_by_subnet(cloud: OxideCloud, call: Any) -> None:
    machine = cloud.add(
        "dual",
        interfaces=[{"addresses": ["10.0.0.1"]}, {"addresses": ["fd00::1", "10.0.0.2"]}, {"addresses": ["fd00::2"]}],
    )
    items = (await call(cloud, f"/v1/network-interfaces?instance={machine.id}")).data["items"]
    assert [(each["ip_stack"]["type"], each["primary"]) for each in items] == [
        ("v4", True),
        ("dual_stack", False),
        ("v6", False),
    ]
    value = items[1]["ip_stack"]["value"]
    assert (value["v4"]["ip"], value["v6"]["ip"]) == ("10.0.0.2", "fd00::1")
    found, token = [], ""
    for _ in range(4):
        query = f"sort_by=id_ascending&limit=2&page_token={token}"
        page = (await call(cloud, f"/v1/vpc-subnets/{cloud.subnet_id}/network-interfaces?{query}")).data
        found.append([each["instance_id"] for each in page["items"]])
        token = page["next_page"]
    assert [len(each) for each in found] == [2, 2, 2, 0], "every walk ends with an empty page"
    assert token is None
    everything = [identifier for each in found for identifier in each]
    assert sorted(everything) == sorted([*(each.id for each in cloud.all()), machine.id, machine.id])


async def test_a_walk_by_name_loses_equal_names_at_the_edge_of_a_page(cloud: OxideCloud, call: Any) -> None:
    path = f"/v1/vpc-subnets/{cloud.subnet_id}/network-interfaces?limit=2"
    first = (await call(cloud, path)).data
    second = (await call(cloud, f"{path}&page_token={first['next_page']}")).data
    assert (len(first["items"]), second["items"]) == (2, []), "all three are called net0, as in the real server"


@pytest.mark.parametrize("query", ["limit=0", "limit=many", "sort_by=age", "page_token=made-up", "page_token=e30="])
async def test_a_page_that_cannot_be_is_refused(cloud: OxideCloud, call: Any, query: str) -> None:
    assert (await call(cloud, f"/v1/instances?{PROJECT}&{query}")).status == 400


async def test_external_addresses_have_their_kinds(cloud: OxideCloud, call: Any) -> None:
    cloud.add("bare", ephemeral=False)
    machine = cloud.add("full", ephemeral=["198.18.9.9"], snat=True)
    cloud.create_floating_ip("mine", ip="198.18.9.10", attach_to="full")
    items = (await call(cloud, f"/v1/instances/{machine.id}/external-ips")).data["items"]
    assert [(each["kind"], each["ip"]) for each in items if each["kind"] != "snat"] == [
        ("ephemeral", "198.18.9.9"),
        ("floating", "198.18.9.10"),
    ]
    assert any(each["kind"] == "snat" for each in items)
    assert (await call(cloud, f"/v1/instances/{cloud.get('bare').id}/external-ips")).data["items"] == []


async def test_tokens_and_roles_are_checked(cloud: OxideCloud, call: Any) -> None:
    assert (await call(cloud, "/v1/me", token="made-up")).status == 401
    viewer, nobody = cloud.new_token(roles=["viewer"]), cloud.new_token(roles=[])
    assert (await call(cloud, f"/v1/instances?{PROJECT}", token=viewer)).status == 200
    body = {"name": "lb", "description": ""}
    refused = await call(cloud, f"/v1/floating-ips?{PROJECT}", token=viewer, method="POST", json=body)
    assert (refused.status, refused.data["error_code"]) == (403, "Forbidden")
    assert (await call(cloud, "/v1/me", token=nobody)).status == 200
    hidden = await call(cloud, f"/v1/instances/{cloud.all()[0].id}", token=nobody)
    assert (hidden.status, hidden.data["error_code"]) == (404, "ObjectNotFound")


@pytest.mark.parametrize(
    ("version", "status"),
    [("2026060800.0.0", 200), ("2026072800.0.0", 200), ("2099010100.0.0", 400), ("1.0.0", 404), ("newest", 400)],
)
async def test_the_api_version_is_checked(cloud: OxideCloud, call: Any, version: str, status: int) -> None:
    answer = await call(cloud, "/v1/me", headers={"API-Version": version})
    assert (answer.status, "error_code" in answer.data) == (status, False)


async def test_run_states_pass_through_their_transitions(cloud: OxideCloud, time: ManualClock, call: Any) -> None:
    cloud.conditions.transition_s = 5
    machine = cloud.all()[0]

    async def state() -> str:
        return str((await call(cloud, f"/v1/instances/{machine.id}")).data["run_state"])

    seen = [await state()]
    for verb in ("stop", "start", "reboot"):
        assert (await call(cloud, f"/v1/instances/{machine.id}/{verb}", method="POST")).status == 202
        seen.append(await state())
        await time.advance(5)
        seen.append(await state())
    assert seen == ["running", "stopping", "stopped", "starting", "running", "rebooting", "running"]
    assert (await call(cloud, f"/v1/instances/{machine.id}", method="DELETE")).status == 400
    cloud.set_state(machine.id, "failed")
    assert (await call(cloud, f"/v1/instances/{machine.id}", method="DELETE")).status == 204
    assert (await call(cloud, f"/v1/instances/{machine.id}")).status == 404


@pytest.mark.parametrize("state", payloads.STATES)
async def test_every_run_state_can_be_set(cloud: OxideCloud, state: str) -> None:
    assert cloud.set_state("oxide-001", state).state == state


async def test_an_unknown_run_state_is_refused_in_process(cloud: OxideCloud) -> None:
    with pytest.raises(errors.Invalid, match="asleep"):
        cloud.set_state("oxide-001", "asleep")
    with pytest.raises(errors.AlreadyExists):
        cloud.add("oxide-001")


async def test_a_floating_ip_lives_from_creation_to_deletion(cloud: OxideCloud, call: Any) -> None:
    made = await create(cloud, call, "web")
    assert (made.status, made.data["instance_id"], made.data["ip_pool_id"]) == (201, None, cloud.pool_id)
    path = f"/v1/floating-ips/{made.data['id']}"
    renamed = await call(cloud, path, method="PUT", json={"name": "web-2", "description": "ours"})
    assert (renamed.data["name"], renamed.data["description"]) == ("web-2", "ours")
    listed = (await call(cloud, f"/v1/floating-ips?{PROJECT}")).data["items"]
    assert [each["name"] for each in listed] == ["web-2"]
    assert (await call(cloud, f"/v1/floating-ips/web-2?{PROJECT}", method="DELETE")).status == 204
    assert (await call(cloud, path)).status == 404
    again = await create(cloud, call, "web", type="explicit", ip=made.data["ip"])
    assert (again.status, again.data["ip"]) == (201, made.data["ip"])


async def test_attaching_takes_time_and_is_busy_meanwhile(
    cloud: OxideCloud, time: ManualClock, floating: FloatingIp
) -> None:
    cloud.conditions.transition_s = 5
    one, two = cloud.get("oxide-001").id, cloud.get("oxide-002").id
    assert (await floating.attach("oxide-001")).status == 202
    assert await floating.holder() == one
    assert (await floating.attach("oxide-001")).status == 202, "attaching again succeeds"
    for answer in (await floating.attach("oxide-002"), await floating.detach()):
        assert (answer.status, answer.data["error_code"]) == (503, "ServiceNotAvailable")
    await time.advance(5)
    elsewhere = await floating.attach("oxide-002")
    assert (elsewhere.status, "still attached to another" in elsewhere.data["message"]) == (400, True)
    assert (await floating.detach()).status == 202
    assert await floating.holder() == one, "named until it is done"
    assert (await floating.attach("oxide-002")).status == 503
    assert (await floating.delete()).status == 400
    await time.advance(5)
    assert await floating.holder() is None
    assert (await floating.detach()).status == 400
    assert (await floating.attach("oxide-002")).status == 202
    assert await floating.holder() == two


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("running", 202),
        ("stopped", 202),
        ("starting", 503),
        ("stopping", 503),
        ("rebooting", 503),
        ("migrating", 503),
        ("creating", 400),
        ("repairing", 400),
        ("failed", 400),
        ("destroyed", 400),
    ],
)
async def test_states_that_refuse_attachment_and_detachment(
    cloud: OxideCloud, floating: FloatingIp, state: str, status: int
) -> None:
    cloud.set_state("oxide-001", state)
    assert (await floating.attach("oxide-001")).status == status
    cloud.set_state("oxide-001", "running")
    await floating.attach("oxide-001")
    cloud.set_state("oxide-001", state)
    assert (await floating.detach()).status == status


async def test_a_floating_ip_is_not_deleted_while_attached_and_freed_with_its_instance(
    cloud: OxideCloud, floating: FloatingIp
) -> None:
    await floating.attach("oxide-001")
    refused = await floating.delete()
    assert (refused.status, refused.data["error_code"]) == (400, "InvalidRequest")
    cloud.remove("oxide-001")
    assert await floating.holder() is None
    assert (await floating.delete()).status == 204


async def test_32_external_addresses_are_the_most_an_instance_has(cloud: OxideCloud, call: Any) -> None:
    cloud.add("host", ephemeral=True)
    for number in range(31):
        cloud.create_floating_ip(f"fip-{number}", attach_to="host")
    last = FloatingIp(cloud, call, (await create(cloud, call)).data["id"])
    refused = await last.attach("host")
    assert (refused.status, "32 external IP" in refused.data["message"]) == (400, True)
    assert (await last.attach("oxide-001")).status == 202


async def test_pools_are_chosen_as_the_allocator_says(call: Any) -> None:
    async with OxideCloud(instances=1, has_v6_pool=True) as cloud:
        cloud.add_pool("small", "203.0.113.8/30")
        plain = await create(cloud, call, "a")
        assert (plain.status, plain.data["error_code"]) == (400, "InvalidRequest"), "two defaults: which?"
        v6 = await create(cloud, call, "b", type="auto", pool_selector={"type": "auto", "ip_version": "v6"})
        assert payloads.family(v6.data["ip"]) == "v6"
        small = {"type": "auto", "pool_selector": {"type": "explicit", "pool": "small"}}
        made = [await create(cloud, call, f"c{number}", **small) for number in range(4)]
        assert [answer.status for answer in made] == [201, 201, 201, 507]
        assert made[3].data["error_code"] == "InsufficientCapacity"
        missing = {"type": "auto", "pool_selector": {"type": "explicit", "pool": "none"}}
        assert (await create(cloud, call, "d", **missing)).status == 404
        host = FloatingIp(cloud, call, v6.data["id"])
        assert (await host.attach("oxide-001")).status == 400, "an IPv4 instance takes no IPv6 address"


async def test_an_explicit_address_is_given_once_and_only_from_a_pool(cloud: OxideCloud, call: Any) -> None:
    assert (await create(cloud, call, "a", type="explicit", ip="198.18.77.1")).data["ip"] == "198.18.77.1"
    taken = await create(cloud, call, "b", type="explicit", ip="198.18.77.1")
    assert (taken.status, taken.data["error_code"]) == (400, "InvalidRequest")
    assert (await create(cloud, call, "b", type="explicit", ip="192.0.2.1")).status == 400
    assert (await create(cloud, call, "b", type="explicit", ip="somewhere")).status == 400


@pytest.mark.parametrize(
    "name", ["", "9lives", "Upper", "dash-", "under_score", "a" * 64, "11111111-2222-4333-8444-555555555555"]
)
async def test_a_name_that_breaks_the_rule_is_refused(cloud: OxideCloud, call: Any, name: str) -> None:
    assert (await create(cloud, call, name)).status == 400


async def test_a_name_is_given_once_in_a_project(cloud: OxideCloud, call: Any, floating: FloatingIp) -> None:
    again = await create(cloud, call, "lb")
    assert (again.status, again.data["error_code"]) == (400, "ObjectAlreadyExists")
    other = await create(cloud, call, "lb-2")
    clash = await call(cloud, f"/v1/floating-ips/{other.data['id']}", method="PUT", json={"name": "lb"})
    assert (clash.status, clash.data["error_code"]) == (400, "ObjectAlreadyExists")
    cloud.add_project("second")
    body = {"name": "lb", "description": ""}
    made = await call(cloud, "/v1/floating-ips?project=second", method="POST", json=body)
    assert made.status == 201


@pytest.mark.parametrize(
    "body",
    ["{", "[]", "{}", '{"name": "a"}', '{"name": "a", "description": "", "address_allocator": {"type": "x"}}'],
)
async def test_a_body_of_the_wrong_shape_is_refused(cloud: OxideCloud, call: Any, body: str) -> None:
    answer = await call(cloud, f"/v1/floating-ips?{PROJECT}", method="POST", data=body.encode())
    assert answer.status == 400


async def test_lists_of_floating_ips_lag_behind_views(
    cloud: OxideCloud, time: ManualClock, call: Any, floating: FloatingIp
) -> None:
    cloud.conditions.list_lag_s = 10
    assert (await call(cloud, floating.path)).status == 200
    assert (await call(cloud, f"/v1/floating-ips?{PROJECT}")).data["items"] == []
    await time.advance(10)
    assert len((await call(cloud, f"/v1/floating-ips?{PROJECT}")).data["items"]) == 1
