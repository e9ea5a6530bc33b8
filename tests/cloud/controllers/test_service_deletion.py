"""The service controller against a server: what is deleted, changed or restarted leaves no load balancer behind."""

from __future__ import annotations

import asyncio

import pytest
from tests.cloud.controllers.serving import rig
from tests.waiting import until

from bedplate.api import core
from bedplate.api.names import FINALIZER_LOAD_BALANCER
from bedplate.cloud.errors import CloudError
from bedplate.kube import Client


async def test_deletion_removes_the_balancer_before_the_finalizer(
    client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(client, namespace) as world:
        await world.start()
        await world.create("web")
        await world.address("web")
        held: list[core.Service] = []
        delete = world.balancers.delete

        async def look_then_delete(cluster: str, service: core.Service) -> None:
            held.append(await world.service("web"))
            await delete(cluster, service)

        monkeypatch.setattr(world.balancers, "delete", look_then_delete)
        await world.delete("web")
        await world.vanishes("web")
        assert FINALIZER_LOAD_BALANCER in held[0].metadata.finalizers
        assert not world.balancers.held
        await until(lambda: world.told.reasons("web")[-2:] == ["DeletingLoadBalancer", "DeletedLoadBalancer"])


async def test_a_failed_deletion_keeps_the_finalizer(client: Client, namespace: str) -> None:
    async with rig(client, namespace) as world:
        await world.start()
        await world.create("web")
        await world.address("web")
        world.balancers.script["delete"] = [CloudError("the cloud is on fire")]
        await world.delete("web")
        await until(lambda: "SyncLoadBalancerFailed" in world.told.reasons("web"))
        assert FINALIZER_LOAD_BALANCER in (await world.service("web")).metadata.finalizers
        message = world.told.messages("SyncLoadBalancerFailed")[0]
        assert message == "Error syncing load balancer: failed to delete load balancer: the cloud is on fire"
        await world.vanishes("web")
        assert not world.balancers.held


async def test_something_half_made_is_removed_though_the_cloud_knows_no_balancer(
    client: Client, namespace: str
) -> None:
    async with rig(client, namespace) as world:
        await world.start()
        await world.create("web")
        await world.address("web")
        world.balancers.held.clear()
        await world.delete("web")
        await world.vanishes("web")
        assert world.balancers.count("delete") == 1
        await until(lambda: world.told.reasons("web")[-1] == "DeletedLoadBalancer")
        assert "DeletingLoadBalancer" not in world.told.reasons("web")


async def test_a_change_of_type_removes_balancer_finalizer_and_status(client: Client, namespace: str) -> None:
    async with rig(client, namespace) as world:
        await world.start()
        await world.create("web")
        await world.address("web")
        await world.edit("web", {"spec": {"type": "ClusterIP"}})
        await until(lambda: "DeletedLoadBalancer" in world.told.reasons("web"))
        assert not world.balancers.held
        service = await world.service("web")
        assert FINALIZER_LOAD_BALANCER not in service.metadata.finalizers
        assert not service.status.load_balancer.ingress
        await world.edit("web", {"spec": {"type": "LoadBalancer"}})
        await world.address("web")
        assert list(world.balancers.held) == [world.key("web")]


@pytest.mark.parametrize("stop_at", ["get", "delete", "after"])
async def test_a_restart_in_the_middle_of_a_deletion_leaks_nothing(
    client: Client, namespace: str, stop_at: str
) -> None:
    async with rig(client, namespace) as world:
        await world.start()
        await world.create("web")
        await world.address("web")
        reached = asyncio.Event()

        def look(verb: str, service: core.Service) -> None:
            if verb == stop_at:
                world.balancers.hanging.add(world.key("web"))
                reached.set()

        def lost() -> None:
            reached.set()
            world.balancers.held.clear()
            raise CloudError("the answer was lost")

        if stop_at == "after":
            world.balancers.script["delete"] = [lost]
        world.balancers.on_call = look
        await world.delete("web")
        await reached.wait()
        await world.stop()
        assert FINALIZER_LOAD_BALANCER in (await world.service("web")).metadata.finalizers
        world.balancers.hanging.clear()
        world.balancers.on_call = lambda verb, service: None
        await world.start()
        await world.vanishes("web")
        assert not world.balancers.held


async def test_a_service_deleted_while_its_balancer_is_being_made_leaks_nothing(client: Client, namespace: str) -> None:
    async with rig(client, namespace) as world:
        world.balancers.script["ensured"] = [CloudError("the answer was lost")]
        await world.start()
        await world.create("web")
        await until(lambda: world.balancers.held)
        await world.stop()
        await world.delete("web")
        assert not await world.is_gone("web")
        await world.start()
        await world.vanishes("web")
        assert not world.balancers.held


async def test_a_service_being_deleted_without_our_finalizer_is_left_alone(client: Client, namespace: str) -> None:
    async with rig(client, namespace) as world:
        await world.create("web", metadata={"finalizers": ["tests.bedplate.dev/hold"]})
        await world.delete("web")
        before = (await world.service("web")).metadata.resource_version
        await world.start()
        await world.create("other")
        await world.address("other")
        assert not [key for _, key in world.balancers.calls if key == world.key("web")]
        assert (await world.service("web")).metadata.resource_version == before
        assert world.told.reasons("web") == []
        await world.edit("web", {"metadata": {"finalizers": None}})


async def test_a_finalizer_taken_by_force_leaks_nothing(client: Client, namespace: str) -> None:
    async with rig(client, namespace) as world:
        await world.start()
        await world.create("web")
        await world.address("web")
        world.balancers.script["delete"] = [CloudError("first try")]
        await world.delete("web")
        await until(lambda: world.balancers.count("delete") == 1)
        await world.edit("web", {"metadata": {"finalizers": None}})
        await until(lambda: not world.balancers.held)


async def test_a_service_made_anew_under_its_name_loses_the_old_balancer_first(client: Client, namespace: str) -> None:
    async with rig(client, namespace) as world:
        await world.start()
        await world.create("web")
        await world.address("web")
        old = world.balancers.of(world.key("web")).uid
        world.balancers.script["delete"] = [CloudError("first try")]
        await world.delete("web")
        await until(lambda: world.balancers.count("delete") == 1)
        await world.edit("web", {"metadata": {"finalizers": None}})
        await world.create("web")
        await world.address("web")
        assert world.balancers.of(world.key("web")).uid == (await world.service("web")).metadata.uid != old
