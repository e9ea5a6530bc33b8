"""What administrators and machines do to a running manager: a lost certificate, an empty `caBundle`, a clock past the
expiry, processes killed amid their work. On a real API server."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests import programs, servers
from tests.operators.permissions import podtable
from tests.operators.permissions.test_policies_live import admitted, program
from tests.operators.permissions.worlds import World, world_on
from tests.waiting import until

from bedplate.api import permissions
from bedplate.api.permissions import CLUSTER_ROLES
from bedplate.api.resources import NAMESPACES, SECRETS
from bedplate.kube import errors as kube_errors
from bedplate.kube.options import PatchType
from bedplate.operators.permissions import manifests
from bedplate.operators.permissions.assembly import SECRET
from bedplate.program.webhookcertificates import CONFIGURATIONS, MUTATING_CONFIGURATIONS
from bedplate.serving import issuing

pytestmark = pytest.mark.real
USERS = 100
PATIENCE_S = 600.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[servers.Server]:
    with programs.own_server("real") as running:
        yield running


@pytest.fixture
async def world(cluster: servers.Server) -> AsyncIterator[World]:
    async with world_on(cluster) as made:
        yield made


async def lose_the_secret(world: World) -> None:
    await world.client.delete(SECRETS, SECRET, permissions.SYSTEM_NAMESPACE)


async def empty_the_bundles(world: World) -> None:
    for ref in (MUTATING_CONFIGURATIONS, CONFIGURATIONS):
        count = len((await world.client.get(ref, manifests.MUTATING))["webhooks"])
        change = [{"op": "remove", "path": f"/webhooks/{index}/clientConfig/caBundle"} for index in range(count)]
        await world.client.patch(ref, manifests.MUTATING, change, type=PatchType.JSON)


async def let_it_expire(world: World) -> None:
    """As after a year in which nothing ran."""
    then, life = datetime.now(UTC) - timedelta(days=400), timedelta(days=390)
    authority = issuing.Authority.create("permissions-manager-webhook-ca", then, life)
    pair = authority.issue("webhook", then, life, uses=[issuing.Use.SERVER], hosts=["127.0.0.1"])
    parts = {"ca": authority.pair, "tls": pair}
    data = {f"{name}.crt": each.certificate for name, each in parts.items()}
    data |= {f"{name}.key": each.key for name, each in parts.items()}
    body = {"data": {name: base64.b64encode(value).decode() for name, value in data.items()}}
    await world.client.patch(SECRETS.raw(), SECRET, body, permissions.SYSTEM_NAMESPACE)


@pytest.mark.parametrize("fault", [lose_the_secret, empty_the_bundles, let_it_expire])
async def test_the_webhook_is_trusted_again_without_a_hand_and_nothing_slips_through(world: World, fault: Any) -> None:
    async with world.manager():
        await world.made("john")
        place = f"{world.user('john')}-restricted"
        assert await admitted(world, place)
        before = await world.client.get(SECRETS.raw(), SECRET, permissions.SYSTEM_NAMESPACE)
        await fault(world)
        with pytest.raises(kube_errors.ApiError):
            await world.create(world.client, podtable.mounting("/etc"), place)

        async def is_mended() -> bool:
            try:
                secret = await world.client.get(SECRETS.raw(), SECRET, permissions.SYSTEM_NAMESPACE)
            except kube_errors.NotFound:
                return False
            is_other = secret["data"] != before["data"]
            return await admitted(world, place) and (fault is empty_the_bundles or is_other)

        await until(is_mended, "good pods are admitted with a good certificate")
    async with world.manager():
        assert await until(lambda: admitted(world, place), "a manager that starts later agrees")


@pytest.mark.soak
async def test_managers_that_are_killed_amid_a_hundred_users_finish_and_leave_nothing_behind(world: World) -> None:
    names = [f"user{number}" for number in range(USERS)]
    second = World(world.server, world.client, servers.free_port())

    async def with_kills(task: asyncio.Task[Any], count: int) -> None:
        """Two managers at once, each generation killed after a while; the last one may finish."""
        for _ in range(count):
            async with AsyncExitStack() as stack:
                running = [await stack.enter_async_context(program(each)) for each in (world, second)]
                await asyncio.sleep(4)
                for process in running:
                    process.kill()
        async with program(world), program(second):
            await task

    async def make() -> list[str]:
        releases = await asyncio.gather(*map(world.add, names))
        for release in releases:
            await until(lambda release=release: _is_ready(world, release), f"{release} is ready", deadline_s=PATIENCE_S)
        return list(releases)

    making = asyncio.create_task(make())
    await with_kills(making, 3)
    for name in names:
        assert await world.exists(permissions.ROLE_BINDINGS, *[f"{world.user(name)}-restricted"] * 2)

    async def remove() -> None:
        await world.client.delete_collection(permissions.USERS, permissions.NAMESPACE)

        async def is_empty() -> bool:
            roles = (await world.client.list(CLUSTER_ROLES)).items
            spaces = (await world.client.list(NAMESPACES.partial())).items
            left = [*(await world.client.list(permissions.USERS, permissions.NAMESPACE)).items, *roles, *spaces]
            return not any(each.name.startswith("user") and world.id in each.name for each in left)

        await until(is_empty, "nothing is left", deadline_s=PATIENCE_S)

    await with_kills(asyncio.create_task(remove()), 3)


async def _is_ready(world: World, release: str) -> bool:
    ready = (await world.get(release)).status.ready
    return ready is not None and bool(ready.is_true)
