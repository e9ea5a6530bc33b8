"""The operator on a server: what it makes it makes once, and what it leaves behind is nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.operators.jupyter.worlds import World
from tests.waiting import until

from bedplate.api.resources import PODS, SERVICES
from bedplate.kube import transport
from bedplate.operators.jupyter.kernel import KERNELS


def writes(monkeypatch: pytest.MonkeyPatch, world: World) -> list[str]:
    """Requests other than the test's that change something, from now on."""
    seen: list[str] = []
    send = transport.Transport.request

    async def noted(self: transport.Transport, request: transport.Request) -> transport.Response:
        if self is not world.client._transport and request.target.method != "GET":
            seen.append(f"{request.target.method} {request.target.path}")
        return await send(self, request)

    monkeypatch.setattr(transport.Transport, "request", noted)
    return seen


async def test_a_restart_writes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world.operator():
        await world.create("a")
        await world.create("bad", pod={"containers": [{"name": "k"}], "hostPID": True})
        made = await world.made("a")
        await world.runs(made["Pod"])
        await world.condition("a", "True")
        await world.condition("bad", "False")
    seen = writes(monkeypatch, world)
    async with world.operator() as again:
        # The kernel that comes last is made last: by then the others were looked at.
        await world.create("z")
        await world.made("z")
        await world.condition("z", "False")
        del again
    name = made["Pod"]["metadata"]["name"]
    assert [line for line in seen if line.endswith((f"/{name}", "/a/status", "/bad/status"))] == []
    created = [line for line in seen if line.startswith("POST") and not line.endswith("/events")]
    assert sorted(line.rpartition("/")[2] for line in created) == ["configmaps", "pods", "secrets", "services"]


async def test_a_deleted_service_is_made_again(world: World) -> None:
    async with world.operator():
        await world.create("a")
        made = await world.made("a")
        await world.condition("a", "False")
        name, uid = made["Service"]["metadata"]["name"], made["Service"]["metadata"]["uid"]
        await world.client.delete(SERVICES, name, world.namespace)

        async def is_new() -> bool:
            return (await world.made("a"))["Service"]["metadata"]["uid"] != uid

        await until(is_new, "another Service")


async def test_a_deleted_resource_takes_its_objects_along_without_a_garbage_collector(world: World) -> None:
    async with world.operator():
        await world.create("a")
        await world.made("a")
        await world.condition("a", "False")
        await world.client.delete(KERNELS, "a", world.namespace)
        await until(world.is_empty, "nothing is left")


async def test_what_was_deleted_while_the_operator_was_away_is_cleaned_up_by_the_next(world: World) -> None:
    async with world.operator():
        await world.create("a")
        await world.made("a")
        await world.condition("a", "False")
    await world.client.delete(KERNELS, "a", world.namespace)
    async with world.operator():
        await until(world.is_empty, "nothing is left")


async def test_a_deleted_pod_ends_its_kernel(world: World) -> None:
    async with world.operator():
        await world.create("a")
        made = await world.made("a")
        await world.condition("a", "False")
        await world.client.delete(PODS, made["Pod"]["metadata"]["name"], world.namespace, grace_period_s=0)
        await until(lambda: world.is_gone("a"), "the resource is removed")
        await until(world.is_empty, "nothing is left")


async def test_a_kernel_started_again_under_its_name_has_objects_of_its_own(world: World) -> None:
    """As a gateway does that restarts a kernel: the old pod may take a while to go."""
    async with world.operator():
        await world.create("a")
        old = await world.made("a")
        await world.condition("a", "False")
        await world.client.delete(KERNELS, "a", world.namespace)
        await world.create("a")
        own = (await world.kernel("a"))["metadata"]["uid"]

        async def made() -> list[dict[str, Any]] | None:
            pods = [one for one in (await world.objects())["Pod"] if "deletionTimestamp" not in one["metadata"]]
            return pods if [one["metadata"]["ownerReferences"][0]["uid"] for one in pods] == [own] else None

        (pod,) = await until(made, "one pod, of the new resource") or ()
        assert pod["metadata"]["name"] != old["Pod"]["metadata"]["name"]
        await world.condition("a", "False")
        assert not await world.is_gone("a")


async def test_a_kernel_that_ended_by_itself_is_removed(world: World) -> None:
    async with world.operator():
        await world.create("a")
        made = await world.made("a")
        await world.stops(made["Pod"], "kernel", code=0)
        await until(lambda: world.is_gone("a"), "the resource is removed")


async def test_a_changed_spec_is_told_and_changes_nothing(world: World) -> None:
    async with world.operator():
        await world.create("a")
        made = await world.made("a")
        await world.runs(made["Pod"])
        await world.condition("a", "True")
        await world.client.patch(KERNELS.raw(), "a", {"spec": {"username": "other"}}, world.namespace)

        async def told() -> bool:
            return "the spec changed after the pod was made" in (await world.condition("a", "True"))["message"]

        await until(told, "the change is told")
        assert (await world.made("a"))["Pod"]["metadata"]["uid"] == made["Pod"]["metadata"]["uid"]


async def test_many_kernels_at_once(world: World) -> None:
    async with world.operator():
        await asyncio.gather(*(world.create(f"k{number}") for number in range(20)))

        async def complete() -> bool:
            return all(len(items) == 20 for items in (await world.objects()).values())

        await until(complete, "all objects of all kernels")


@pytest.mark.parametrize("server", ["real"], indirect=True)
async def test_a_pod_that_the_server_refuses_is_told_with_its_words(world: World) -> None:
    async with world.operator():
        await world.create("a", pod={"containers": [{"name": "Not A Name", "image": "x"}]})
        condition = await world.condition("a", "False")

        async def told() -> bool:
            return "Not A Name" in (await world.condition("a", "False"))["message"]

        await until(told, "the server's words", describe=lambda: condition)
